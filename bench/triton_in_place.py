"""Measure launches of Triton kernels that are packaged in place, over the stand-in driver; no GPU is needed.

Ten arguments, of which three are tensors and three constexprs. A row is the processor time of a launch over that of a
prepared call by ctypes, the least of many batches in turn. Compare figures of one run only. Triton's own launch is left
out of the last row, that of a variant that is not packaged.

    python bench/triton_in_place.py                      # this checkout
    python bench/triton_in_place.py --beside OLDER       # and the package of another one, in processes by turns
    python bench/triton_in_place.py --profile tuned      # where the time of a row goes
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import general_path
import machine

ROOT = Path(__file__).resolve().parents[1]

_SOURCE = """
from aotcuda.triton import triton, tl
from triton.runtime.autotuner import Autotuner


class Cached(Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)


def cached(configs, key):
    return lambda fn: Cached(fn, fn.arg_names, configs, key, None, None)


BLOCKS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (64, 128)]
NONE = {"HAS_BIAS": lambda args: args["bias"] is not None}
SIZES = {**NONE, "BLOCK": lambda args: 128 if args["n"] > 64 else 64, "EVEN": lambda args: args["n"] % 64 == 0}


def body(x, y, out, bias, n, m, scale, BLOCK: tl.constexpr, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr):
    pass


def tiles(x, y, n):
    pass


described = triton.jit(tiles)
plain = triton.jit(body)
none = triton.heuristics(NONE)(triton.jit(body))
sizes = triton.heuristics(SIZES)(triton.jit(body))
tuned = triton.autotune(BLOCKS, key=["n", "m"])(triton.jit(body))
both = triton.heuristics(NONE)(triton.autotune(BLOCKS, key=["n", "m"])(triton.jit(body)))
own = triton.heuristics({**NONE, "EVEN": SIZES["EVEN"]})(cached(BLOCKS, key=["n", "m"])(triton.jit(body)))
"""
_CALLS = {
    "plain": "k.plain[g](x, y, x, None, 512, 7, 0.5, 128, True, False)",
    "plain, function": "k.plain[f](x, y, x, None, 512, 7, 0.5, 128, True, False)",
    "none": "k.none[g](x, y, x, None, 512, 7, 0.5, 128, EVEN=True)",
    "sizes": "k.sizes[g](x, y, x, None, 512, 7, 0.5)",
    "sizes, function": "k.sizes[f](x, y, x, None, 512, 7, 0.5)",
    "tuned": "k.tuned[g](x, y, x, None, 512, 7, 0.5, EVEN=True, HAS_BIAS=False)",
    "tuned, function": "k.tuned[f](x, y, x, None, 512, 7, 0.5, EVEN=True, HAS_BIAS=False)",
    "none, tuned": "k.both[g](x, y, x, None, 512, 7, 0.5, EVEN=True)",
    "sizes, own tuned": "k.own[f](x, y, x, None, 512, 7, 0.5)",
    "two descriptors": "k.described[g](d, d, 512)",
    "missed": "k.plain[g](x, y, x, None, 512, 7, 0.5, 256, True, False)",
}

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    arguments = general_path.arguments_of(__doc__, "triton_in_place")
    if general_path.in_this_process(arguments, _cases):
        return 0
    figures = general_path.by_turns(__file__, arguments)
    if arguments.beside:
        machine.write(arguments.out, machine.describe(), unit=general_path.UNIT, figures=figures)
    return 0


def _cases(folder: Path) -> dict[str, Callable[[], object]]:
    """Return launches by row, and a prepared call of the driver."""
    import triton

    from aotcuda.integrations.in_place.triton import without_triton
    from support import triton_in_place

    triton.runtime.jit.JITFunction.run = lambda *_args, grid, warmup, **_named: None  # noqa: ARG005 (its names)
    warnings.simplefilter("ignore")
    _, prepared = general_path.stand_in(folder)
    cases: dict[str, Callable[[], object]] = {"ctypes": prepared}
    triton_in_place.write(folder, _SOURCE, *_records(), name="placed", tuning=_tables())
    k = importlib.import_module("placed")
    general_path.install()
    compiler = sys.modules["torch"].compiler = types.SimpleNamespace()  # type: ignore[attr-defined]
    compiler.is_compiling = lambda: bool(compiler.is_scripting())
    compiler.is_scripting = lambda: False
    x, y = (general_path.Tensor(0x7F0000001000 + at * 0x1000) for at in range(2))
    described = without_triton.TensorDescriptor(x, [64, 128], [128, 1], [32, 64])
    values = {"k": k, "x": x, "y": y, "d": described, "g": (4,), "f": lambda meta: (meta["n"] // meta["BLOCK"],)}
    os.environ["FAKE_CUDA_SIZES"] = "128 4 4 8 8 32 128 4 4 8 8 8 8 8"  # of the parameters that are passed one by one
    for name, call in _CALLS.items():
        cases[name] = eval(f"lambda: {call}", values)
        for _ in range(4):
            if cases[name]() is not None:
                sys.exit(f"{name}: not a packaged launch")
    return cases


def _records() -> list[dict[str, Any]]:
    from support.triton_in_place import record

    names = ("x", "y", "out", "bias", "n", "m", "scale", "BLOCK", "EVEN", "HAS_BIAS")
    arguments = [{"name": name} for name in names]
    asks = [*arguments[:-1], {"name": "HAS_BIAS", "is_not_none": "bias"}]
    given = dict.fromkeys(("x", "y", "out"), "*fp32:16") | {"n": "i32:16", "m": "i32", "scale": "fp32"}
    variants = [{**given, "bias": None, "BLOCK": block, "EVEN": True, "HAS_BIAS": False} for block in (64, 128)]
    found = []
    for name in ("plain", "none", "sizes", "tuned", "both", "own"):
        made = record(name, json.loads(json.dumps(arguments if name in ("plain", "tuned") else asks)), *variants)
        found.append(made | {"function": "body"})
    tile = "tensordesc<fp32[32, 64]>"
    made = record("described", [{"name": name} for name in "xyn"], {"x": tile, "y": tile, "n": "i32:16"})
    return [*found, made | {"function": "tiles"}]


def _tables() -> dict[str, Any]:
    configs = [{"kwargs": {"BLOCK": block}, "num_warps": 4} for block in (64, 128)]
    gpus = {"Stand-in A": {"capability": "9.0", "default": 1, "choices": []}}
    return {name: {"keys": ["n", "m"], "configs": configs, "gpus": gpus} for name in ("tuned", "both", "own")}


if __name__ == "__main__":
    os.environ.pop("AOTCUDA_BUILDING", None)
    sys.exit(main())
