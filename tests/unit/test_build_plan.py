"""The plan: units, their symbols and keys, and what each target needs."""

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


def test_a_kernel_of_one_signature_has_its_name_for_symbol_and_others_are_numbered() -> None:
    (made,) = make(KERNELS)
    assert [unit.symbol for unit in made.kernels] == ["one", "two__0", "two__1", "three"]
    assert [unit.symbol for unit in made.functions] == ["four", "five"]
    assert [unit.name for unit in made.units] == ["one", "two", "two", "three", "four", "five"]
    assert [unit.python for unit in made.units] == ["one", "two", "two", "other", "four", "other"]


def test_units_know_the_keys_as_the_user_wrote_them() -> None:
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


def test_a_symbol_that_two_units_would_have_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        make('kernels.two = ["void(int32)", "void(int64)"]\nfunctions.two__1 = "int32(int32)"')
    assert str(caught.value) == (
        f"{M}.functions.two__1: its symbol two__1 is also that of {M}.kernels.two; rename one of the two"
    )


def test_code_is_compiled_once_for_each_capability_whatever_it_becomes() -> None:
    (made,) = make(KERNELS, '["compute_90", "sm_90", "sm_90a", "compute_75", "sm_100f"]')
    assert list(map(str, made.targets)) == ["sm_90", "sm_90a", "sm_100f", "compute_75", "compute_90"]
    assert list(map(str, made.ltoir_targets)) == ["sm_75", "sm_90", "sm_90a", "sm_100f"]


def test_a_modules_own_front_end_comes_before_the_projects() -> None:
    def frontend(module: str = "", project: str = "") -> tuple[str, str]:
        table = tomllib.loads(f'arch = ["sm_80"]\n{project}\n[modules."pkg.k"]\nsource = "pkg._k"\n{module}\n{KERNELS}')
        (made,) = plan.make(parser.parse(table, environ={}))
        return made.frontend, made.frontend_key

    old, new = 'frontend = "numba-cuda"', 'frontend = "numba-cuda-mlir"'
    assert frontend() == frontend(project=old) == ("numba-cuda", "tool.aotcuda.frontend")
    assert frontend(project=new) == ("numba-cuda-mlir", "tool.aotcuda.frontend")
    assert frontend(new) == frontend(new, project=new) == ("numba-cuda-mlir", f"{M}.frontend")
    assert frontend(old, project=new) == ("numba-cuda", f"{M}.frontend")


def test_a_debug_build_of_kernels_has_no_ptx() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch: compute_80 is PTX, and .* debug = true"):
        make("options.debug = true\n" + KERNELS, '["sm_80", "compute_80"]')
    with pytest.raises(ConfigError, match=r"^AOTCUDA_ARCH: compute_90 is PTX"):
        make("options.debug = true\n" + KERNELS, AOTCUDA_ARCH="compute_90")
    make("options.debug = true\n" + KERNELS)
    make('options.debug = true\nfunctions.f = "int32(int32)"', '["compute_80"]')  # nothing of it becomes PTX


def test_a_module_that_is_its_own_source_is_in_place_and_nothing_of_it_is_generated() -> None:
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
