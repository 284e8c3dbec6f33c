"""Compare packaged kernels with Numba's JIT of the same source and with CUDA C++: microseconds on the GPU.

The kernels are axpy, a tiled matrix product, a reduction and a stencil, over arrays that do not fit the caches. All
three forms get the same arrays, grids and blocks, run in turn, and must agree in their results. A figure is the median
over the turns of the time between two events with several launches between them.

    python bench/gpu_time.py               # needs a GPU, CuPy, numba-cuda and the wheel of bench/kernels, installed
"""

from __future__ import annotations

import importlib
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

_CUDA = r"""
extern "C" __global__ void axpy(float a, const float *x, const float *y, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a * x[i] + y[i];
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n)
{
    __shared__ float tile_a[16][16], tile_b[16][16];
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    int across = threadIdx.x, down = threadIdx.y;
    float total = 0;
    for (int tile = 0; tile < n / 16; tile++) {
        tile_a[down][across] = a[row * n + tile * 16 + across];
        tile_b[down][across] = b[(tile * 16 + down) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            total += tile_a[down][k] * tile_b[k][across];
        __syncthreads();
    }
    c[row * n + column] = total;
}

extern "C" __global__ void total(const float *x, float *out, int n)
{
    __shared__ float parts[256];
    int thread = threadIdx.x;
    float own = 0;
    for (int i = blockIdx.x * blockDim.x + thread; i < n; i += gridDim.x * blockDim.x)
        own += x[i];
    parts[thread] = own;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (thread < half)
            parts[thread] += parts[thread + half];
        __syncthreads();
    }
    if (thread == 0)
        atomicAdd(out, parts[0]);
}

extern "C" __global__ void stencil(const float *x, float *out, int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (0 < row && row < rows - 1 && 0 < column && column < columns - 1)
        out[row * columns + column] = 0.25f * (x[(row - 1) * columns + column] + x[(row + 1) * columns + column]
                                               + x[row * columns + column - 1] + x[row * columns + column + 1]);
}
"""

_LIMITS = {"numba-cuda": 1.00, "CUDA C++": 1.05}
_NOISE = 0.01  # the difference between two runs of one binary
_LAUNCHES = 10


def main() -> int:
    parser = machine.parser(__doc__, "gpu_time")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--scale", type=int, default=1, help="divides the arrays' extents")
    arguments = parser.parse_args()
    here = machine.describe()
    cupy: Any = importlib.import_module("cupy")
    kernels: Any = importlib.import_module("benchkernels.kernels")
    jit = _numba_kernels()
    compiler = "nvcc" if shutil.which("nvcc") else "nvrtc"
    cuda: Any = cupy.RawModule(code=_CUDA, backend=compiler, options=("-O3",) if compiler == "nvcc" else ())

    figures: dict[str, dict[str, Any]] = {}
    for name, (grid, block, ours, pointers, out) in cases(cupy, arguments.scale).items():
        ways: dict[str, Callable[[], object]] = {"packaged": call(getattr(kernels, name)[grid, block], ours)}
        if jit is not None:
            ways["numba-cuda"] = call(getattr(jit, name)[grid, block], _for_numba(ours))
        ways["CUDA C++"] = _call_raw(cuda.get_function(name), grid, block, pointers)
        agree(cupy, name, ways, out)
        figures[name] = measure(cupy, ways, arguments.turns)

    rows = []
    met = {}
    for name, item in figures.items():
        times = {way: found["median"] for way, found in item.items()}
        ratios = {way: times["packaged"] / times[way] for way in _LIMITS if way in times}
        rows.append((name, *(times.get(way, 0.0) for way in ("packaged", *_LIMITS)), *ratios.values()))
        for way, ratio in ratios.items():
            met[f"{name}: at most {_LIMITS[way]:.2f} times {way}"] = ratio <= _LIMITS[way] + _NOISE
    machine.table(("us", "packaged", *_LIMITS, *(f"over {way}" for way in _LIMITS)), rows)
    unit = "microseconds on the GPU"
    return machine.report(
        arguments.out, here, met, unit=unit, compiler=compiler, peers=machine.peers(), noise=_NOISE, figures=figures
    )


def cases(cupy: Any, scale: int) -> dict[str, tuple[Any, Any, tuple[Any, ...], tuple[Any, ...], Any]]:
    """Return for each kernel its grid, block, arguments in Python and in CUDA C++, and the array of the result."""
    line, side, sheet = 2**26 // scale, 2048 // scale, 8192 // scale
    x, y, out = (cupy.random.random(line, dtype="float32") for _ in range(3))
    a, b, c = (cupy.random.random((side, side), dtype="float32") for _ in range(3))
    u, v = (cupy.random.random((sheet, sheet), dtype="float32") for _ in range(2))
    added = cupy.zeros(1, "float32")
    two, n, m, s = cupy.float32(2), cupy.int32(line), cupy.int32(side), cupy.int32(sheet)
    grid = {"square": (side // 16, side // 16), "sheet": (sheet // 32, sheet // 8)}
    return {
        "axpy": (-(-line // 256), 256, (2.0, x, y, out), (two, x, y, out, n), out),
        "matmul": (grid["square"], (16, 16), (a, b, c), (a, b, c, m), c),
        "total": (1056, 256, (x, added), (x, added, n), added),
        "stencil": (grid["sheet"], (32, 8), (u, v), (u, v, s, s), v),
    }


def _numba_kernels() -> Any:
    """Return the packaged kernels' source, whose functions `@cuda.jit` compiles; None without numba-cuda."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            source = importlib.import_module("benchkernels._kernels")
            config = importlib.import_module("numba").config
        except ImportError:
            return None
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return source


def _for_numba(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with the types of the packaged signature; Numba types a Python float as float64."""
    float32 = importlib.import_module("numpy").float32
    return tuple([float32(value) if isinstance(value, float) else value for value in arguments])


def call(launcher: Callable[..., object], arguments: tuple[object, ...]) -> Callable[[], object]:
    return lambda: launcher(*arguments)


def _call_raw(function: Any, grid: Any, block: Any, arguments: tuple[object, ...]) -> Callable[[], object]:
    blocks, threads = (value if isinstance(value, tuple) else (value,) for value in (grid, block))
    return lambda: function(blocks, threads, arguments)


def agree(cupy: Any, name: str, ways: dict[str, Callable[[], object]], out: Any) -> None:
    """End the program if the results differ by more than rounding."""
    results = {}
    for way, launch in ways.items():
        out.fill(0)
        launch()
        results[way] = out.copy()
    first = next(iter(results))
    for way, result in results.items():
        if not cupy.allclose(result, results[first], rtol=1e-3):
            sys.exit(f"{name}: the result of {way} is not that of {first}")


def measure(cupy: Any, ways: dict[str, Callable[[], object]], turns: int) -> dict[str, Any]:
    """Return the microseconds of a launch by each way."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for turn in range(turns + 1):
        for way, launch in ways.items():
            launch()  # fills the queue, so that no launch is waited for when the clock starts
            begin.record()
            for _ in range(_LAUNCHES):
                launch()
            end.record()
            end.synchronize()
            if turn:
                times[way].append(cupy.cuda.get_elapsed_time(begin, end) / _LAUNCHES * 1e3)
    return {way: machine.summary(values) for way, values in times.items()}


if __name__ == "__main__":
    sys.exit(main())
