"""Triton modules that are packaged in place: their imports, their launches, and launches by Triton."""

from __future__ import annotations

import copy
import functools
import importlib
import struct
import warnings
from types import ModuleType

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, FallbackWarning, NoImageError, StaleBuildError
from aotcuda.runtime import driver
from aotcuda.runtime.jit import compile as jit_compile
from support import in_place, triton_in_place
from support.triton_in_place import record

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

SOURCE = """
from aotcuda.triton import triton, tl
import aotcuda.triton as at

@triton.jit
def helper(x):
    return x + x

@triton.jit(do_not_specialize=["n"])
def scale(x, factor, n, BLOCK: tl.constexpr, ACT: tl.constexpr = None):
    "Scales."
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, helper(tl.load(x + at, at < n)) * factor, at < n)

@at.triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is None, "ODD": lambda args: args["bias"] is not None})
@triton.jit
def norm(x, bias, n, HAS_BIAS: tl.constexpr, ODD: tl.constexpr):
    pass

@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is None})
@triton.heuristics({"BLOCK": lambda args: 64 if args["n"] else 1 // args["n"], "num_warps": lambda args: 2})
@triton.jit
def sized(x, bias, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    pass

def body(x, n):
    pass

first = triton.jit(body)
second = triton.jit(body, do_not_specialize=["n"])

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    pass

@triton.autotune([triton.Config({"DT": tl.float16}), triton.Config({"DT": tl.float32})], key=["n"])
@triton.jit
def typed(x, n, DT: tl.constexpr):
    pass

@triton.jit
def absent(x, n):
    pass

class Wrapper:
    def __init__(self, fn):
        self.kernel = fn

@Wrapper
@triton.jit
def wrapped(x, n):
    pass
"""
pytestmark = pytest.mark.usefixtures("path")

X, N, BLOCK = {"name": "x"}, {"name": "n"}, {"name": "BLOCK"}
UNHINTED, BIAS = {**N, "hints": "none"}, {"name": "bias"}
HAS_BIAS, ODD = {"name": "HAS_BIAS", "is_none": "bias"}, {"name": "ODD", "is_not_none": "bias"}
POINTER = {"x": "*fp32:16"}
ALIGNED = {**POINTER, "n": "i32:16"}
SCALED = {**POINTER, "factor": "fp32", "n": "i32"}
KERNELS = {
    "scale": (
        [X, {"name": "factor"}, UNHINTED, BLOCK, {"name": "ACT", "default": None}],
        [{**SCALED, "BLOCK": 128}, {**SCALED, "BLOCK": 64, "ACT": "relu", "num_warps": 8}],
    ),
    "norm": (
        [X, BIAS, N, HAS_BIAS, ODD],
        [
            {**ALIGNED, "bias": None, "HAS_BIAS": True, "ODD": False},
            {**ALIGNED, "bias": "*fp32:16", "HAS_BIAS": False, "ODD": True},
        ],
    ),
    "sized": (
        [X, BIAS, N, HAS_BIAS, BLOCK],
        [{**ALIGNED, "bias": None, "HAS_BIAS": True, "BLOCK": 64, "num_warps": 2}],
    ),
    "first": ([X, N], [ALIGNED]),
    "second": ([X, UNHINTED], [{**POINTER, "n": "i32"}]),
    "wrapped": ([X, N], [ALIGNED]),
    "tuned": ([X, N, BLOCK], [{**ALIGNED, "BLOCK": 64}, {**ALIGNED, "BLOCK": 128, "num_warps": 8}]),
    "typed": ([X, N, {"name": "DT"}], [{**ALIGNED, "DT": "tl.float16"}, {**ALIGNED, "DT": "tl.float32"}]),
}


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    monkeypatch.setattr(jit_compile, "_warned", set())


@pytest.fixture
def by_triton(monkeypatch):
    """Return the launches by Triton: name, arguments, grid, warmup, named arguments."""
    launches = []

    def run(self, *args, grid, warmup, **kwargs):
        launches.append((self.__name__, args, grid, warmup, kwargs))
        return "compiled"

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    return launches


