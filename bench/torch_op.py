"""Compare a call of an operator by `aotcuda.torch.op` with an empty operator: microseconds of host time.

One number and three tensors of 1,000 elements, on the default stream. The empty operator has the same schema and is
registered in the same way. Eager calls are timed in a Python loop, compiled ones inside one function of
`torch.compile(fullgraph=True)` that makes many. Rounds take the ways in turn, with the GPU idle before each; figures
are medians.

    python -m build -nw bench/kernels -o /tmp/bench && pip install /tmp/bench/*.whl  # on any machine with aotcuda[cu13]
    python bench/torch_op.py                                               # on a machine with a GPU and PyTorch
"""

from __future__ import annotations

import gc
import importlib
import shutil
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_CALLS = 100
_LIMIT = 1.0
_SCHEMA = "(float a, Tensor x, Tensor y, Tensor(a3!) out) -> ()"


def main() -> int:
    parser = machine.parser(__doc__, "torch_op")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    here = machine.describe()
    import torch

    import aotcuda.torch

    axpy = importlib.import_module("benchkernels.kernels").axpy
    x, y, out = (torch.ones(1000, device="cuda") for _ in range(3))
    packaged = aotcuda.torch.op(axpy, grid=8, block=128, mutates=("out",), name="benchops::axpy")
    new = aotcuda.torch.op(axpy, grid=8, block=128, outputs={"out": "x"}, name="benchops::axpy_new")
    sized = aotcuda.torch.op(axpy, forall="out", mutates=("out",), name="benchops::axpy_forall")
    blocks = aotcuda.torch.op(axpy, forall="out", block=128, mutates=("out",), name="benchops::axpy_forall_block")
    library = torch.library.Library("benchops", "FRAGMENT")
    empty = _empty(library, "empty", _SCHEMA, lambda *_: None)
    allocating = _empty(
        library, "empty_new", "(float a, Tensor x, Tensor y) -> Tensor", lambda *args: torch.empty_like(args[1])
    )
    launcher = axpy[8, 128]
    ways: dict[str, Callable[[], None]] = {
        "launcher, no operator": _loop(launcher, (2.0, x, y, out)),
        "empty operator, eager": _loop(empty, (2.0, x, y, out)),
        "operator, eager": _loop(packaged, (2.0, x, y, out)),
        "operator with forall, eager": _loop(sized, (2.0, x, y, out)),
        "operator with forall and a block, eager": _loop(blocks, (2.0, x, y, out)),
        "empty operator that allocates, eager": _loop(allocating, (2.0, x, y)),
        "operator that allocates, eager": _loop(new, (2.0, x, y)),
    }
    missing: dict[str, str] = {}
    backend = "inductor" if shutil.which("gcc") or shutil.which("cc") else "aot_eager"
    for name, operator in {"empty operator": empty, "operator": packaged, "operator with forall": sized}.items():
        try:
            ways[f"{name}, compiled"] = _compiled(operator, (x, y, out), backend)
        except Exception as error:  # noqa: BLE001 (a fault of a compiler must not end the others)
            missing[f"{name}, compiled"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    figures = _measure(ways, arguments.rounds)
    rows = [(name, found["median"], found["min"]) for name, found in figures.items()]
    machine.table(("way", "us a call", "least"), rows)
    launch = figures["launcher, no operator"]["median"]
    met, added = {}, {}
    for kind, less in (("eager", "empty operator, eager"), ("compiled", "empty operator, compiled")):
        name = f"operator, {kind}"
        if name in figures and less in figures:
            over = figures[name]["median"] - figures[less]["median"]
            added[kind] = {"over the empty operator": round(over, 3), "of that the launch": launch}
            met[f"{kind}: at most {_LIMIT} us over an empty operator and a launch"] = over - launch <= _LIMIT
            print(f"{kind}: {over:.2f} us over the empty operator, of which {launch:.2f} us are the launch itself")
    return machine.report(
        arguments.out,
        here,
        met,
        missing,
        unit="microseconds of host time a call",
        calls=_CALLS,
        rounds=arguments.rounds,
        backend=backend,
        torch=torch.__version__,
        figures=figures,
        added=added,
    )


def _empty(library: torch.library.Library, name: str, schema: str, does: Callable[..., Any]) -> Any:
    """Return an operator that calls `does` alone."""
    import torch

    library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, does, "CUDA")
    torch.library.register_fake(f"benchops::{name}", does, lib=library)
    return getattr(torch.ops.benchops, name).default


def _loop(called: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_CALLS):
            called(*args)

    return run


def _compiled(operator: Any, args: tuple[Any, ...], backend: str) -> Callable[[], None]:
    """Return a compiled function that makes many calls."""
    import torch

    def many(x: Any, y: Any, out: Any) -> None:
        for _ in range(_CALLS):
            operator(2.0, x, y, out)

    function = torch.compile(many, fullgraph=True, backend=backend)
    return lambda: function(*args)


def _measure(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, dict[str, Any]]:
    synchronize = machine.synchronize()
    for run in ways.values():
        run()
        run()
    figures: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, run in ways.items():
            synchronize()
            begin = time.perf_counter()
            run()
            figures[name].append((time.perf_counter() - begin) / _CALLS * 1e6)
    gc.enable()
    synchronize()
    return {
        name: {"median": round(median(values), 3), "min": round(min(values), 3)} for name, values in figures.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
