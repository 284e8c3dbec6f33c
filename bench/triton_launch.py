"""Packaged Triton kernels beside Triton's own launches: host time of a launch, GPU time, first result in a process.

Both launch the same source (`tests/packages/tritonkernels`) in turns, in batches that the driver's queue can hold, by
calls that are written out, as programs have them, with the grid in brackets before. GPU times are those of a batch that
is long enough for launches not to matter, by either way in turn; the ratio is the median of the pairs'. C launches
Numba's axpy, a scalar and three arrays, as a measure of what a launch takes there.

    python bench/prepare.py /tmp/bench
    python -m build --wheel tests/packages/tritonkernels --outdir /tmp/bench && pip install /tmp/bench/*.whl
    python bench/triton_launch.py                     # on a machine with a GPU, Triton and PyTorch
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine
import peers

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 256  # the queue of a stream holds about a thousand
_LIMIT = 1.0  # of GPU time, ours over Triton's
_NOISE = 0.02
_OVER_C = 1.0  # microseconds of host time

_FIRST = """
import time; start = time.perf_counter()
import torch
x = torch.ones(4096, device="cuda"); torch.cuda.synchronize(); ready = time.perf_counter()
{launch}
torch.cuda.synchronize(); print(time.perf_counter() - ready)
"""
_FIRSTS = {
    "aotcuda": "import tritonkernels.kernels as k; k.add[(32,)](x, x, x, 4096, BLOCK=128)",
    "Triton, warm cache": "import tritonkernels._kernels as k; k.add[(32,)](x, x, x, 4096, BLOCK=128)",
}


def main() -> int:
    parser = machine.parser(__doc__, "triton_launch")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    here = machine.describe()
    synchronize = machine.synchronize()
    import torch  # type: ignore[import-not-found]
    import triton

    cases = _cases(torch)
    with tempfile.TemporaryDirectory() as folder:
        host, over_c = _host_times(cases, synchronize, arguments.turns, Path(folder))
    single = {name: {way: partial(batch, 1) for way, batch in ways.items()} for name, ways in cases.items()}
    gpu = {name: machine.gpu_times(torch, ways, _BATCH) for name, ways in single.items()}
    first = {way: median(_first(launch) for _ in range(5)) for way, launch in _FIRSTS.items()}
    print(f"C: {host['C']['C']:.2f} us a launch")
    machine.table(
        ("kernel", "over C, us", "Triton's over C, us", "GPU, us", "Triton's GPU, us", "ratio"),
        [(name, *over_c[name].values(), *gpu[name].values()) for name in cases],
    )
    print({way: f"first result after {seconds:.3f} s" for way, seconds in first.items()})
    met = {
        f"{name}: GPU time at most {_LIMIT} of Triton's": found["ratio"] <= _LIMIT + _NOISE
        for name, found in gpu.items()
    }
    met |= {
        f"{name}: a launch at most {_OVER_C} us over C": found["aotcuda"] <= _OVER_C for name, found in over_c.items()
    }
    machine.verdicts(met, {})
    machine.write(
        arguments.out,
        here,
        triton=triton.__version__,
        host_microseconds=host,
        over_c_microseconds=over_c,
        gpu_microseconds=gpu,
        first_result_seconds=first,
        measures=met,
    )
    return 0 if all(met.values()) else 1


def _cases(torch: Any) -> dict[str, dict[str, peers.Batch]]:
    """By kernel, launches by each way."""
    from tritonkernels import _kernels, _tensor_cores, kernels, tensor_cores  # type: ignore[import-not-found]

    n, size = 1 << 24, 4096
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    small = [tensor[:4096] for tensor in (x, y, out)]
    rows = torch.randn(8192, 768, device="cuda")
    result = torch.empty_like(rows)
    a, b, c = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3))
    q, k, v, o = (torch.randn(64, 2048, 64, device="cuda", dtype=torch.float16) for _ in range(4))
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    parts = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64}
    strides = (size, 1, size, 1, size, 1)

    def both(packaged: Any, jit: Any, grid: tuple[int, ...], *args: object, warps: int = 4, **constants: int) -> Any:
        values = {f"a{at}": arg for at, arg in enumerate(args)}
        given = ", ".join([*values, *(f"{name}={value}" for name, value in constants.items())])
        return {
            "aotcuda": peers.loop(f"f({given})", f=packaged[grid], **values),
            "Triton": peers.loop(f"f({given}, num_warps={warps})", f=jit[grid], **values),
        }

    return {
        "add, small": both(kernels.add, _kernels.add, (32,), *small, 4096, BLOCK=128),
        "add": both(kernels.add, _kernels.add, (n // 1024,), x, y, out, n, BLOCK=1024),
        "softmax": both(kernels.softmax, _kernels.softmax, (8192,), result, rows, 768, 768, 768, warps=8, BLOCK=1024),
        "matmul": both(
            tensor_cores.matmul, _tensor_cores.matmul, (32, 32), a, b, c, size, size, size, *strides, warps=8, **blocks
        ),
        "attention": both(tensor_cores.attention, _tensor_cores.attention, (32, 64), q, k, v, o, 0.125, 2048, **parts),
    }


def _host_times(
    cases: dict[str, dict[str, peers.Batch]],
    synchronize: Callable[[], object],
    turns: int,
    folder: Path,
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Microseconds of host time for a launch: the medians, and those of the differences to C in the same turn."""
    import benchkernels.kernels  # type: ignore[import-not-found]

    case = peers.Case(benchkernels.kernels, "axpy", 3, folder)
    _, by_c = next(peers.c_batches(case, case.torch()))
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(turns):
        synchronize()
        by_c(1)
        synchronize()
        found.setdefault(("C", "C"), []).append(by_c(_BATCH) / _BATCH * 1e6)
        for name, ways in cases.items():
            for way, batch in ways.items():
                batch(1)
                synchronize()
                found.setdefault((name, way), []).append(batch(_BATCH) / _BATCH * 1e6)
    in_c = found["C", "C"]
    times: dict[str, dict[str, float]] = {}
    differences: dict[str, dict[str, float]] = {}
    for (name, way), values in found.items():
        times.setdefault(name, {})[way] = median(values)
        if name in cases:
            pairs = (value - base for value, base in zip(values, in_c, strict=True))
            differences.setdefault(name, {})[way] = median(pairs)
    return times, differences


def _first(launch: str) -> float:
    """Seconds from PyTorch being ready to the first result, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _FIRST.format(launch=launch)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
