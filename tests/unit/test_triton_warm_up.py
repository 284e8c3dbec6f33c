"""Warm-ups of packaged Triton kernels compile nothing, and return what Triton's own warm-ups return."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import textwrap
import warnings

import pytest

from aotcuda.errors import FallbackWarning, MissingVariantError
from aotcuda.integrations.in_place.triton import compiled
from aotcuda.runtime.jit import compile as jit_compile
from support import triton_in_place
from support.triton_in_place import record

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
from triton.runtime.jit import MockTensor  # noqa: E402 (after the check that Triton is installed)

pytestmark = pytest.mark.usefixtures("path")

SOURCE = """
from aotcuda.triton import triton, tl

@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr, DT: tl.constexpr = None):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0, "NONE": lambda args: args["x"] is None})
@triton.jit
def sized(x, n, EVEN: tl.constexpr, NONE: tl.constexpr):
    pass

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def both(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    pass

def typed(x, n, DT: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    pass

BLOCKS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)]
EVENS = {"EVEN": lambda args: args["n"] % 2 == 0}
inside = triton.autotune(BLOCKS, key=["n", "DT"])(triton.heuristics(EVENS)(triton.jit(typed)))
around = triton.heuristics(EVENS)(triton.autotune(BLOCKS, key=["n", "DT"])(triton.jit(typed)))

@triton.jit
def absent(x, n):
    pass
"""
X, N = {"name": "x"}, {"name": "n"}
HALF, ALIGNED = {"x": "*fp16:16", "n": "i32:16"}, {"x": "*fp32:16", "n": "i32:16"}
CONSTANTS = [{"name": "BLOCK"}, {"name": "DT", "default": None}]
EVEN = {"name": "EVEN"}
RECORDS = [
    record(
        "scale",
        [X, {"name": "factor"}, N, *CONSTANTS],
        {**ALIGNED, "factor": "fp32", "BLOCK": 128},
        {**ALIGNED, "factor": "fp32", "n": "i32", "BLOCK": 128, "num_warps": 8},
        {**HALF, "factor": "fp32", "BLOCK": 128, "DT": "tl.float16"},
        {"x": "*bf16:16", "factor": "fp32", "n": 1, "BLOCK": 128},
        {"x": "*fp32", "factor": "fp32", "n": "i32", "BLOCK": 128},
        {**ALIGNED, "factor": "fp32", "BLOCK": 128, "DT": "torch.float16"},
    ),
    record("sized", [X, N, EVEN, {"name": "NONE", "is_none": "x"}], {**ALIGNED, "EVEN": True, "NONE": False}),
    record("tuned", [X, N, {"name": "BLOCK"}], {**ALIGNED, "BLOCK": 64}, {**ALIGNED, "BLOCK": 128, "num_warps": 8}),
    record(
        "both",
        [X, N, EVEN, {"name": "BLOCK"}],
        {**ALIGNED, "EVEN": True, "BLOCK": 64},
        {**ALIGNED, "EVEN": True, "BLOCK": 128, "num_warps": 8},
    ),
    *(
        record(
            name,
            [X, N, {"name": "DT"}, EVEN, {"name": "BLOCK"}],
            {**ALIGNED, "DT": "torch.float16", "EVEN": True, "BLOCK": 64},
            {**ALIGNED, "DT": "torch.float16", "EVEN": True, "BLOCK": 128, "num_warps": 8},
        )
        | {"function": "typed"}
        for name in ("inside", "around")
    ),
]
TABLE = {
    "keys": ["n"],
    "configs": [{"kwargs": {"BLOCK": 128}, "num_warps": 8, "num_stages": 3, "num_ctas": 1}],
    "gpus": {"A": {"capability": "9.0", "default": 0, "choices": []}},
}
BLOCKS = [{**TABLE["configs"][0], "kwargs": {"BLOCK": block}, "num_warps": block // 16} for block in (64, 128)]
CHOICE = [[16, "torch.float16", "torch.float32"], 1]
TYPED = {"keys": ["n", "DT"], "configs": BLOCKS, "gpus": {"A": {**TABLE["gpus"]["A"], "choices": [CHOICE]}}}


class Dtype:
    """A dtype of PyTorch."""

    __module__ = "torch"

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


Dtype.__name__ = Dtype.__qualname__ = "dtype"
FP32, FP16, BF16 = Dtype("float32"), Dtype("float16"), Dtype("bfloat16")


class Unaligned(MockTensor):
    """A stand-in of a package, for a tensor at an address that is not divisible by 16."""

    @staticmethod
    def data_ptr():
        return 8


@pytest.fixture
def ops(cuda, monkeypatch):
    """Return the packaged module; Triton's own compilations are errors."""
    monkeypatch.setattr(jit_compile, "_warned", set())

    def compile_nothing(self, *_args, **_named):
        raise AssertionError(self.__name__)

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "_do_compile", compile_nothing)
    records = json.loads(json.dumps(RECORDS))
    tuning = {"tuned": TABLE, "both": TABLE, "inside": TYPED, "around": TYPED}
    triton_in_place.write(cuda.packages, SOURCE, *records, tuning=tuning)
    return importlib.import_module("mypkg.ops")


