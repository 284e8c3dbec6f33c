"""Compare a packaged kernel inside a JAX program with plain JAX: microseconds a step.

The kernel is `a * x + y`, over 1,000 elements and over 16 million. A program runs many of them in a chain. In plain JAX
each step stands behind `optimization_barrier`, so that XLA makes a kernel of each, and once without, where XLA may make
one kernel of all. "Recorded" launches may go into XLA's command buffers (CUDA graphs), as XLA's own kernels do. "Own
launches" are launches of the kernel without JAX.

    python -m build -nw bench/kernels -o /tmp/bench && pip install /tmp/bench/*.whl  # on any machine with aotcuda[cu13]
    python bench/jax_call.py                                               # on a machine with a GPU and jax[cuda13]
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = 100


def main() -> int:
    parser = machine.parser(__doc__, "jax_call")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    here = machine.describe()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    import aotcuda.jax

    axpy = importlib.import_module("benchkernels.kernels").axpy

    def packaged(x: Any, y: Any, *, recorded: bool = False) -> Any:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return aotcuda.jax.call(axpy, like, forall=x.size, block=256, command_buffer=recorded)(0.5, x, y)

    def plain(x: Any, y: Any) -> Any:
        return jax.lax.optimization_barrier(0.5 * x + y)

    recorded = partial(packaged, recorded=True)
    ways = {
        "packaged": packaged,
        "packaged, recorded": recorded,
        "plain JAX": plain,
        "plain JAX, fused": lambda x, y: 0.5 * x + y,
    }
    figures: dict[str, dict[str, Any]] = {}
    rows: list[tuple[object, ...]] = []
    for count in (1000, 1 << 24):
        x, y = jnp.ones(count, jnp.float32), jnp.ones(count, jnp.float32)
        programs = {name: _program(step) for name, step in ways.items()}
        expected = programs["plain JAX"](x, y)
        same = {name: bool(jnp.allclose(program(x, y), expected)) for name, program in programs.items()}
        found = _measure(programs, x, y, arguments.rounds)
        found["own launches"] = _own(axpy, count, arguments.rounds)
        figures[str(count)] = {name: {**each, "same_numbers": same.get(name, True)} for name, each in found.items()}
        rows += [(name, count, found[name]["median"], found[name]["min"], same.get(name, "-")) for name in found]
    machine.table(("way", "elements", "us a step", "least", "same numbers"), rows)
    large = figures[str(1 << 24)]
    met = {
        "the same numbers": all(each["same_numbers"] for found in figures.values() for each in found.values()),
        "16 million elements: at most 1.05 of the kernel's own launches": large["packaged"]["median"]
        <= 1.05 * large["own launches"]["median"],
        "16 million elements: at most 1.1 of plain JAX, a kernel each": large["packaged"]["median"]
        <= 1.1 * large["plain JAX"]["median"],
    }
    unit = "microseconds a step, the whole program and its end included"
    settings = {"unit": unit, "steps": _STEPS, "rounds": arguments.rounds, "jax": jax.__version__}
    return machine.report(arguments.out, here, met, **settings, figures=figures)


def _program(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    import jax

    def program(x: Any, y: Any) -> Any:
        for _ in range(_STEPS):
            x = step(x, y)
        return x

    compiled: Callable[[Any, Any], Any] = jax.jit(program)
    return compiled


def _own(kernel: Any, count: int, rounds: int) -> dict[str, Any]:
    """Measure the launches without JAX, on memory of the driver."""
    cuda = machine.driver()
    assert cuda is not None
    kernel.images.enter(kernel.images.ready(), ())

    def array() -> Any:
        address = ctypes.c_uint64()
        assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * count))
        interface = {"version": 3, "data": (address.value, False), "shape": (count,), "typestr": "<f4", "strides": None}
        return type("Array", (), {"__cuda_array_interface__": interface})()

    x, y, out = array(), array(), array()
    launch = kernel[-(-count // 256), 256]
    seconds = []
    for _ in range(rounds + 1):
        cuda.cuCtxSynchronize()
        begin = time.perf_counter()
        for step in range(_STEPS):
            launch(0.5, *((x, y, out) if step % 2 else (out, y, x)))
        cuda.cuCtxSynchronize()
        seconds.append((time.perf_counter() - begin) / _STEPS * 1e6)
    for each in (x, y, out):
        cuda.cuMemFree_v2(ctypes.c_uint64(each.__cuda_array_interface__["data"][0]))
    return {"median": round(median(seconds[1:]), 3), "min": round(min(seconds[1:]), 3)}


def _measure(programs: dict[str, Callable[[Any, Any], Any]], x: Any, y: Any, rounds: int) -> dict[str, dict[str, Any]]:
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        program(x, y).block_until_ready()
    for _ in range(rounds):
        for name, program in programs.items():
            begin = time.perf_counter()
            program(x, y).block_until_ready()
            seconds[name].append((time.perf_counter() - begin) / _STEPS * 1e6)
    return {
        name: {"median": round(median(values), 3), "min": round(min(values), 3)} for name, values in seconds.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