def write(cuda, **options):
    """Write the source as a build packages it in place."""
    records = [record(name, copy.deepcopy(arguments), *each) for name, (arguments, each) in KERNELS.items()]
    for item in records:
        if item["name"] in ("first", "second"):
            item["function"] = "body"
    triton_in_place.write(cuda.packages, SOURCE, *records, **options)


def package(cuda, **options):
    """Return the source, packaged in place and imported."""
    write(cuda, **options)
    return importlib.import_module("mypkg.ops")


def symbols(cuda):
    return [call["kernel"] for call in cuda.launches()]


class TestNames:
    def test_triton_is_a_module_with_tritons_names(self, cuda):
        ops = package(cuda)
        assert type(ops.triton) is ModuleType
        assert ops.triton is not triton
        assert ops.triton.__name__ == "triton"
        assert ops.tl is triton.language
        for name in ("cdiv", "Config", "JITFunction", "runtime", "__version__", "__file__", "__path__"):
            assert getattr(ops.triton, name) is getattr(triton, name)
        assert ops.at.jit is ops.at.triton.jit
        assert set(dir(triton)) <= set(dir(ops.triton))
        with pytest.raises(AttributeError):
            _ = ops.triton.nothing

    @pytest.mark.parametrize(
        "variable", [("AOTCUDA_IN_PLACE", "0"), ("AOTCUDA_BUILDING", "1"), ("TRITON_INTERPRET", "1"), None]
    )
    def test_triton_is_itself_where_nothing_is_packaged(self, variable, cuda, monkeypatch):
        write(cuda)
        if variable is None:
            (cuda.packages / "mypkg/ops.aotcuda/in-place").unlink()  # as in a source tree without a build
        else:
            monkeypatch.setenv(*variable)
        assert importlib.import_module("mypkg.ops").triton is triton

    def test_triton_without_the_private_parts_launches_all_kernels(self, cuda, monkeypatch):
        from aotcuda.integrations.in_place.triton import private_parts

        monkeypatch.setattr(private_parts, "are_known", functools.cache(private_parts.are_known.__wrapped__))
        monkeypatch.delattr(triton.runtime.autotuner.Autotuner, "prune_configs")
        with pytest.warns(FallbackWarning, match="no triton.runtime.autotuner.Autotuner.prune_configs") as warned:
            assert package(cuda).triton is triton
        assert len(warned) == 1

    def test_decorators_return_subclasses_of_tritons_classes(self, cuda):
        ops = package(cuda)
        assert isinstance(ops.scale, triton.JITFunction)
        assert type(ops.scale).__name__ == "JITFunction"
        assert type(ops.scale) is not triton.JITFunction
        assert isinstance(ops.norm, triton.runtime.autotuner.Heuristics)
        assert ops.scale.__doc__ == "Scales."
        assert {ops.scale: 1}[ops.scale] == 1
        assert ops.second.do_not_specialize == ["n"]
        assert copy.copy(ops.scale).fn is ops.scale.fn


LAUNCHES = {
    "by position": ("scale__0", lambda ops, x: ops.scale[(3,)](x, 0.5, 7, 128)),
    "by name": ("scale__1", lambda ops, x: ops.scale[(3,)](x, 0.5, n=7, BLOCK=64, ACT="relu", num_warps=8)),
    "run": ("scale__0", lambda ops, x: ops.scale.run(x, 0.5, 7, BLOCK=128, grid=(3,), warmup=False)),
    "grid function": ("scale__0", lambda ops, x: ops.scale[lambda meta: (meta["n"] - 4,)](x, 0.5, 7, BLOCK=128)),
    "None heuristics": ("norm__0", lambda ops, x: ops.norm[(3,)](x, None, 16)),
    "other heuristics": ("norm__1", lambda ops, x: ops.norm[(3,)](x, x, 16)),
    "sizes": ("sized__0", lambda ops, x: ops.sized[(3,)](x, None, n=16)),
    "assigned": ("first__0", lambda ops, x: ops.first[(3,)](x, 16)),
    "second name": ("second__0", lambda ops, x: ops.second[(3,)](x, 16)),
    "wrapped": ("wrapped__0", lambda ops, x: ops.wrapped.kernel[(3,)](x, 16)),
}


