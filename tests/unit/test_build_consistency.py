"""Imports of the sources for several targets must agree on a module's common parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aotcuda import arch
from aotcuda.builder import consistency
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.errors import CompileError

KERNEL, FUNCTION, OTHER = (
    Unit(
        kind=kind,
        module="pkg.k",
        name=name,
        symbol=name,
        options=Options(),
        signature=signature,
        origin="pkg._k:f",
        key=f"kernels.{name}",
        signature_key=f"kernels.{name}",
    )
    for kind, name, signature in (
        ("kernel", "f", "void(int64)"),
        ("function", "g", "int64(int64)"),
        ("kernel", "h", "void(int32)"),
    )
)


def built(bounds: int = 128) -> Any:
    return SimpleNamespace(signature="void(int64)", launch_bounds=(bounds,))


def imported(target: str, *found: tuple[Unit, str, Any]) -> consistency.Import:
    compiled = {(unit, arch.parse(text)): item for unit, text, item in found}
    return consistency.Import(arch.parse(target), frozenset(unit for unit, _, _ in found), compiled)


def test_units_must_agree_with_the_first_import() -> None:
    """Functions are compiled for more targets than kernels, and by toolkits that make no kernels."""
    consistency.check(
        [
            imported("sm_75", (FUNCTION, "sm_75", built(1))),
            imported("sm_110", (KERNEL, "sm_110", built()), (FUNCTION, "sm_110", built(1))),
            imported("sm_90", (KERNEL, "sm_90", built()), (FUNCTION, "sm_75", built(1))),
        ]
    )
    with pytest.raises(CompileError) as caught:
        consistency.check(
            [
                imported("sm_75", (FUNCTION, "sm_75", built(1))),
                imported("sm_110", (FUNCTION, "sm_75", built(1)), (KERNEL, "sm_110", built(256))),
                imported("sm_75", (KERNEL, "sm_75", built())),
            ]
        )
    assert str(caught.value) == (
        "kernels.f: pkg._k:f has another launch bounds when it is imported for sm_75 ((128,)) than for sm_110 "
        "((256,)), and a module has one for all GPUs; make them the same"
    )


def test_units_of_one_import_alone_are_refused() -> None:
    with pytest.raises(
        CompileError, match=r"^kernels\.h: pkg\._k:f has other signatures .* for sm_90 than for sm_75; "
    ):
        consistency.check(
            [
                imported("sm_75", (KERNEL, "sm_75", built())),
                imported("sm_90", (KERNEL, "sm_90", built()), (OTHER, "sm_90", built())),
            ]
        )
