"""Checks before a manifest: agreement of all imports, memory of kernels, parameters in the image, drivers."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from aotcuda import arch
from aotcuda.binary import cubin
from aotcuda.builder import code_warnings, consistency, plan, wheel_files
from aotcuda.builder.config import parser
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.builder.link.images import Image
from aotcuda.errors import CompileError, LinkError
from support import images

TABLE = """
arch = ["sm_75"]
[modules."pkg.k"]
source = "pkg._k"
kernels.axpy = "void(float32, float32[::1], float32[::1])"
"""
# One float, then two arrays of seven words each, on their natural boundaries.
LAYOUT = ((0, 4), *((8 + 8 * index, 8) for index in range(14)))


def check(layout: tuple[tuple[int, int], ...], parameter_bytes: int, *, one_by_one: bool = False) -> cubin.CubinKernel:
    """Compare a layout with the kernel of a real image; return the kernel."""
    (made,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    image = cubin.read(images.numba_cubin("sm_75"), "the image")
    kernel = next(kernel for kernel in image.kernels if kernel.name == "axpy")
    built = SimpleNamespace(layout=layout, parameter_bytes=parameter_bytes, one_by_one=one_by_one)
    wheel_files._check_layout(made.units[0], built, kernel, arch.parse("sm_75"))
    return kernel


def test_equal_layout_is_accepted() -> None:
    assert len(check(LAYOUT, 120).parameters) == len(LAYOUT)


def test_offsets_do_not_matter_for_separate_arguments() -> None:
    moved = tuple((offset + 32, size) for offset, size in LAYOUT)
    assert check(moved, 152, one_by_one=True)
    with pytest.raises(LinkError):
        check(tuple((offset, size + 1) for offset, size in LAYOUT), 120, one_by_one=True)


@pytest.mark.parametrize(
    ("layout", "parameter_bytes"),
    [
        pytest.param(LAYOUT[:-1], 112, id="a word is missing"),
        pytest.param((*LAYOUT, (120, 8)), 128, id="a word too many"),
        pytest.param(((0, 8), *LAYOUT[1:]), 120, id="another size"),
        pytest.param(((4, 4), *LAYOUT[1:]), 120, id="another place"),
        pytest.param(LAYOUT, 128, id="another whole"),
    ],
)
def test_different_layout_is_refused(layout: tuple[tuple[int, int], ...], parameter_bytes: int) -> None:
    with pytest.raises(LinkError) as caught:
        check(layout, parameter_bytes)
    said = str(caught.value)
    assert said.startswith('tool.aotcuda.modules."pkg.k".kernels.axpy: void(float32, float32[::1], float32[::1]): ')
    assert f"takes its parameters as {LAYOUT}, and the front end said {layout}; " in said


@pytest.mark.parametrize(
    ("cuda", "whole", "each"),
    [
        ("13.0", "580.65", ["580.65", "580.65", "580.65"]),
        ("12.9", "525.60", ["525.60", "570.26", "575.51"]),
        ("14.1", None, [None, None, None]),
    ],
)
def test_manifest_has_the_lowest_driver_of_each_image(cuda: str, whole: str | None, each: list[str | None]) -> None:
    (made,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    targets = [arch.parse(text) for text in ("sm_75", "sm_120", "compute_75")]
    empty = {"kernels": (), "functions": (), "callbacks": (), "foreign": (), "carried": (), "left_out": ()}
    lone_plan = SimpleNamespace(config=made.config, frontend=made.frontend, kernels=(), functions=(), in_place=False)
    version = tuple(map(int, cuda.split(".")))
    made_images = [Image(target, b"", version, version) for target in targets]
    module = SimpleNamespace(plan=lone_plan, images=made_images, ltoir=[], pack=None, **empty)
    result = SimpleNamespace(toolchain={"cuda": cuda, "nvjitlink": cuda})
    # There is no code behind these targets, so no machine code can tell what its kernels take.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel_files, "_resources", lambda module, sizes: {})
        settings = parser.parse(tomllib.loads(TABLE), environ={})
        found = wheel_files.describe(settings, module, result)
        functions = [(target, b"") for target in targets]
        functions_alone = SimpleNamespace(**{**vars(module), "images": [], "ltoir": functions})
        alone = wheel_files.describe(settings, functions_alone, result)
    assert found["min_driver"] == alone["min_driver"] == whole
    assert [image["min_driver"] for image in found["images"]] == each


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


MOST = 523_776


def kernel(name: str, *overloads: dict[str, int | None]) -> Any:
    resources = [{target: {"local": local} for target, local in overload.items()} for overload in overloads]
    return {"name": name, "overloads": [{"resources": found} for found in resources]}


def test_too_much_local_memory_gives_one_warning_for_each_kernel() -> None:
    fits = [kernel("k", {"sm_75": MOST, "sm_90a": 0}, {"sm_80": None}), kernel("n")]
    assert code_warnings.local_memory("m", fits) == []
    problem = "more local memory for a thread than the 523776 bytes that GPUs have, and cannot be launched"
    advice = "have smaller local arrays, or arrays in global memory"
    kernels = [
        kernel("one", {"sm_90": MOST + 8, "sm_80": MOST}),
        kernel("two", {"sm_90": MOST + 16, "sm_80": 600_000}, {"sm_90": 700_000, "sm_80": 0}, {"sm_90": 8}),
    ]
    assert code_warnings.local_memory("pkg.m", kernels) == [
        f"pkg.m.one: it needs {problem}: 523784 bytes for sm_90; {advice}",
        f"pkg.m.two: 2 of its 3 signatures need {problem}: 600000 bytes for sm_80, 700000 bytes for sm_90; {advice}",
    ]


KIB = 1024


def unit_and_kernel(key: str, **launches: int) -> tuple[Any, Any]:
    found = tuple((arch, {"threads": 128, "shared": shared}) for arch, shared in launches.items())
    return SimpleNamespace(key=key), SimpleNamespace(launches=found)


def test_too_much_shared_memory_gives_one_warning_for_each_kernel() -> None:
    given = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_90a": 227, "compute_80": 163, "sm_120a": 99, "sm_199": 999}
    fits = unit_and_kernel("k", **{name: at * KIB for name, at in given.items()})
    assert code_warnings.shared_memory([fits]) == []
    assert code_warnings.shared_memory([unit_and_kernel("k")]) == []
    kernels = [
        unit_and_kernel("one", sm_80=163 * KIB + 1, sm_90a=200 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=100 * KIB),
        unit_and_kernel("two", sm_80=200 * KIB, sm_120a=256 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=1),
    ]
    problem = "more shared memory for a block than there is, and cannot be launched there"
    advice = "have smaller tiles or fewer stages"
    both = "262144 bytes for sm_120a, which has 101376, 204800 bytes for sm_80, which has 166912"
    assert code_warnings.shared_memory(kernels) == [
        f"one: it needs {problem}: 166913 bytes for sm_80, which has 166912; {advice}",
        f"two: 2 of its 3 variants need {problem}: {both}; {advice}",
    ]
