"""The two front ends on the same sources: build time, image size, registers, and time on a GPU.

python bench/frontends.py build FOLDER     where both compilers are installed; needs no GPU
python bench/frontends.py time FOLDER      on a machine with a GPU and CuPy, with the same folder

The first writes the wheels and what it measured into FOLDER, the second adds times, and writes the result.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import machine

ARCH = "sm_90"
ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
MODULES = {"numba-cuda": "numba", "numba-cuda-mlir": "numba_cuda_mlir"}
EXTRAS = {"numba-cuda": "cu13", "numba-cuda-mlir": "mlir-cu13"}

_SOURCE = """
import math

from {module} import cuda
from {module}.types import float32


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def special(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.exp(-x[i] * x[i]) * math.sin(x[i]) / math.sqrt(float32(1) + x[i] * x[i])


@cuda.jit
def reduce(x, out):
    tile = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    tile[t] = total
    cuda.syncthreads()
    step = 128
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, tile[0])


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((16, 16), float32)
    right = cuda.shared.array((16, 16), float32)
    row, column = cuda.grid(2)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for block in range(a.shape[1] // 16):
        left[i, j] = a[row, block * 16 + j]
        right[i, j] = b[block * 16 + i, column]
        cuda.syncthreads()
        for k in range(16):
            total += left[i, k] * right[k, j]
        cuda.syncthreads()
    c[row, column] = total
"""

_CONFIG = """\
[build-system]
requires = ["hatchling", "aotcuda[{extra}]"]
build-backend = "hatchling.build"

[project]
name = "{package}"
version = "1.0"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
frontend = "{frontend}"
arch = {archs}

[tool.aotcuda.modules."{package}.kernels"]
source = "{package}._kernels"

[tool.aotcuda.modules."{package}.kernels".kernels]
axpy = "void(float32, float32[::1], float32[::1], float32[::1])"
special = "void(float32[::1], float32[::1])"
reduce = "void(float32[::1], float32[::1])"
matmul = "void(float32[:, ::1], float32[:, ::1], float32[:, ::1])"
"""


def main() -> int:
    parser = machine.parser(__doc__, "frontends")
    parser.add_argument("step", choices=["build", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    here = machine.describe()
    notes = arguments.folder / "frontends.json"
    if arguments.step == "build":
        built = {frontend: _build(frontend, arguments.folder, arguments.runs) for frontend in MODULES}
        notes.write_text(json.dumps({"machine": here, "built": built}, indent=1))
        _print(built)
        return 0
    before = json.loads(notes.read_text())
    built = before["built"]
    for frontend, figures in built.items():
        figures["microseconds"] = _times(frontend, arguments.folder, arguments.runs)
    _print(built)
    machine.write(arguments.out, here, built_on=before["machine"], arch=ARCH, figures=built)
    return 0


def _package(frontend: str) -> str:
    return f"bench_{frontend.replace('-', '_')}"


def _build(frontend: str, folder: Path, runs: int) -> dict[str, Any]:
    package = _package(frontend)
    seconds = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as temporary:
            project = Path(temporary)
            (project / package).mkdir()
            config = _CONFIG.format(
                extra=EXTRAS[frontend], package=package, frontend=frontend, archs=json.dumps(list(ARCHS))
            )
            (project / "pyproject.toml").write_text(config)
            (project / package / "__init__.py").write_text("")
            # numba has its types at the top, the other one in a module.
            source = re.sub(r"from numba\.types", "from numba", _SOURCE.replace("{module}", MODULES[frontend]))
            (project / package / "_kernels.py").write_text(source)
            command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(project / "dist")]
            started = time.perf_counter()
            subprocess.run([*command, str(project)], check=True, capture_output=True)
            seconds.append(time.perf_counter() - started)
            (wheel,) = (project / "dist").glob("*.whl")
            target = folder / frontend
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, target)
    with zipfile.ZipFile(wheel := next((folder / frontend).glob("*.whl"))) as archive:
        manifest = json.loads(archive.read(f"{package}/kernels.aotcuda/manifest.json"))
    (image,) = (image for image in manifest["images"] if image["arch"] == ARCH)
    return {
        "build_seconds": machine.summary(seconds),
        "wheel_bytes": wheel.stat().st_size,
        "image_bytes": image["bytes"],
        "registers": {
            kernel["name"]: kernel["overloads"][0]["resources"][ARCH]["registers"] for kernel in manifest["kernels"]
        },
    }


def _times(frontend: str, folder: Path, runs: int) -> dict[str, float]:
    """Return the kernels' times on the GPU in microseconds, the least of some runs; their numbers are checked first."""
    import importlib

    import cupy
    import numpy as np

    target = folder / frontend / "installed"
    with zipfile.ZipFile(next((folder / frontend).glob("*.whl"))) as archive:
        archive.extractall(target)
    sys.path.insert(0, str(target))
    k = importlib.import_module(f"{_package(frontend)}.kernels")
    n, side = 1 << 24, 2048
    rng = np.random.default_rng(7)
    x, y = (cupy.asarray(rng.normal(size=n).astype("float32")) for _ in range(2))
    out, total = cupy.zeros(n, "float32"), cupy.zeros(1, "float32")
    a, b = (cupy.asarray(rng.normal(size=(side, side)).astype("float32")) for _ in range(2))
    c = cupy.zeros((side, side), "float32")
    blocks = n // 256
    launches = {
        "axpy": lambda: k.axpy[blocks, 256](2.0, x, y, out),
        "special": lambda: k.special[blocks, 256](x, out),
        "reduce": lambda: k.reduce[1024, 256](x, total),
        "matmul": lambda: k.matmul[(side // 16, side // 16), (16, 16)](a, b, c),
    }
    launches["axpy"]()
    cupy.testing.assert_allclose(out, 2 * x + y, rtol=1e-5, atol=1e-5)
    launches["special"]()
    cupy.testing.assert_allclose(out, cupy.exp(-x * x) * cupy.sin(x) / cupy.sqrt(1 + x * x), rtol=1e-4, atol=1e-6)
    launches["reduce"]()
    cupy.testing.assert_allclose(total[0], x.astype("float64").sum(), rtol=1e-3, atol=10)
    launches["matmul"]()
    cupy.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-2)
    return {name: _time(cupy, launch, runs) for name, launch in launches.items()}


def _time(cupy: Any, launch: Any, runs: int) -> float:
    least = float("inf")
    for _ in range(max(runs, 5)):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(20):
            launch()
        end.record()
        end.synchronize()
        least = min(least, cupy.cuda.get_elapsed_time(start, end) * 1000 / 20)
    return round(least, 2)


def _print(built: dict[str, dict[str, Any]]) -> None:
    names = list(built)
    rows: list[tuple[object, ...]] = [
        ("build, seconds", *(built[name]["build_seconds"]["median"] for name in names)),
        ("wheel, bytes", *(built[name]["wheel_bytes"] for name in names)),
        (f"image for {ARCH}, bytes", *(built[name]["image_bytes"] for name in names)),
    ]
    for kernel in built[names[0]]["registers"]:
        rows.append((f"{kernel}: registers", *(built[name]["registers"][kernel] for name in names)))
        if "microseconds" in built[names[0]]:
            rows.append((f"{kernel}: µs on the GPU", *(built[name]["microseconds"][kernel] for name in names)))
    machine.table(("", *names), rows)


if __name__ == "__main__":
    sys.exit(main())
