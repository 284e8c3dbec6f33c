"""Measure a packaged device function on a GPU: the time of a kernel that calls it, and the time to compile it.

Each is held against the same kernel without the package: with the function's expression written inline, and with a
plain Python helper. All kernels are numba-cuda's, linked with link-time optimisation.

    python bench/device_functions.py FOLDER      # FOLDER: where the wheel of tests/packages/devicefunctions is unpacked
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import machine

_RUN_TARGET, _COMPILE_TARGET = 1.01, 1.0
_ELEMENTS = 1 << 24

# `STEP` is what differs: a call of the packaged function, of a helper, or the expression itself.
_KERNEL = """
def kernel(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        value = x[i]
        for _ in range(REPEATS):
            value = STEP
        out[i] = value
"""
_STEPS = {"packaged": "packaged(value, a)", "helper": "helper(value, a)", "inline": "value * a"}


def main() -> int:
    parser = machine.parser(__doc__, "device_functions")
    parser.add_argument("folder", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--compilations", type=int, default=30)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.folder))
    here = machine.describe()

    run = {f"{repeats} calls": _run_times(repeats, arguments.runs) for repeats in (1, 64, 1024)}
    print("GPU time of a kernel, µs:\n")
    rows: list[tuple[object, ...]] = [
        (name, times["inline"], times["packaged"], times["packaged"] / times["inline"]) for name, times in run.items()
    ]
    machine.table(("kernel with", "inline", "packaged", "ratio"), rows)

    compiled = _compile_times(arguments.compilations)
    print("\ntime from @cuda.jit to the end of the first launch, ms:\n")
    machine.table(("kernel with", "median"), list(compiled.items()))

    ratios = {name: times["packaged"] / times["inline"] for name, times in run.items()}
    verdicts = {
        f"run: at most {_RUN_TARGET} times inline": max(ratios.values()) <= _RUN_TARGET,
        f"compile: at most {_COMPILE_TARGET} times a helper": (
            compiled["packaged"] / compiled["helper"] <= _COMPILE_TARGET
        ),
    }
    print()
    for text, verdict in verdicts.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    machine.write(
        arguments.out,
        here,
        run_us=run,
        run_ratio=ratios,
        compile_ms=compiled,
        compile_ratio=compiled["packaged"] / compiled["helper"],
        measures=verdicts,
    )
    return 0 if all(verdicts.values()) else 1


def _make(kind: str, repeats: int) -> Any:
    """Return a new kernel; Numba has not compiled it yet."""
    import devicefunctions.plain as k
    from numba import cuda

    @cuda.jit(device=True)
    def helper(x: Any, y: Any) -> Any:
        return x * y

    namespace = {"cuda": cuda, "packaged": k.times_f32, "helper": helper, "REPEATS": repeats}
    exec(_KERNEL.replace("STEP", _STEPS[kind]), namespace)  # source made above
    return cuda.jit(lto=True)(namespace["kernel"])


def _run_times(repeats: int, runs: int) -> dict[str, float]:
    """Return the median GPU time of a launch, the kernels in turn."""
    import cupy
    import numpy as np

    x, out = cupy.ones(_ELEMENTS, "float32"), cupy.empty(_ELEMENTS, "float32")
    factor = np.float32(1.0000001)
    from numba import cuda

    given, taken = cuda.as_cuda_array(x), cuda.as_cuda_array(out)
    kernels = {kind: _make(kind, repeats)[(_ELEMENTS + 255) // 256, 256] for kind in ("inline", "packaged")}
    found: dict[str, list[float]] = {kind: [] for kind in kernels}
    for number in range(runs + 10):
        for kind, kernel in kernels.items():
            start, end = cuda.event(), cuda.event()
            start.record()
            kernel(given, factor, taken)
            end.record()
            end.synchronize()
            if number >= 10:
                found[kind].append(start.elapsed_time(end) * 1e3)
    return {kind: round(median(values), 2) for kind, values in found.items()}


def _compile_times(compilations: int) -> dict[str, float]:
    """Return the median time to compile, link, load and launch; the first round, a warm-up, is left out."""
    import numpy as np
    from numba import cuda

    x, out = cuda.to_device(np.ones(32, "float32")), cuda.to_device(np.ones(32, "float32"))
    found: dict[str, list[float]] = {"helper": [], "packaged": []}
    for number in range(compilations + 1):
        for kind, values in found.items():
            kernel = _make(kind, 4)
            started = time.perf_counter()
            kernel[1, 32](x, np.float32(2), out)
            cuda.synchronize()
            if number:
                values.append((time.perf_counter() - started) * 1e3)
    return {kind: round(median(values), 3) for kind, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())