class TestLaunches:
    @pytest.mark.parametrize("launch", LAUNCHES)
    def test_launches_take_packaged_variants(self, launch, cuda, by_triton):
        ops, x = package(cuda), cuda.array()
        symbol, run = LAUNCHES[launch]
        for _ in range(4):  # the fast path makes later launches
            run(ops, x)
        assert symbols(cuda) == [symbol] * 4
        assert {tuple(call["grid"]) for call in cuda.launches()} == {(3, 1, 1)}
        assert by_triton == []
        if symbol == "scale__0":
            assert cuda.parameters()[:16] == struct.pack("<Qfi", x.address, 0.5, 7)

    @pytest.mark.parametrize(
        ("values", "symbol"),
        [
            ({"HAS_BIAS": True, "ODD": False}, "norm__0"),
            ({"HAS_BIAS": 1, "ODD": False}, None),
            ({"HAS_BIAS": True}, None),
        ],
    )
    def test_kernel_without_its_heuristics_uses_values_of_the_launch(self, values, symbol, cuda, by_triton):
        ops, x = package(cuda), cuda.array()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if symbol is None else "error", FallbackWarning)
            for _ in range(4):
                ops.norm.fn[(3,)](x, None, 16, **values)
                ops.norm.fn.run(x, None, 16, *values.values(), grid=(3,), warmup=False)
        assert symbols(cuda) == ([] if symbol is None else [symbol] * 8)
        assert [call[4] for call in by_triton] == ([values, {}] * 4 if symbol is None else [])

    def test_a_heuristic_replaces_what_a_launch_gives(self, cuda, by_triton):
        ops, x = package(cuda), cuda.array()
        ops.norm[(3,)](x, None, 16, HAS_BIAS=False)
        assert symbols(cuda) == ["norm__0"]
        with pytest.warns(FallbackWarning):
            ops.norm[(3,)](x, None, 7, HAS_BIAS=False)
        assert by_triton[0][4] == {"HAS_BIAS": True, "ODD": False}

    def test_other_heuristics_around_a_kernel_are_called(self, cuda, by_triton):
        ops, x = package(cuda), cuda.array()
        other = triton.heuristics({"HAS_BIAS": lambda args: args["n"] == 7, "ODD": lambda args: False})(ops.norm.fn)
        fewer = triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is None})(ops.norm.fn)
        with pytest.warns(FallbackWarning, match="HAS_BIAS is False"):
            other[(3,)](x, None, 16)
        fewer[(3,)](x, None, 16, ODD=True)
        assert [call[4] for call in by_triton] == [{"HAS_BIAS": False, "ODD": False}, {"HAS_BIAS": True, "ODD": True}]
        fewer[(3,)](x, None, 16, ODD=False)
        assert symbols(cuda) == ["norm__0"]


