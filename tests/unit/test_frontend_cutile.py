"""The front end for cuTile: its tables, and compilation and errors if cuda-tile is installed."""

from __future__ import annotations

import json
import pickle
import re
import sys
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.arch import parse as target_of
from aotcuda.builder.config.parser import parse
from aotcuda.builder.entry import backend
from aotcuda.builder.frontends.cutile import config
from aotcuda.builder.frontends.protocol import LeftOut, Session
from aotcuda.builder.plan import plan
from aotcuda.errors import CompileError, ConfigError, SourceError, ToolchainError
from aotcuda.manifest import constants
from support.errors import assert_message, cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ADD = "float32[::1], float32[::1], int32"


def table(kernel: Any, *, arch: Iterable[str] = ("sm_80",), **module: Any) -> dict[str, Any]:
    return {
        "arch": [*arch],
        "frontend": "cutile",
        "modules": {"pkg.k": {"source": "pkg._k", "kernels": {"add": kernel}, **module}},
    }


def units(kernel: Any, **module: Any) -> list[config.CutileUnit]:
    (module_,) = parse(table(kernel, **module), environ={}).modules
    return config.units(module_)


class TestTable:
    @pytest.mark.parametrize(
        ("signature", "specialise", "hints"),
        [
            ("float32[::1], int32", "auto", [(":16:16", ""), (":16", ""), ("", "")]),
            ("float32[::1]:16", "auto", [(":16",)]),
            ("float32[:, :], float64", "auto", [("", "")]),
            ("float32[::1]:any, float32[::1]", "auto", [("", ":16:16"), ("", ":16"), ("", "")]),
            ("float32[::1]", "exact", [("",)]),
        ],
    )
    def test_most_special_variants_come_first(
        self, signature: str, specialise: str, hints: list[tuple[str, ...]]
    ) -> None:
        (unit,) = units({"signature": signature, "specialise": specialise})
        specialized = config.specialize(unit)
        assert [tuple(str(each).partition("]")[2] for each in item.types) for item in specialized] == hints
        assert [item.symbol for item in specialized] == [f"add__0_{number}" for number in range(len(hints))]

    @pytest.mark.parametrize(("arch", "wanted"), [("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_100a", "sm_100a")])
    def test_code_for_9_0_and_later_is_for_one_architecture(self, arch: str, wanted: str) -> None:
        (planned,) = plan.make(parse(table(ADD, arch=(arch, wanted)), environ={}))
        assert [str(target) for target in planned.targets] == [wanted]

    def test_wheels_with_cutile_kernels_are_for_one_system(self) -> None:
        assert re.fullmatch(r"py3-none-\w+", backend.tag(table(ADD)) or "")
        of_module = {"arch": ["sm_80"], "modules": {"pkg.k": {"frontend": "cutile"}, "pkg.l": {"source": "pkg._l"}}}
        assert backend.tag(of_module) == backend.tag(table(ADD))
        of_module["modules"].pop("pkg.k")  # type: ignore[attr-defined]
        assert backend.tag(of_module) is None


@cases("cutile.txt", "tables")
def test_error_in_a_table_names_the_key(text: str, expected: str) -> None:
    module = tomllib.loads(text)
    with pytest.raises(ConfigError) as caught:
        plan.make(parse(table(module.pop("kernels")["add"], **module), environ={}))
    assert_message(str(caught.value), expected)


SOURCE = """
from typing import Annotated

import cuda.tile as ct

@ct.kernel
def add(x, out, n, TILE: ct.Constant[int]):
    at = ct.bid(0)
    ct.store(out, index=(at,), tile=ct.load(x, index=(at,), shape=(TILE,)) + n)

@ct.kernel
def defaulted(x, TILE: ct.Constant[int] = 64):
    ct.store(x, index=(ct.bid(0),), tile=ct.load(x, index=(ct.bid(0),), shape=(TILE,)))

@ct.kernel
def filled(x, V: ct.Constant[float]):
    ct.store(x, index=(ct.bid(0),), tile=ct.full((64,), V, ct.float32))

@ct.kernel
def pairs(x: tuple[ct.Array, ct.Array]):
    pass

@ct.kernel
def static(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(0,))]):
    pass

@ct.kernel
def large(x: ct.IndexedWithInt64, n: ct.ScalarInt64):
    ct.store(x, index=(ct.bid(0),), tile=ct.load(x, index=(ct.bid(0),), shape=(64,)) + n)

@ct.kernel
def wrong(x):
    ct.load(x, index=(0,), shape=(48,))

@ct.kernel
def rows(x):
    ct.store(x, index=(ct.bid(0), 0), tile=2 * ct.load(x, index=(ct.bid(0), 0), shape=(1, 64)))

def plain(x):
    pass
"""


