"""Test the JIT fallback with the real compiler and the stand-in driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile

import pytest

from aotcuda.builder.entry import api
from aotcuda.builder.write import source_tree
from integration import forked, projects

pytestmark = pytest.mark.usefixtures("front_end")

SOURCE = """\
import os

from numba import cuda

from pkg.helpers import offset

with open(os.environ["BUILDS"], "a") as log:  # only builds import this module
    log.write("x")

SCALE = 3
add_up = cuda.declare_device("add_up", "float32(float32, float32)")


@cuda.jit
def scaled(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = add_up(x[i] * SCALE, offset(i))


def plain(x):
    x[0] = SCALE / 7
"""
HELPERS = "SHIFT = 5\n\n\ndef offset(i):\n    return i + SHIFT\n"
CU = """\
#include "part.cuh"
extern "C" __device__ int add_up(float* result, float a, float b) { *result = part(a) + b * TIMES; return 0; }
"""
HEADER = '#include "deep/deeper.cuh"\n__device__ inline float part(float a) { return a + DEEP; }\n'
DEEPER = "#define DEEP 11\n"

MODULE = """\
link = ["csrc/add.cu"]
options = { include-dirs = ["include"], defines = { TIMES = "13" } }
kernels = { scaled = "void(float32[::1])", plain = ["void(float32[::1])", "void(float64[::1])"] }
"""
FILES = {
    "pkg/_k.py": SOURCE,
    "pkg/helpers.py": HELPERS,
    "csrc/add.cu": CU,
    "include/part.cuh": HEADER,
    "include/deep/deeper.cuh": DEEPER,
}

LAUNCH = """\
import json, sys, warnings
warnings.simplefilter("ignore")
import os
sys.executable = os.environ.pop("WORKERS")  # the program that starts workers
import aotcuda
from aotcuda.runtime import driver
driver.LIBRARY = os.environ["STAND_IN"]  # a path, so that NVRTC does not load the stand-in
module = aotcuda.load(os.environ.get("MODULE", "pkg.k"))
class Array:
    def __init__(self, typestr):
        self.__cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": typestr}
for item in sys.argv[1:]:
    name, typestr = item.split(":")
    module.kernels[name][1, 32](Array(typestr))
heavy = ("numba", "numba_cuda_mlir", "numpy", "llvmlite", "dataclasses", "aotcuda.builder")
heavy = [name for name in heavy if name in sys.modules]
tiers = {name: [tier.tier for tier in found] for name, found in module.tiers.items()}
images = [late.manifest["fatbins"][0]["images"][0]["sha256"] for late in module._images.fallback().loaded.values()]
print(json.dumps({"heavy": heavy, "tiers": tiers, "images": images}))
"""


class Machine:
    """A machine with the stand-in driver and its own cache."""

    def __init__(self, cuda, tmp_path):
        self.cuda = cuda
        self.log = tmp_path / "builds"
        self.cache = tmp_path / "cache"
        self.root = cuda.packages

    @property
    def builds(self):
        """Return the number of builds."""
        return self.log.stat().st_size if self.log.exists() else 0

    def environment(self, **variables):
        settings = {"BUILDS": str(self.log), "AOTCUDA_CACHE_DIR": str(self.cache), "PYTHONPATH": self.path}
        settings |= {"WORKERS": forked.Session.python, "STAND_IN": str(self.cuda.library)}
        return {**os.environ, **settings, **variables}

    @property
    def path(self):
        return f"{self.root}:{projects.CHECKOUT}"

    def start(self, *launches, **variables):
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *launches],
            env=self.environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *launches, **variables):
        """Launch `kernel:typestr` one after the other in a process, and return its report."""
        process = self.start(*launches, **variables)
        out, err = process.communicate()
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])


@pytest.fixture
def machine(cuda, tmp_path):
    return Machine(cuda, tmp_path)


def write(folder, *, aotcuda=""):
    project = projects.write(folder, SOURCE, aotcuda=aotcuda, module=MODULE)
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(projects.source(text) if name.endswith(".py") else text)
    return project


@pytest.fixture(scope="module")
def wheel(front_end, tmp_path_factory):
    """Return a wheel for sm_80 and sm_90."""
    folder = tmp_path_factory.mktemp("wheel")
    project = write(folder / "project")
    return projects.build_wheel(project, AOTCUDA_ARCH="sm_80;sm_90", BUILDS=str(folder / "builds"))


@pytest.fixture
def installed(machine, wheel):
    """Return the machine with the wheel installed and without its project."""
    zipfile.ZipFile(wheel).extractall(machine.root)
    return machine


@pytest.fixture
def checkout(machine):
    """Return the project's source tree, never built."""
    write(machine.root)
    return machine


class TestWheels:
    def test_wheel_contains_linked_files_and_headers(self, wheel):
        files = projects.content(wheel)
        base = "pkg/k.aotcuda/sources/"
        carried = {name.removeprefix(base): data.decode() for name, data in files.items() if name.startswith(base)}
        assert carried == {
            "csrc/add.cu": CU,
            "include/part.cuh": HEADER,
            "include/deep/deeper.cuh": DEEPER,
        }
        listed = projects.manifest_of(files, "pkg.k")["rebuild"]["files"]
        assert [item["path"] for item in listed] == sorted(carried)

    def test_wheel_without_fallback_contains_no_sources(self, tmp_path):
        project = write(tmp_path / "project", aotcuda='fallback = "error"')
        files = projects.content(projects.build_wheel(project, BUILDS=str(tmp_path / "builds")))
        assert not [name for name in files if "sources" in name]
        assert "rebuild" not in projects.manifest_of(files, "pkg.k")


class TestCases:
    def test_other_types_are_compiled_once_for_all_processes(self, installed):
        first = installed.run("scaled:<f8", "plain:<f4")
        second = installed.run("scaled:<f8", "plain:<f4")
        assert first["tiers"] == second["tiers"] == {"scaled": ["exact", "jit"], "plain": ["exact", "exact"]}
        assert first["images"] == second["images"]
        assert second["heavy"] == []
        assert installed.builds == 1

    def test_another_gpu_gets_the_whole_module(self, installed):
        installed.cuda.set(devices="12.0")
        first = installed.run("scaled:<f4")
        second = installed.run("plain:<f8")
        assert first["tiers"] == second["tiers"] == {"scaled": ["jit"], "plain": ["jit", "jit"]}
        assert second["heavy"] == []
        assert installed.builds == 1

    def test_a_source_tree_is_compiled_as_a_whole(self, checkout):
        assert checkout.run("scaled:<f4")["tiers"] == {"scaled": ["jit"], "plain": ["jit", "jit"]}
        assert checkout.run("scaled:<f4")["heavy"] == []
        assert checkout.builds == 1


def test_an_edited_editable_install_gives_the_new_code(machine):
    project = write(machine.root)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("sm_80", "sm_90"))
    table = tomllib.loads(config.read_text())["tool"]["aotcuda"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUILDS", str(machine.log))
        source_tree.install(api.build(table, project, editable=True), project)
    assert machine.run("scaled:<f4")["tiers"]["scaled"] == ["exact"]
    header = project / "include" / "deep" / "deeper.cuh"
    header.write_text(DEEPER.replace("11", "12"))
    assert machine.run("scaled:<f4")["tiers"]["scaled"] == ["jit"]
    header.write_text(DEEPER)
    assert machine.run("scaled:<f4")["tiers"]["scaled"] == ["exact"]
    assert machine.builds == 2