class TestMisses:
    @pytest.mark.parametrize(
        ("values", "grid"),
        [
            ({"BLOCK": 128.0}, (3,)),
            ({"BLOCK": 128, "num_warps": 2}, (3,)),
            ({"BLOCK": 128, "debug": True}, (3,)),
            ({"BLOCK": 128, "x": np.zeros(4)}, (3,)),
            ({"BLOCK": 128}, (1, 70_000)),
        ],
    )
    def test_other_arguments_are_a_miss(self, values, grid, cuda, by_triton):
        values = {"x": cuda.array(), "factor": 0.5, "n": 7, **values}
        with pytest.warns(FallbackWarning, match="so Triton compiles it"):
            package(cuda).scale[grid](**values)
        assert by_triton == [("scale", (), grid, False, values)]
        assert symbols(cuda) == []

    @pytest.mark.parametrize(
        ("block", "grid", "targets"),
        [(256, (3,), ("sm_90",)), (128, (3,), ("sm_100",)), (128, (-1,), ("sm_90",)), (128, (1, 70_000), ("sm_90",))],
        ids=["no variant", "no image", "no grid", "beyond the GPU"],
    )
    def test_a_grid_function_is_called_once_for_a_miss(self, block, grid, targets, cuda, by_triton):
        ops, x, calls = package(cuda, targets=targets), cuda.array(), []
        with pytest.warns(FallbackWarning, match="so Triton compiles it"):
            ops.scale[lambda meta: calls.append(dict(meta)) or grid](x, 0.5, 7, block)
        assert calls == [{"x": x, "factor": 0.5, "n": 7, "BLOCK": block, "ACT": None}]
        assert by_triton == [("scale", (x, 0.5, 7, block), grid, False, {})]

    def test_a_kernel_without_variants_is_compiled_by_triton(self, cuda, by_triton):
        ops = package(cuda)
        with pytest.warns(FallbackWarning, match=r"mypkg\.ops\.absent \(line \d+\) is in no image") as warned:
            ops.absent[(1,)](cuda.array(), 1)
            ops.absent[(1,)](cuda.array(), 1)
        assert len(warned) == 1
        assert len(by_triton) == 2

    def test_misses_are_errors_without_the_fallback(self, cuda, by_triton, monkeypatch):
        ops = package(cuda, fallback="error")
        for _ in range(4):
            with pytest.raises(
                ArgumentError, match=r"ops\.scale .*BLOCK is 256 .*nothing may be compiled here, and `a"
            ):
                ops.scale[(1,)](cuda.array(), 0.5, 7, BLOCK=256)
        with pytest.raises(NoImageError, match=r"mypkg\.ops\.absent"):
            ops.absent[(1,)](cuda.array(), 1)
        monkeypatch.setenv("AOTCUDA_FALLBACK", "jit")
        with pytest.warns(FallbackWarning):
            ops.absent[(1,)](cuda.array(), 1)
        assert len(by_triton) == 1

    @pytest.mark.parametrize("editable", [False, True])
    def test_triton_compiles_an_edited_source(self, editable, cuda, by_triton, monkeypatch):
        write(cuda, editable=editable)
        path = cuda.packages / "mypkg/ops.py"
        path.write_text(SOURCE.replace("helper(tl", "(tl"))
        ops = importlib.import_module("mypkg.ops")
        with pytest.warns(FallbackWarning, match=r"ops\.py") as warned:
            ops.scale[(1,)](cuda.array(), 0.5, 7, BLOCK=128)
            ops.scale[(1,)](cuda.array(), 0.5, 7, BLOCK=128)
        assert len(warned) == 1
        assert len(by_triton) == 2
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        with pytest.raises(StaleBuildError):
            ops.first[(1,)](cuda.array(), 16)

    @pytest.mark.parametrize("why", ["hook", "pre-run hook", "debug", "instrumented", "source", "grid"])
    def test_triton_makes_launches_that_packaged_kernels_cannot(self, why, cuda, by_triton, monkeypatch):
        ops, x = package(cuda), cuda.array()
        knobs = triton.knobs.runtime
        if why == "hook":
            monkeypatch.setattr(knobs.launch_enter_hook, "calls", [print])
        elif why == "pre-run hook":
            ops.scale.add_pre_run_hook(print)
        elif why == "debug":
            monkeypatch.setattr(knobs, "debug", True)
        elif why == "instrumented":
            monkeypatch.setenv("TRITON_ENABLE_ASAN", "1")
        elif why == "source":
            ops.scale._unsafe_update_src("def scale():\n    pass\n")
        ops.scale[(1.5,) if why == "grid" else (1,)](x, 0.5, 7, 128)
        assert [call[0] for call in by_triton] == ["scale"]
        assert symbols(cuda) == []

    def test_triton_raises_the_error_of_a_missing_driver(self, cuda, by_triton, monkeypatch):
        monkeypatch.setattr(driver, "LIBRARY", "libnone.so")
        package(cuda).scale[(1,)](object(), 0.5, 7, 128)
        assert len(by_triton) == 1


