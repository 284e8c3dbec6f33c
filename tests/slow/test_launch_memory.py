"""Test that very many launches, failed ones too, do not let the memory of a process grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import manifests

if TYPE_CHECKING:
    from types import ModuleType

    from slow.conftest import Extent

ROOT = Path(__file__).parents[2]
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
    "failed launch": "refuse(k[i % 100_000 + 1, 128], 2.0, a, b, c)",
}
PROGRAM = """
import gc, importlib.util, json, os, sys
kinds, count, folder, extension = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
sys.path[:0] = [folder]
if extension:
    name = "aotcuda.runtime.launch.fast._launch"
    spec = importlib.util.spec_from_file_location(name, extension)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
import aotcuda
from aotcuda.runtime import driver
driver.LIBRARY = folder + "/libcuda.so.1"
import launched.kernels
k = launched.kernels.axpy
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
assert launched.kernels.__aotcuda__.fast_path.startswith("none") != bool(extension), launched.kernels.__aotcuda__
growth = {}
for kind, text in kinds.items():
    if kind == "failed launch":
        os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=1;cuLaunchKernelEx=1"
    names = dict(globals())
    run = compile(f"for i in numbers: {text}", "launches", "exec")
    exec(run, {**names, "numbers": range(count // 10)})
    before = resident()
    exec(run, {**names, "numbers": range(count // 10, count)})
    growth[kind] = resident() - before
print(json.dumps(growth))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_launches_do_not_let_the_memory_grow(
    tmp_path: Path, stand_in_library: Path, extension_module: ModuleType, extent: Extent
) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(stand_in_library)
    manifests.write(
        tmp_path,
        [manifests.kernel("axpy", "void(float32, float32[::1], float32[::1], float32[::1])")],
        name="launched.kernels",
    )
    launches = extent.part(3_000, 1_000_000)
    growth = {}
    for path, extension in (("C", extension_module.__file__), ("Python", "")):
        command = [sys.executable, "-c", PROGRAM, json.dumps(KINDS), str(launches), str(tmp_path), str(extension)]
        environment = {**os.environ, "AOTCUDA_EXTENSION": "1" if extension else "0", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        growth[path] = json.loads(done.stdout)
    extent.write("launch_memory", launches=launches, growth=growth)
    assert max(size for kinds in growth.values() for size in kinds.values()) <= MOST, growth