@pytest.fixture(scope="module")
def front() -> Any:
    """Return the front end, where cuda-tile and tileiras are installed."""
    pytest.importorskip("cuda.tile", reason="cuda-tile is not installed (extra cutile)")
    from aotcuda.builder.frontends.cutile.compiler import CutileFrontEnd

    front_end = CutileFrontEnd()
    try:
        front_end.prepare(Session(root="", cache=None))
    except ToolchainError as error:
        pytest.skip(str(error))
    return front_end


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with SOURCE, which can be imported."""
    folder = tmp_path_factory.mktemp("tiles")
    (folder / "tiles_source.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    sys.modules.pop("tiles_source", None)


@pytest.fixture
def build(front: Any, root: Path) -> Any:
    """Return a function that compiles the variants of a kernel of SOURCE."""
    front._root = str(root)

    def build(kernel: Any) -> list[Any]:
        results = []
        for unit in units(kernel, source="tiles_source"):
            loaded = front.load(unit)
            for settled, _ in front.resolve(unit, loaded):
                results += front.compile_unit(settled, loaded, [config.target(target_of("sm_80"))]).values()
                if isinstance(results[-1], LeftOut):
                    raise results[-1].error
        return results

    return build


@cases("cutile.txt", "sources")
def test_table_that_does_not_fit_the_source_is_refused(build: Any, text: str, expected: str) -> None:
    with pytest.raises((CompileError, SourceError)) as caught:
        build(tomllib.loads(text)["kernels"]["add"])
    assert_message(f"{type(caught.value).__name__}: {caught.value}", expected)


def test_specialisations_that_fail_alike_have_one_fault(build: Any) -> None:
    faults = []
    for signature in ("float32[::1]", "float64[::1]"):
        with pytest.raises(CompileError) as caught:
            build({"python": "wrong", "signature": signature, "specialise": "exact"})
        assert signature in str(caught.value)
        faults.append(caught.value.fault)
    assert faults[0] == faults[1]
    assert ".kernels.add: " in faults[0]


def test_an_unknown_target_of_tileiras_is_refused(front: Any) -> None:
    session = Session(root="", cache=None, arch_key="AOTCUDA_ARCH")
    type(front)().prepare(replace(session, targets=[target_of("sm_90a")]))
    with pytest.raises(ToolchainError, match=r"^AOTCUDA_ARCH: sm_99 is not known to tileiras \d.*, sm_90, "):
        type(front)().prepare(replace(session, targets=[target_of("sm_99a")]))


def test_assumptions_of_the_compiler_are_checked_by_launches(build: Any) -> None:
    even, aligned, plain = build({"python": "rows", "signature": "float16[:, ::1]"})
    assert "divisor" not in repr(plain.parameters)
    for variant, extents in ((even, 16), (aligned, None)):
        x = variant.parameters[0]
        assert x["divisor"] == 16
        assert [size.get("divisor") for size in x["sizes"]] == [extents, extents, 8, None]


@pytest.mark.parametrize(("overlap", "wanted"), [((), ((0, 1),)), (("x", "out"), ())])
def test_launches_check_overlap_unless_the_table_allows_it(build: Any, overlap: Any, wanted: Any) -> None:
    variants = build({"signature": ADD, "constants": {"TILE": 64}, "overlap": [*overlap]})
    assert {variant.launch.apart for variant in variants} == {wanted}


def test_an_array_with_64_bit_indices_has_64_bit_sizes(build: Any) -> None:
    (variant,) = build({"python": "large", "signature": "float32[:], int64", "specialise": "exact"})
    assert [size["format"] for size in variant.parameters[0]["sizes"]] == ["q", "q"]
    assert variant.parameter_block.layout == ((0, 8), (8, 8), (16, 8), (24, 8))
    assert variant.parameters[0]["sizes"][1]["least"] == 0


def test_default_of_a_constant_comes_from_the_source(build: Any) -> None:
    (variant,) = build({"python": "defaulted", "signature": "float32[::1]", "specialise": "exact"})
    assert variant.parameters[1]["value"] == 64
    assert variant.definition.arguments == ({"name": "x"}, {"name": "TILE", "default": 64})


FLOATS = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.5]


def test_units_with_special_floats_equal_themselves() -> None:
    every = units({"signature": "float32[::1]", "constants": {"V": FLOATS}})
    assert pickle.loads(pickle.dumps(every)) == every
    assert [repr(dict(unit.constants)["V"]) for unit in every] == [*map(repr, FLOATS)]


def test_each_float_is_its_own_constant(build: Any) -> None:
    kernel = {"python": "filled", "signature": "float32[::1]", "specialise": "exact", "constants": {"V": FLOATS}}
    variants = build(kernel)
    stored = [json.loads(json.dumps(item.parameters[1]["value"], allow_nan=False)) for item in variants]
    assert [repr(constants.decode(value)) for value in stored] == [*map(repr, FLOATS)]
    assert len({item.code[0].data for item in variants}) == len(FLOATS)


def test_error_for_a_missing_tileiras_names_the_extra(front: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.tile import _compile

    def nowhere() -> Any:
        message = "'tileiras' compiler not found"
        raise FileNotFoundError(message)

    monkeypatch.setattr(_compile, "_find_compiler_bin", nowhere)
    with pytest.raises(ToolchainError, match=re.escape("pip install 'aotcuda[cutile]'")):
        type(front)().prepare(Session(root="", cache=None))
