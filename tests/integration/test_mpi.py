"""Test ranks of MPI on the two GPUs of the stand-in driver, with the compiler of the fallback."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from support.stand_in import StandIn

pytest.importorskip("mpi4py", reason="mpi4py is not installed (pip install mpi4py mpich)")
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
pytestmark = [
    pytest.mark.usefixtures("build_cache"),
    pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec (pip install mpich, or a package of the system's)"),
]

RANKS = 4
SOURCE = """\
import os

from numba import cuda

with open(os.environ["BUILDS"], "a") as log:  # only builds import this module
    log.write("x")


@cuda.jit
def scaled(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 3
"""
PROGRAM = """\
import ctypes, json, os, warnings

from mpi4py import MPI

warnings.simplefilter("ignore")
world = MPI.COMM_WORLD
local = world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank() % 2

from aotcuda.runtime import driver

driver.LIBRARY = os.environ["STAND_IN"]  # a path, so that NVRTC does not load the stand-in
import pkg.k as k

cuda = ctypes.CDLL(driver.LIBRARY)
# As set_device of PyTorch, use() of CuPy and set_current() of cuda.core do.
device, context = ctypes.c_int(), ctypes.c_void_p()
assert not cuda.cuDeviceGet(ctypes.byref(device), local)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context)
cuda.fake_allocate.restype = ctypes.c_uint64


class Array:
    def __init__(self, typestr):
        self.address = cuda.fake_allocate(ctypes.c_uint64(64), local)
        interface = {"version": 3, "data": (self.address, False), "shape": (8,), "typestr": typestr, "strides": None}
        self.__cuda_array_interface__ = interface


k.scaled[1, 32](Array("<f4"))
k.scaled[1, 32](Array("<f8"))  # no packaged signature has this type
late = [tier.choice.gpu for tier in k.__aotcuda__.tiers["scaled"] if tier.tier == "jit"]
found = world.gather([local, late])
if world.rank == 0:
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def wheel(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    project = projects.write(folder / "project", SOURCE, module='kernels.scaled = "void(float32[::1])"')
    return projects.build_wheel(project, AOTCUDA_ARCH="sm_90", BUILDS=os.devnull)


def test_each_rank_launches_on_its_gpu_and_one_of_them_compiles(cuda: StandIn, wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(cuda.packages)
    (tmp_path / "program.py").write_text(PROGRAM)
    builds = tmp_path / "builds"
    environment = {
        "AOTCUDA_CACHE_DIR": str(tmp_path / "cache"),
        "BUILDS": str(builds),
        "FAKE_CUDA_DEVICES": "9.0,9.0",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PYTHONPATH": f"{cuda.packages}:{projects.CHECKOUT}",
        "STAND_IN": str(cuda.library),
    }
    command = (str(MPIEXEC), "-n", str(RANKS), sys.executable, "program.py")
    reports = json.loads(projects.succeed(tmp_path, *command, **environment).out)
    gpus = [f"GPU {gpu} (Stand-in {'AB'[gpu]}, compute capability 9.0)" for gpu in (0, 1)]
    assert sorted(reports) == sorted([[gpu, [gpus[gpu]]] for gpu in (0, 1)] * 2)
    assert sorted(launch["device"] for launch in cuda.launches()) == [0] * 4 + [1] * 4
    assert builds.stat().st_size == 1
