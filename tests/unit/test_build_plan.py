"""Plans: units, their symbols and keys, and the targets of their code."""

from __future__ import annotations

import tomllib

import pytest

from aotcuda.builder import plan
from aotcuda.builder.config import parser
from aotcuda.errors import ConfigError

M = 'tool.aotcuda.modules."pkg.k"'


def make(text: str, arch: str = '["sm_80"]', **environ: str) -> tuple[plan.ModulePlan, ...]:
    table = tomllib.loads(f'arch = {arch}\n[modules."pkg.k"]\nsource = "pkg._k"\n{text}')
    return plan.make(parser.parse(table, environ=environ))


KERNELS = """
kernels.one = "void(int32)"
kernels.two = ["void(int32)", "void(int64)"]
kernels.three = { python = "other", signature = "void(int32)" }
functions.four = "int32(int32)"
functions.five = { python = "other", signature = "int32(int32)" }
"""


def test_symbols_are_numbered_for_several_signatures() -> None:
    (made,) = make(KERNELS)
    assert [unit.symbol for unit in made.kernels] == ["one", "two__0", "two__1", "three"]
    assert [unit.symbol for unit in made.functions] == ["four", "five"]
    assert [unit.name for unit in made.units] == ["one", "two", "two", "three", "four", "five"]
    assert [unit.python for unit in made.units] == ["one", "two", "two", "other", "four", "other"]


def test_units_have_the_keys_of_the_table() -> None:
    (made,) = make(KERNELS)
    assert [unit.signature_key for unit in made.units] == [
        f"{M}.kernels.one",
        f"{M}.kernels.two[0]",
        f"{M}.kernels.two[1]",
        f"{M}.kernels.three.signature",
        f"{M}.functions.four",
        f"{M}.functions.five.signature",
    ]
    (listed,) = make('kernels.two = { signatures = ["void(int32)", "void(int64)"] }')
    assert [unit.signature_key for unit in listed.units] == [
        f"{M}.kernels.two.signatures[0]",
        f"{M}.kernels.two.signatures[1]",
    ]


def test_symbol_of_two_units_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        make('kernels.two = ["void(int32)", "void(int64)"]\nfunctions.two__1 = "int32(int32)"')
    assert str(caught.value) == (
        f"{M}.functions.two__1: its symbol two__1 is also that of {M}.kernels.two; rename one of the two"
    )


def test_code_is_compiled_once_for_each_capability() -> None:
    (made,) = make(KERNELS, '["compute_90", "sm_90", "sm_90a", "compute_75", "sm_100f"]')
    assert list(map(str, made.targets)) == ["sm_90", "sm_90a", "sm_100f", "compute_75", "compute_90"]
    assert list(map(str, made.ltoir_targets)) == ["sm_75", "sm_90", "sm_90a", "sm_100f"]


def test_front_end_of_a_module_overrides_the_projects() -> None:
    table = tomllib.loads(
        f'arch = ["sm_80"]\nfrontend = "numba-cuda-mlir"\n[modules."pkg.k"]\nsource = "pkg._k"\n{KERNELS}'
    )
    (made,) = plan.make(parser.parse(table, environ={}))
    assert (made.frontend, made.frontend_key) == ("numba-cuda-mlir", "tool.aotcuda.frontend")
    table["modules"]["pkg.k"]["frontend"] = "numba-cuda"
    (made,) = plan.make(parser.parse(table, environ={}))
    assert (made.frontend, made.frontend_key) == ("numba-cuda", f"{M}.frontend")


def test_debug_build_of_kernels_refuses_ptx() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch: compute_80 is PTX, and .* debug = true"):
        make("options.debug = true\n" + KERNELS, '["sm_80", "compute_80"]')
    with pytest.raises(ConfigError, match=r"^AOTCUDA_ARCH: compute_90 is PTX"):
        make("options.debug = true\n" + KERNELS, AOTCUDA_ARCH="compute_90")
    make("options.debug = true\n" + KERNELS)
    make('options.debug = true\nfunctions.f = "int32(int32)"', '["compute_80"]')  # functions stay LTOIR


def test_module_that_is_its_own_source_is_in_place() -> None:
    table = tomllib.loads("""
arch = ["sm_80"]
[modules."pkg.k"]
source = "pkg.k"
kernels.one = "void(int32)"
[modules."pkg.other"]
source = "pkg.k"
kernels.one = "void(int32)"
[modules."pkg.mlir"]
frontend = "numba-cuda-mlir"
source = "pkg.mlir"
kernels.one = "void(int32)"
""")
    made = plan.make(parser.parse(table, environ={}))
    assert [item.in_place for item in made] == [True, False, True]
    assert plan.names(made) == {"pkg.other": ("one",)}