WARM_UPS = {
    "tensor": ("scale__0", lambda ops, x: ops.scale.warmup(x, 0.5, 16, 128, grid=(1,))),
    "run": ("scale__0", lambda ops, x: ops.scale.run(x, 0.5, n=16, BLOCK=128, grid=(1,), warmup=True)),
    "dtype": ("scale__0", lambda ops, x: ops.scale.warmup(FP32, 0.5, 16, 128, grid=(1,))),
    "dtype by name": ("scale__0", lambda ops, x: ops.scale.warmup(x=FP32, factor=0.5, n=16, BLOCK=128, grid=(1,))),
    "mock": ("scale__1", lambda ops, x: ops.scale.warmup(MockTensor(FP32), 1.0, 7, 128, num_warps=8, grid=(1,))),
    "half": ("scale__2", lambda ops, x: ops.scale.warmup(FP16, 0.5, 16, 128, DT=ops.tl.float16, grid=(1,))),
    "bfloat16": ("scale__3", lambda ops, x: ops.scale.warmup(MockTensor(BF16, (4, 4)), 0.5, 1, 128, grid=(1,))),
    "unaligned": ("scale__4", lambda ops, x: ops.scale.warmup(Unaligned(FP32), 0.5, 7, 128, grid=(1,))),
    "constant": ("scale__5", lambda ops, x: ops.scale.run(x, 0.5, 16, 128, FP16, grid=(1,), warmup=True)),
    "constant of warmup": ("scale__5", lambda ops, x: ops.scale.warmup(x, 0.5, 16, 128, FP16, grid=(1,))),
    "constant by name": ("scale__5", lambda ops, x: ops.scale.run(FP32, 0.5, 16, 128, DT=FP16, grid=(1,), warmup=True)),
    "heuristics": ("sized__0", lambda ops, x: ops.sized.warmup(FP32, 16, grid=(1,))),
    "heuristics, run": ("sized__0", lambda ops, x: ops.sized.run(x, 16, grid=(1,), warmup=True)),
    "autotuner": ("tuned__1", lambda ops, x: ops.tuned.warmup(FP32, 16, grid=(1,))[0]),
    "autotuner, run": ("tuned__1", lambda ops, x: ops.tuned.run(x, 16, grid=(1,), warmup=True)),
    "both": ("both__1", lambda ops, x: ops.both.run(MockTensor(FP32), n=16, grid=(1,), warmup=True)),
}


@pytest.mark.parametrize("way", WARM_UPS)
def test_warm_up_returns_the_packaged_variant(way, ops, cuda):
    symbol, warm_up = WARM_UPS[way]
    variant = warm_up(ops, cuda.array())
    assert variant.name == symbol
    assert isinstance(variant, triton.compiler.CompiledKernel)
    assert variant.n_regs == 16
    assert cuda.launches() == []


