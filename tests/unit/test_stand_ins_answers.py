"""Test that dry runs and builds accept the same queries of a GPU at import, and give one answer, for four libraries.

PyTorch has a test of its own, `test_stand_ins_pytorch.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed")
pytest.importorskip("numba_cuda_mlir", reason="Numba-CUDA-MLIR is not installed")

NUMBA = {
    "cuda.is_available()": True,
    "device.compute_capability": [9, 0],
    "device.name": "NVIDIA H100 80GB HBM3",
    "device.MULTIPROCESSOR_COUNT": 132,
    "device.MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "hasattr(device, 'unknown')": False,
    "getattr(device, 'unknown', 7)": 7,
    "len(cuda.gpus)": 1,
    "cuda.current_context().get_memory_info().total": 64 << 30,
    "float((cuda.to_device(np.arange(3.0)).copy_to_host()).sum())": 3.0,
    "cuda.device_array(4, np.float32).shape": [4],
}
ANSWERS = {
    "numba": {"from numba import cuda; device = cuda.get_current_device()": NUMBA},
    "numba_cuda_mlir": {"from numba_cuda_mlir import cuda; device = cuda.get_current_device()": NUMBA},
    "cupy": {
        "import cupy; device = cupy.cuda.Device(0); properties = cupy.cuda.runtime.getDeviceProperties(0)": {
            "cupy.cuda.is_available()": True,
            "device.compute_capability": "90",
            "device.attributes['MultiProcessorCount']": 132,
            "properties['name'].decode()": "NVIDIA H100 80GB HBM3",
            "properties['multiProcessorCount']": 132,
            "cupy.cuda.runtime.getDeviceCount()": 1,
            "hasattr(device, 'unknown')": False,
            "getattr(device, 'unknown', 7)": 7,
            "device.mem_info[1]": 64 << 30,
            "float(cupy.arange(3.0).sum())": 3.0,
            "cupy.zeros(4).shape": [4],
        }
    },
    "cuda.core": {
        "from cuda.core import Device, Program, ProgramOptions; device = Device(); device.set_current()": {
            "device.arch": "90",
            "device.compute_capability": [9, 0],
            "device.compute_capability.major": 9,
            "device.name": "NVIDIA H100 80GB HBM3",
            "device.properties.multiprocessor_count": 132,
            "device.properties.max_shared_memory_per_block_optin": 232448,
            "hasattr(device.properties, 'unknown')": False,
            "getattr(device.properties, 'unknown', 7)": 7,
            "len(Device.get_all_devices())": 1,
            "device.allocate(64).size": 64,
            "device.create_stream().sync()": None,
            "Program('extern \"C\" __global__ void f() {}', 'c++').compile('cubin').get_kernel('f').handle": 1,
        }
    },
}
MAIN = """
import json
import numpy as np

found = {}
for library, imports in json.load(open("answers.json")).items():
    for lines, expressions in imports.items():
        names = {"np": np}
        exec(lines, names)
        found[library] = {lines: {text: eval(text, names) for text in expressions}}
print(json.dumps(found))
"""
BUILD = """
import os
import numba.cuda.cudadrv.driver
import numba_cuda_mlir.numba_cuda.cudadrv.driver as mlir
from aotcuda.builder.frontends.gpu_queries import gpu
from aotcuda.builder.frontends.numba import gpu as stand_in

stand_in.answer(numba.cuda.cudadrv.driver)
stand_in.answer(mlir)
with gpu.importing((9, 0), os.getcwd()) as queries:
    import main
print(*(f"{item.query} {item.depends_on_target}" for item in queries), sep="\\n")
"""


@pytest.fixture(scope="module", params=["record", "build"])
def lines(request, tmp_path_factory):
    """Return the output of a dry run or of an import in a build, without a driver."""
    folder = tmp_path_factory.mktemp("answers")
    for name, text in {"main.py": MAIN, "build.py": BUILD, "answers.json": json.dumps(ANSWERS)}.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "aotcuda", "record", "--gpu", "H100", "--", sys.executable, "main.py"]
    if request.param == "build":
        command = [sys.executable, "build.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_queries_have_the_answers_of_the_gpu(lines):
    assert json.loads(lines[0]) == ANSWERS


def test_builds_know_which_answers_depend_on_the_target(lines):
    depending = {line.rpartition(" ")[0] for line in lines if line.startswith("cuda.core.") and line.endswith("True")}
    if len(lines) > 1:
        names = ("arch", "compute_capability", "name", "multiprocessor_count", "max_shared_memory_per_block_optin")
        assert depending == {f"cuda.core.Device().{name}" for name in names}
