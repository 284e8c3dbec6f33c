"""Heuristics and autotuners around packaged kernels behave as Triton's objects."""

from __future__ import annotations

import importlib
import warnings

import pytest

from aotcuda.errors import FallbackWarning
from aotcuda.runtime.jit import compile as jit_compile
from support import triton_in_place
from support.triton_in_place import record

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
pytestmark = pytest.mark.usefixtures("path")

SOURCE = """
from aotcuda.triton import triton, tl
from triton.runtime.autotuner import Autotuner

EVENTS = []

def seen(name, function):
    def called(args):
        EVENTS.append((name, dict(args)))
        return function(args)

    return called

class Cached(Autotuner):
    def run(self, *args, **kwargs):
        EVENTS.append(("run", sorted(kwargs)))
        return super().run(*args, **kwargs)

def hook(args):
    EVENTS.append(("hook", sorted(args)))

def broken(args):
    args.clear()
    return {}["lost"]

def body(x, bias, n, m, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass

kernel = triton.jit(body)
BLOCKS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 4), (128, 8))]
HOOKED = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (64, 128)]
SIZES = {
    "BLOCK": seen("BLOCK", lambda args: args.pop("n") * 4),
    "EVEN": seen("EVEN", lambda args: args["n"] % 16 == 0),
    "num_warps": seen("num_warps", lambda args: args["BLOCK"] // 16),
}
EVEN = {"EVEN": SIZES["EVEN"]}
sizes = triton.heuristics(SIZES)(triton.jit(body))
raising = triton.heuristics({"EVEN": broken})(triton.jit(body))
tuned = triton.autotune(BLOCKS, key=["n", "m"])(triton.jit(body))
hooked = triton.autotune(HOOKED, key=["n"])(triton.jit(body))
single = triton.autotune([triton.Config({"BLOCK": 64})], key=[])(triton.jit(body))
outer = triton.heuristics(EVEN)(triton.autotune(BLOCKS, key=["n"])(triton.jit(body)))
inner = triton.autotune(BLOCKS, key=["n"])(triton.heuristics(EVEN)(triton.jit(body)))
own = triton.heuristics(EVEN)(Cached(kernel, kernel.arg_names, BLOCKS, ["n"], None, None))
for tuner in (tuned, hooked, outer.fn, inner, own.fn):
    for key in ((16,), (16, 7), (16, "torch.float32"), (16, 7, "torch.float32")):
        tuner.cache[key] = tuner.configs[1]
"""
NAMES = ("kernel", "sizes", "raising", "tuned", "hooked", "single", "outer", "inner", "own")
CONSTANTS = [
    {"BLOCK": block, "EVEN": even, "num_warps": warps}
    for block, warps in ((64, 4), (128, 8), (128, 4))
    for even in (True, False)
]


