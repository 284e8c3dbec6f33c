"""Measure a CUDA C++ module of ten files: builds, an edit of one file, the wheel's size, import and first launch.

    python bench/cuda_cpp_files.py --driver LIBCUDA [--out FILE]

LIBCUDA is libcuda.so.1 of a driver, or the stand-in driver that the tests compile; with it no kernel runs. The script
uses the aotcuda of its own environment, so that another environment measures another version.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

FILES, KERNELS, RUNS = 10, 5, 5
_HELPERS = """
template <class T> __device__ T scaled(T x, int n) {{
    T r = 0;
    for (int i = 0; i < n; ++i) r += x * (i + {0});
    return r;
}}
struct Step{0} {{ float dt; int order; }};
__constant__ float weights{0}[16] = {{1, 2, 3, 4}};
"""
_KERNEL = """
extern "C" __global__ void k{0}_{1}(const float *x, float *y, int n, Step{0} step) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(x[i]) * scaled(x[i], n & 7) + weights{0}[i & 15] * step.dt + {1};
}}
"""
_TABLE = """
[project]
name = "files"
version = "1.0"
[tool.aotcuda]
arch = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]
load = "first-use"
[tool.aotcuda.modules."files.raw"]
frontend = "cuda-cpp"
source = {sources}
"""
_LAUNCH = """
import ctypes, time
class Array:
    def __init__(self, readonly):
        self.__cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (0x7000000, readonly), "version": 3}
import numpy as np
step = np.zeros((), np.dtype([("dt", "f4"), ("order", "i4")]))[()]
start = time.perf_counter()
import files.raw as k
imported = time.perf_counter()
k.k0_0[1, 64](Array(False), Array(False), 64, step)
first = time.perf_counter()
k.k9_0[1, 64](Array(False), Array(False), 64, step)
print(imported - start, first - imported, time.perf_counter() - first)
"""


def make(folder: Path) -> None:
    """Write the project."""
    (folder / "files").mkdir()
    (folder / "files" / "__init__.py").write_text("")
    (folder / "csrc").mkdir()
    names = [f"csrc/f{number}.cu" for number in range(FILES)]
    for number, name in enumerate(names):
        code = _HELPERS.format(number) + "".join(_KERNEL.format(number, at) for at in range(KERNELS))
        (folder / name).write_text(code)
    kernels = "".join(f"kernels.k{number}_{at} = {{}}\n" for number in range(FILES) for at in range(KERNELS))
    (folder / "pyproject.toml").write_text(_TABLE.format(sources=json.dumps(names)) + kernels)


def build(folder: Path, cache: Path) -> float:
    """Return the seconds of a build."""
    command = [sys.executable, "-m", "aotcuda", "build", str(folder), "--out", str(folder / "out"), "-q"]
    start = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "AOTCUDA_BUILD_CACHE": str(cache)})
    return time.perf_counter() - start


def launches(folder: Path, driver: Path) -> list[list[float]]:
    """Return the seconds of import, first launch, and first launch of the last file's kernel, of several processes."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "out"), "LD_LIBRARY_PATH": str(driver.parent)}
    (folder / "out" / "files" / "__init__.py").write_text("")
    rows = []
    for _ in range(RUNS):
        command = [sys.executable, "-P", "-c", _LAUNCH]
        output = subprocess.run(
            command, check=True, env=environment, cwd=folder / "out", capture_output=True, text=True
        )
        rows.append([float(text) for text in output.stdout.split()])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--driver", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        folder.mkdir()
        make(folder)
        cold = [build(folder, Path(name, f"cache{number}")) for number in range(2)]
        edited = []
        path = folder / "csrc" / "f3.cu"
        code = path.read_text()
        for number in range(RUNS):
            path.write_text(code.replace("n & 7", f"n & {8 + number}"))
            edited.append(build(folder, Path(name, "cache0")))
        size = sum(path.stat().st_size for path in (folder / "out").rglob("*.fatbin"))
        rows = [statistics.median(column) * 1000 for column in zip(*launches(folder, arguments.driver), strict=True)]
    result = {
        "machine": machine.describe(),
        "cold_seconds": round(statistics.median(cold), 2),
        "edited_seconds": round(statistics.median(edited), 2),
        "fatbin_bytes": size,
        "import_ms": round(rows[0], 2),
        "first_launch_ms": round(rows[1], 2),
        "first_launch_of_last_file_ms": round(rows[2], 2),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