INSTALL = "pip install 'aotcuda[triton]'"
NEEDS = f"compiling it here needs Triton: {INSTALL}, and `aotcuda record --write` adds what a run launches"
NO_TRITON = (
    in_place.without("triton")
    + """
import importlib
import warnings

warnings.simplefilter("error")

class Array:
    @property
    def __cuda_array_interface__(self):
        return dict(version=3, data=(ADDRESS, False), shape=(8,), typestr="<f4", strides=None, stream=None)

def launch(what):
    try:
        what()
    except Exception as error:
        print(type(error).__name__, str(error).partition("; in the")[0], "pip install" in str(error))

import mypkg.ops as ops
x = Array()
"""
)


def test_without_triton_packaged_kernels_are_launched(cuda):
    table = {"keys": ["n"], "gpus": {"A": {"capability": "9.0", "default": 0, "choices": [[[32], 1]]}}}
    configs = {
        "tuned": [{"kwargs": {"BLOCK": 64}}, {"kwargs": {"BLOCK": 128}, "num_warps": 8}],
        "typed": [{"kwargs": {"DT": {"dtype": name}}} for name in ("float16", "float32")],
    }
    write(cuda, tuning={name: {**table, "configs": each} for name, each in configs.items()})
    line = SOURCE[: SOURCE.index("def absent")].count("\n")
    code = """
for _ in range(3):
    ops.scale[(3,)](x, 0.5, 7, 128)
    ops.norm[lambda meta: (ops.triton.cdiv(meta["n"], 8),)](x, None, 16)
    ops.sized[(3,)](x, None, n=16)
    ops.first.run(x, 16, grid=(1,), warmup=False)
    ops.tuned[(1,)](x, 16)
    ops.typed[(1,)](x, 16)
print(ops.scale.__doc__, ops.triton.next_power_of_2(9), ops.tl.float16.name, "triton" in sys.modules)
launch(lambda: ops.scale[(3,)](x, 0.5, 7, 256))
launch(lambda: ops.absent[(3,)](x, 1))
launch(lambda: ops.scale.warmup(x, 0.5, 7, 256, grid=(1,)))
variant = ops.scale.warmup(x, 0.5, 7, 128, grid=(1,))
print(variant.name, variant.metadata.num_warps, variant.n_regs, [ops.tuned.warmup(x, 16, grid=(1,))[0].name])
variant[(2, 1, 1)](x, 0.5, 7, 128, None)
launch(lambda: ops.triton.testing)
"""
    output = cuda.run(NO_TRITON.replace("ADDRESS", str(cuda.allocate(1024))) + code)
    assert output.splitlines() == [
        "Scales. 16 fp16 False",
        "MissingVariantError mypkg.ops.scale has no packaged variant for these arguments True",
        f"NoImageError mypkg.ops.absent (line {line}) is in no image that was packaged; {NEEDS} True",
        "MissingVariantError mypkg.ops.scale has no packaged variant for these arguments True",
        "scale__0 1 16 ['tuned__1']",
        f"AttributeError module 'triton' has no attribute 'testing' where Triton is not installed: {INSTALL} True",
    ]
    assert symbols(cuda) == ["scale__0", "norm__0", "sized__0", "first__0", "tuned__1", "typed__1"] * 3 + ["scale__0"]


def test_an_unbuilt_source_without_triton_says_what_to_install(cuda):
    write(cuda)
    (cuda.packages / "mypkg/ops.aotcuda/in-place").unlink()
    code = NO_TRITON.replace("import mypkg.ops as ops", "launch(lambda: importlib.import_module('mypkg.ops'))")
    output = cuda.run(code.replace("ADDRESS", "0"))
    assert output == f"ModuleNotFoundError mypkg.ops imports aotcuda.triton, which needs Triton: {INSTALL} True\n"
