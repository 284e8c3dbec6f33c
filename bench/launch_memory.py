"""Launch very often on the stand-in driver, and measure the growth of the process's memory.

    python bench/launch_memory.py                          # 1,000,000 launches of each kind, some minutes
    python bench/launch_memory.py --launches 20000

Each kind has a process of its own, with and without the C extension. The growth is that of the resident memory between
the end of the first tenth and the end of all launches, in bytes for each launch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parents[1]
MOST = 1 << 20
"""The most bytes by which the memory may grow, whatever the number of launches."""

KINDS = {
    "one grid": "k[8, 128](2.0, a, b, c)",
    "100,000 grids": "k[i % 100_000 + 1, 128](2.0, a, b, c)",
    "new stream objects": "k[8, 128, Stream(0x100000 + 64 * (i % 100_000))](2.0, a, b, c)",
    "forall": "k.forall(i % 100_000 + 1)(2.0, a, b, c)",
    "priority": "k.configure(i % 100_000 + 1, 128, priority=0)(2.0, a, b, c)",
    "refused argument": "refuse(k[i % 100_000 + 1, 128], 2.0, a, b, 'text')",
    "refused configuration": "refuse(k[i % 100_000 + 1, 128, 0, 1 << 30], 2.0, a, b, c)",
    "failed launch": "refuse(failing[i % 100_000 + 1, 128], 2.0, a, b, c)",
}
PROGRAM = """
import gc, os, sys
kind, count, folder, root = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
sys.path[:0] = [root, root + "/tests", folder]
import aotcuda
from aotcuda.runtime import driver
driver.LIBRARY = folder + "/libcuda.so.1"
import launched.kernels
k = failing = launched.kernels.axpy
class Array:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "version": 3, "typestr": "<f4", "shape": (64,), "strides": None, "data": (address, False), "stream": None}
class Stream:
    def __init__(self, handle): self.handle = handle
    def __cuda_stream__(self): return 0, self.handle
def refuse(launch, *args):
    try:
        launch(*args)
    except aotcuda.AotcudaError:
        return
    raise SystemExit("the launch was not refused")
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
a, b, c = (Array(0x10000000 + 4096 * at) for at in range(3))
for _ in range(3): k[8, 128](2.0, a, b, c)
if kind.startswith("refuse(failing"):
    os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=1;cuLaunchKernelEx=1"
run = compile(f"for i in numbers: {kind}", "launches", "exec")
names = dict(globals())
exec(run, {**names, "numbers": range(count // 10)})
before = resident()
exec(run, {**names, "numbers": range(count // 10, count)})
print(resident() - before)
"""


def main() -> int:
    parser = machine.parser(__doc__, "launch_memory")
    parser.add_argument("--launches", type=int, default=1_000_000, help="of each kind")
    arguments = parser.parse_args()
    growth: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        for path, extension in (("C", "1"), ("Python", "0")):
            growth[path] = {}
            for kind, text in KINDS.items():
                count = arguments.launches // (10 if text.startswith("refuse") else 1)
                growth[path][kind] = _measure(text, count, folder, extension)
                print(f"{path}, {kind}: {growth[path][kind]:,} bytes", flush=True)
    met = {
        f"{path}, {kind}: at most 1 MiB": value <= MOST
        for path, found in growth.items()
        for kind, value in found.items()
    }
    return machine.report(
        arguments.out,
        machine.describe(),
        met,
        {},
        unit="bytes of growth of the resident memory in all launches of a kind",
        launches=arguments.launches,
        refused_launches=arguments.launches // 10,
        growth=growth,
    )


def _prepare(folder: Path) -> None:
    sys.path[:0] = [str(ROOT / "tests")]
    from support import manifests

    source = ROOT / "tests" / "support" / "fake_libcuda.c"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(folder / "libcuda.so.1"), str(source), "-lpthread"]
    subprocess.run(command, check=True)
    signature = "void(float32, float32[::1], float32[::1], float32[::1])"
    manifests.write(folder, [manifests.kernel("axpy", signature)], name="launched.kernels")


def _measure(text: str, count: int, folder: Path, extension: str) -> int:
    command = [sys.executable, "-c", PROGRAM, text, str(count), str(folder), str(ROOT)]
    environment = {**os.environ, "AOTCUDA_EXTENSION": extension}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return int(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