@pytest.mark.parametrize("name", ["inside", "around"])
def test_warm_ups_of_autotuners_take_the_config_that_a_launch_takes(name, ops, cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_TUNING", "exact")  # a config of another key warms up all configs
    tensor = cuda.array()
    tensor.dtype = FP32
    kernel, found = getattr(ops, name), {}
    for x in (tensor, FP32, MockTensor(FP32)):
        for dt in (FP16, MockTensor(FP16)):
            for args, named in (((x, 16, dt), {}), ((x,), {"n": 16, "DT": dt}), ((), {"DT": dt, "n": 16, "x": x})):
                calls = {"warmup": lambda: kernel.warmup(*args, **named, grid=(1,))}  # noqa: B023 (called here)
                calls["run"] = lambda: kernel.run(*args, **named, grid=(1,), warmup=True)  # noqa: B023 (as above)
                for way, call in calls.items():
                    (kernel if name == "inside" else kernel.fn).cache.clear()
                    variants = call()
                    variants = variants if isinstance(variants, list) else [variants]
                    found[way, type(x).__name__, type(dt).__name__, len(args)] = [each.name for each in variants]
    assert found == {key: [f"{name}__1"] for key in found}


RUNS = {
    "scale__0": (lambda ops, x: ops.scale.run(x, 0.5, n=16, BLOCK=128, grid=(2,), warmup=False), (0.5, 16, 128, None)),
    "sized__0": (lambda ops, x: ops.sized.run(x, 16, grid=(2,), warmup=False), (16, True, False)),
    "tuned__1": (lambda ops, x: ops.tuned.run(x, 16, grid=(2,), warmup=False), (16, 128)),
    "both__1": (lambda ops, x: ops.both.run(x, n=16, grid=lambda _: (2,), warmup=False), (16, True, 128)),
}


@pytest.mark.parametrize("symbol", RUNS)
def test_run_returns_the_variant_that_it_has_launched(symbol, ops, cuda):
    launch, others = RUNS[symbol]
    x = cuda.array()
    for _ in range(3):  # the fast path learns
        variant = launch(ops, x)
    assert isinstance(variant, triton.compiler.CompiledKernel)
    variant[(3, 1, 1)](x, *others, stream=0)  # as packages that keep the variant launch again
    assert [call["kernel"] for call in cuda.launches()] == [symbol] * 4
    assert [call["grid"][0] for call in cuda.launches()] == [2, 2, 2, 3]


def test_launches_by_brackets_return_none(ops, cuda):
    x = cuda.array()
    assert ops.scale[(1,)](x, 0.5, 16, 128) is None
    for kernel in (ops.sized, ops.tuned, ops.both):
        assert kernel[(1,)](x, 16) is None
    assert len(cuda.launches()) == 4


@pytest.mark.parametrize("way", ["tensor", "run", "heuristics"])
def test_warm_ups_are_no_launches(way, ops, cuda):
    symbol, warm_up = WARM_UPS[way]
    for _ in range(3):
        warm_up(ops, cuda.array())
    kernel = getattr(ops, symbol.partition("__")[0])
    assert (kernel if hasattr(kernel, "served") else kernel.fn).served == (0, 0, 0)


def test_a_constexpr_may_be_an_object_of_triton(ops, cuda):
    x, constexpr = cuda.array(), ops.tl.constexpr
    ops.scale[(1,)](x, 0.5, 16, constexpr(128))
    ops.scale[(1,)](x, 0.5, n=7, BLOCK=constexpr(128), DT=constexpr(None), num_warps=8)
    assert ops.scale.warmup(FP16, 0.5, 16, constexpr(128), DT=constexpr(ops.tl.float16), grid=(1,)).name == "scale__2"
    assert [call["kernel"] for call in cuda.launches()] == ["scale__0", "scale__1"]


def public_attributes(kind):
    """Return the public attributes of a class: its methods, and what its methods set."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    functions = {node.name for node in tree.body[0].body if isinstance(node, ast.FunctionDef)}
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return {name for name in functions | assigned if not name.startswith("_")} | {"_init_handles", "__getitem__"}


def test_variants_have_every_public_attribute_of_tritons_class(ops, cuda):
    variant = ops.scale.warmup(cuda.array(), 0.5, 16, 128, grid=(1,))
    names = public_attributes(triton.compiler.CompiledKernel)
    assert {"metadata", "asm", "n_regs", "n_spills", "n_max_threads", "name", "src", "hash", "function"} <= names
    assert {"module", "kernel", "packed_metadata", "run", "launch_metadata"} <= names
    assert {name for name in names if getattr(variant, name, None) is None} == set()


def test_values_are_those_that_triton_would_have(ops, cuda):
    variant = ops.scale.warmup(cuda.array(), 0.5, 16, 128, DT=None, grid=(1,))
    source = triton.compiler.ASTSource(
        ops.scale,
        {"x": "*fp32", "factor": "fp32", "n": "i32", "BLOCK": "constexpr", "DT": "constexpr"},
        {(3,): 128, (4,): None},
        {(0,): [["tt.divisibility", 16]], (1,): [], (2,): [["tt.divisibility", 16]]},
    )
    assert (variant.src.signature, variant.src.constants, variant.src.attrs) == (
        source.signature,
        source.constants,
        source.attrs,
    )
    backend = triton.compiler.make_backend(triton.backends.compiler.GPUTarget("cuda", 90, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton warns of its own defaults
        options = vars(backend.parse_options({"num_warps": 4}))
    metadata = variant.metadata._asdict()
    assert {name: metadata[name] for name in options} == {**options, "num_warps": 1}  # the record has 32 threads
    assert metadata["target"].arch == 90
    assert metadata["shared"] == 512
    assert variant.packed_metadata == backend.pack_metadata(variant.metadata)
    assert variant.asm["cubin"] == variant.kernel


def test_a_variant_launches_as_triton_calls_it(ops, cuda):
    x = cuda.array()
    variant = ops.scale.warmup(x, 0.5, 16, 128, grid=(1,))
    variant[(3, 2, 1)](x, 0.5, 16, 128, None, stream=7)
    calls = []
    metadata = variant.launch_metadata((1, 1, 1), 0, x, 0.5, 16, 128, None)
    arguments = (0, variant.function, variant.packed_metadata, metadata, calls.append, calls.append)
    variant.run(1, 1, 1, *arguments, x, 0.5, 16, 128, None)
    assert [(call["kernel"], call["grid"], call["stream"]) for call in cuda.launches()] == [
        ("scale__0", [3, 2, 1], 7),
        ("scale__0", [1, 1, 1], 0),
    ]
    assert len(calls) == 2


def test_an_array_for_a_constexpr_goes_to_triton(ops, cuda, monkeypatch):
    monkeypatch.setattr(ops.scale, "run_by_triton", lambda grid, args, named: "by Triton", raising=False)
    with pytest.warns(FallbackWarning, match="so Triton compiles it"):
        assert ops.scale[(1,)](cuda.array(), 0.5, 16, cuda.array()) == "by Triton"


@pytest.mark.parametrize("kernel", ["scale", "absent"])
def test_what_is_not_packaged_goes_to_triton(kernel, ops, cuda, monkeypatch):
    args = (cuda.array(), 0.5, 16, 64) if kernel == "scale" else (cuda.array(), 16)
    with (
        pytest.warns(FallbackWarning, match="so Triton compiles it"),
        pytest.raises(AssertionError, match=kernel),
        monkeypatch.context() as patch,
    ):
        patch.setattr(triton.runtime.jit.JITFunction, "run", lambda self, *a, **k: self._do_compile())
        getattr(ops, kernel).warmup(*args, grid=(1,))
    monkeypatch.setattr(jit_compile, "_warned", set())
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    if kernel == "scale":
        ops.scale.packaged().has_warned = False
        with pytest.raises(MissingVariantError, match="nothing may be compiled here"):
            ops.scale.warmup(*args, grid=(1,))


def described(number, ops, **changes):
    """Return the JSON by which Triton's JIT describes a variant of `scale` to `preload`."""
    parameters = RECORDS[0]["overloads"][number]["parameters"][:5]
    constants = {at: each["value"] for at, each in enumerate(parameters) if each["kind"] == "constant"}
    plain = {at: each for at, each in enumerate(parameters) if each["kind"] != "constant"}
    options = {each["name"]: each["value"] for each in RECORDS[0]["overloads"][number]["parameters"][5:]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        fusing = triton.compiler.make_backend(triton.backends.compiler.GPUTarget("cuda", 90, 32)).parse_options({})
    return json.dumps(
        {
            "name": "mypkg.ops.scale",
            "signature": {
                name: plain[at]["type"].partition(":")[0] if at in plain else "constexpr"
                for at, name in enumerate(ops.scale.arg_names)
            },
            "constant_keys": [[at] for at in constants],
            "constant_vals": [
                value.replace("tl.float", "fp") if type(value) is str else value for value in constants.values()
            ],
            "attrs_keys": [[at] for at in plain],
            "attrs_vals": [[["tt.divisibility", 16]] if "divisor" in each else [] for each in plain.values()],
            "options": {**options, "enable_fp_fusion": fusing.enable_fp_fusion},
            "key": "k",
            "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
            **changes,
        }
    )


@pytest.mark.parametrize("number", range(5))
def test_preload_returns_the_packaged_variant(number, ops):
    assert ops.scale.preload(described(number, ops)).name == f"scale__{number}"


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "mypkg.ops.other"},
        {"constant_vals": [129, None]},
        {"constant_vals": [128.0, None]},
        {"attrs_vals": [[], [], [["tt.divisibility", 16]]]},
        {"target": {"backend": "cuda", "arch": 100, "warp_size": 32}},
        {"options": {"num_warps": 16}},
    ],
    ids=lambda changes: f"{changes}",
)
def test_preload_of_another_variant_goes_to_triton(changes, ops):
    assert compiled.preload(ops.scale, described(0, ops, **changes)) is None


def test_warm_up_of_an_autotuner_without_choices_takes_all_configs(ops, cuda, monkeypatch):
    monkeypatch.setattr(type(ops.tuned), "_choose", lambda *_: None, raising=False)
    monkeypatch.setenv("AOTCUDA_TUNING", "exact")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        variants = ops.tuned.warmup(cuda.array(), 16, grid=(1,))
    assert [variant.name for variant in variants] == ["tuned__0", "tuned__1"]
    assert ops.tuned.cache == {}