def grid(meta):
    return (meta["BLOCK"] // 64,)


def other_configs(ops, x):
    config = triton.Config({"BLOCK": 64}, num_warps=4)
    ops.tuned.configs = [config]
    ops.tuned[(1,)](x, None, 16, 7, EVEN=True)


def changed_config(ops, x):
    ops.tuned[(1,)](x, None, 16, 7, EVEN=True)
    ops.BLOCKS[1].num_warps = 4
    ops.tuned[(1,)](x, None, 16, 7, EVEN=True)
    ops.BLOCKS[1].kwargs["BLOCK"] = 64
    ops.tuned[(1,)](x, None, 16, 7, EVEN=True)
    ops.BLOCKS[1].num_warps, ops.BLOCKS[1].kwargs["BLOCK"] = 8, 128


LAUNCHES = {
    "sizes": lambda ops, x: ops.sizes[(1,)](x, None, 32, 7),
    "sizes by name": lambda ops, x: ops.sizes[(1,)](m=7, n=16, x=x, bias=None),
    "sizes, run": lambda ops, x: ops.sizes.run(x, None, 32, m=7, grid=(1,), warmup=False),
    "sizes, function": lambda ops, x: ops.sizes[grid](x, None, 16, 7),
    "a heuristic replaces what is given": lambda ops, x: ops.sizes[(1,)](x, None, 16, 7, num_warps=1, EVEN=3),
    "by position and by a heuristic": lambda ops, x: ops.sizes[(1,)](x, None, 16, 7, 64),
    "raises": lambda ops, x: ops.raising[(1,)](x, None, 16, 7, BLOCK=64),
    "an argument is missing": lambda ops, x: ops.sizes[(1,)](x, None, m=7),
    "too many": lambda ops, x: ops.sizes[(1,)](x, None, 16, 7, 8, 9, 10),
    "grid twice": lambda ops, x: ops.sizes[(1,)](x, None, 16, 7, grid=(1,)),
    "not packaged": lambda ops, x: ops.sizes[(1,)](x, None, 48, 7),
    "tuned": lambda ops, x: ops.tuned[(1,)](x, None, 16, 7, EVEN=False),
    "tuned, keys by name": lambda ops, x: ops.tuned[(1,)](m=7, EVEN=False, n=16, bias=None, x=x),
    "tuned, function": lambda ops, x: ops.tuned[grid](x, None, 16, 7, EVEN=True),
    "a config and the launch": lambda ops, x: ops.tuned[(1,)](x, None, 16, 7, EVEN=True, num_warps=8),
    "a config and a position": lambda ops, x: ops.tuned[(1,)](x, None, 16, 7, 64, True),
    "hooked": lambda ops, x: ops.hooked[(1,)](x, None, 16, 7, EVEN=False),
    "single": lambda ops, x: ops.single[(1,)](x, None, 16, 7, EVEN=False),
    "heuristics around an autotuner": lambda ops, x: ops.outer[(1,)](x, None, 16, 7),
    "an autotuner around heuristics": lambda ops, x: ops.inner[(1,)](x, None, 16, 7),
    "run of a package's own": lambda ops, x: ops.own[(1,)](x, None, 16, m=7),
    "other configs": other_configs,
    "changed config": changed_config,
}


def events(ops, x, launch, launched):
    """Return the calls of functions, the launches, and the state of autotuners in four launches."""
    events_of_launches = []
    for _ in range(4):
        try:
            launch(ops, x)
        except (KeyError, TypeError) as error:
            events_of_launches.append(type(error))
        events_of_launches += [*ops.EVENTS, *launched]
        ops.EVENTS.clear()
        launched.clear()
        for tuner in (ops.tuned, ops.single, ops.outer.fn, ops.inner):
            events_of_launches.append((getattr(tuner, "nargs", None), str(getattr(tuner, "best_config", None))))
    return events_of_launches


@pytest.mark.parametrize("dtype", [None, "torch.float32"])
def test_launches_do_what_triton_does(dtype, cuda, monkeypatch):
    monkeypatch.setattr(jit_compile, "_warned", set())
    launched = []

    def run(self, *args, grid, warmup, **kwargs):
        named = {name: value for name, value in kwargs.items() if name in self.arg_names}
        bound = self.signature.bind(*args, **named).arguments
        launched.append({"BLOCK": bound["BLOCK"], "EVEN": bound["EVEN"], "num_warps": kwargs.get("num_warps", 4)})

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    names = ("x", "bias", "n", "m", "BLOCK", "EVEN")
    variants = [{"x": "*fp32:16", "bias": None, "n": "i32:16", "m": "i32", **each} for each in CONSTANTS]
    records = [record(name, [{"name": each} for each in names], *variants) | {"function": "body"} for name in NAMES]
    triton_in_place.write(cuda.packages, SOURCE, *records)
    unbuilt = SOURCE.replace("aotcuda.triton import triton, tl", "triton import language as tl\nimport triton")
    (cuda.packages / "mypkg/unbuilt.py").write_text(unbuilt)
    x = cuda.array()
    if dtype is not None:
        x.dtype = dtype
    tritons, ops = (importlib.import_module(f"mypkg.{name}") for name in ("unbuilt", "ops"))
    compiled = []
    count = 0

    def packaged(launch):
        def launch_packaged(ops, x):
            nonlocal count
            try:
                launch(ops, x)
            finally:
                compiled.extend(launched)
                symbols = [call["kernel"] for call in cuda.launches()]
                launched.extend(CONSTANTS[int(symbol.rpartition("__")[2])] for symbol in symbols[count:])
                count = len(symbols)

        return launch_packaged

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for name, launch in LAUNCHES.items():
            expected = events(tritons, x, launch, launched)
            assert events(ops, x, packaged(launch), launched) == expected, name
    assert [each for each in compiled if each in CONSTANTS] == []
    assert count > 60
