"""Modules that are packaged in place: built by both front ends, installed without them, launched on the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support import front_ends, in_place

if TYPE_CHECKING:
    from pathlib import Path

    from support.stand_in import StandIn

pytestmark = pytest.mark.usefixtures("build_cache")

ARRAYS = """
import ctypes
fake = ctypes.CDLL("libcuda.so.1")
fake.fake_allocate.restype = ctypes.c_uint64

class Array:
    def __init__(self, typestr="<f4", size=64):
        data = fake.fake_allocate(ctypes.c_uint64(8 * size), 0), False
        self.__cuda_array_interface__ = {
            "version": 3, "data": data, "shape": (size,), "typestr": typestr, "strides": None, "stream": None
        }

import sys
import inplace.solver as s
"""


@pytest.fixture(scope="module")
def built(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project `inplace`, with its wheel in `dist`."""
    project = projects.copy("inplace", tmp_path_factory.mktemp("in_place") / "project")
    projects.build_wheel(project)
    return project


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """Return a folder with the content of the wheel."""
    (wheel,) = (built / "dist").glob("*.whl")
    folder = built.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(cuda: StandIn, folder: Path, code: str, *options: str, **environ: str) -> str:
    """Run code with the package in `folder` and the stand-in driver, and return its output."""
    environment = cuda.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, *options, "-c", ARRAYS + code],
        env={**environment, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernels(cuda: StandIn) -> list[str]:
    return [call["kernel"] for call in cuda.launches()]


@pytest.mark.parametrize("imports_numba", [False, True])
def test_source_that_imports_numba_gives_a_warning(imports_numba: bool, tmp_path: Path) -> None:
    project = projects.copy("inplace", tmp_path / "project")
    for path in project.glob("src/inplace/*.py") if imports_numba else ():
        path.write_text(path.read_text().replace("aotcuda.numba", "numba"))
    warning = (
        'tool.aotcuda.modules."inplace.solver": it is packaged in place, and neither inplace.solver nor a module that '
        "it imports has aotcuda.numba, so the compiler itself would launch its kernels; write from aotcuda.numba "
        "import cuda"
    )
    assert (warning in projects.aotcuda(project, "build").err) is imports_numba


def test_import_of_numba_submodule_gives_a_warning(tmp_path: Path) -> None:
    project = projects.copy("inplace", tmp_path / "project")
    path = project / "src/inplace/solver.py"
    line = "from numba.cuda.random import create_xoroshiro128p_states"
    text = path.read_text().replace("from aotcuda.numba import", f"{line}\nfrom aotcuda.numba import", 1)
    path.write_text(text)
    assert (
        f"aotcuda: warning: src/inplace/solver.py:{text[: text.index(line)].count(chr(10)) + 1}: it imports "
        "numba.cuda.random, so users of the wheel need numba; write from aotcuda.numba import cuda, and "
        "cuda.random.NAME in place of NAME\n"
    ) in projects.aotcuda(project, "build").err


def test_wheel_gains_data_and_keeps_sources(built: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    files = projects.content(wheel)
    sources = {name: data for name, data in files.items() if name.endswith((".py", ".pyi"))}
    assert sources == {f"inplace/{path.name}": path.read_bytes() for path in (built / "src/inplace").glob("*.py")}
    gained = {name for name in files if ".aotcuda/" in name}
    assert gained == {
        "inplace/__init__.aotcuda/in-place",
        "inplace/helpers.aotcuda/in-place",
        "inplace/solver.aotcuda/in-place",
        "inplace/solver.aotcuda/inplace_solver.h",
        "inplace/solver.aotcuda/kernels.fatbin",
        "inplace/solver.aotcuda/manifest.json",
    }
    assert all(f"{name},sha256=".encode() in files["inplace-1.0.dist-info/RECORD"] for name in gained)


def test_manifest_records_exact_types(built: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    manifest = projects.manifest_of(projects.content(wheel), "inplace.solver")
    assert (manifest["in_place"], manifest["load"]) == (True, "first-use")
    by_name = {kernel["name"]: kernel for kernel in manifest["kernels"]}
    exact = {name: kernel["overloads"][0]["parameters"][0].get("exact") for name, kernel in by_name.items()}
    assert exact == {"add": None, "scale": True, "shift": None, "tile": None, "fill": None}
    assert by_name["fill"]["overloads"][0]["parameters"][1]["exact"] is True
    assert by_name["fill"]["defined"].startswith("inplace.helpers:fill:")
    assert by_name["add"]["defined"].startswith("inplace.solver:add:")
    assert by_name["tile"]["values"]["BLOCK"] == [["int", "64"]]


def test_packaged_kernels_launch_without_numba_and_numpy(cuda: StandIn, installed: Path) -> None:
    code = """
s.launch_all(Array(), Array(), Array())
s.fill[1, 64](Array("<i4"), 7)
print(s.has_gpu(), [name for name in ("numba", "numpy", "llvmlite") if name in sys.modules])
"""
    assert run(cuda, installed, code, "-S") == "True []\n"
    assert kernels(cuda) == ["add__0", "scale__0", "shift", "tile", "scale__0", "fill"]


def test_types_that_were_not_packaged_are_compiled_by_the_fallback(
    cuda: StandIn, installed: Path, tmp_path: Path
) -> None:
    code = """
import warnings
import numpy as np
for _ in range(2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        s.scale[1, 64](np.int32(2), Array())
        print(*[warning.category.__name__ for warning in caught], *[warning.message for warning in caught])
print(s.scale.signatures)
"""
    warning, silent, signatures = run(cuda, installed, code, AOTCUDA_CACHE_DIR=str(tmp_path / "cache")).splitlines()
    assert warning.startswith(
        "FallbackWarning inplace.solver.scale for void(int32, float32[::1]): it is compiled on this"
    )
    assert silent == ""
    assert signatures == "['void(float64, float32[:])', 'void(float32, float32[:])', 'void(int64, float32[:])']"
    assert kernels(cuda) == ["scale", "scale"]


def test_numba_compiles_kernels_that_are_not_packaged(installed: Path) -> None:
    code = """
from numba import cuda, float32, float64
from numba.cuda import compiler, dispatcher
from numba.cuda.memory_management import nrt

class Device:
    compute_capability = (9, 0)

for module in (dispatcher, compiler, nrt):
    module.get_current_device = Device
import inplace.helpers as h, inplace.solver as s

@cuda.jit
def mine(x):
    x[0] = h.twice(x[1]) + s.twice(x[2])

for kernel, *types in (
    (mine, float32[:]), (s.add.numba_object(), *[float32[::1]] * 3), (s.tile.numba_object(), float32[::1]),
    (s.never_packaged.numba_object(), float64[:]), (h.fill.numba_object(), float64[:], float64),
):
    ptx, _ = cuda.compile(kernel.py_func, tuple(types), device=False, abi="numba", cc=(9, 0), output="ptx")
    print(".entry" in ptx, s.cuda)
"""
    path = os.pathsep.join([str(installed), str(projects.CHECKOUT)])
    done = projects.succeed(installed, sys.executable, "-c", code, PYTHONPATH=path)
    assert done.out == "True <cuda of aotcuda.numba, in place>\n" * 5


@pytest.mark.parametrize("installed_too", [False, True])
def test_in_the_simulator_it_runs_from_its_sources(built: Path, installed: Path, installed_too: bool) -> None:
    code = """
import numpy as np, inplace.solver as s
x, out, numbers = np.arange(64, dtype="f4"), np.zeros(64, "f4"), np.zeros(4, "i4")
s.launch_all(x, np.ones(64, "f4"), out)
s.fill[1, 4](numbers, 7)
expected = (((2 * x + 1) * 2 + 1)[::-1]) * 2
print(np.array_equal(out, expected), numbers.tolist())
"""
    path = installed if installed_too else built / "src"
    done = projects.succeed(built, sys.executable, "-c", code, PYTHONPATH=str(path), NUMBA_ENABLE_CUDASIM="1")
    assert done.out == "True [7, 7, 7, 7]\n"


def test_editable_install_is_stale_after_an_edit(cuda: StandIn, tmp_path: Path) -> None:
    project = projects.copy("inplace", tmp_path / "project")
    projects.back_end(project, editable=True)
    source = project / "src"
    code = "s.launch_all(Array(), Array(), Array())\nprint(s.__aotcuda__.editable, 'numba' in sys.modules)"
    assert run(cuda, source, code, "-S") == "True False\n"
    assert len(kernels(cuda)) == 5
    helpers = source / "inplace/helpers.py"
    helpers.write_text(helpers.read_text().replace("x + x", "x * 2"))
    code = "try:\n    s.launch_all(*[Array()] * 3)\nexcept Exception as error:\n    print(type(error).__name__, error)"
    output = run(cuda, source, code, "-S", AOTCUDA_FALLBACK="error")
    assert output.startswith("StaleBuildError inplace.solver was built before ")
    assert "helpers.py was edited; build it again: pip install -e ." in output
    compiled = "s.add[1, 64](Array(), Array(), Array())\nprint(s.__aotcuda__.chosen[0].arch)"
    assert run(cuda, source, compiled, "-W", "ignore", AOTCUDA_CACHE_DIR=str(tmp_path / "cache")) == "sm_90\n"


def test_files_of_editable_install_can_be_removed(built: Path, tmp_path: Path) -> None:
    project = projects.copy("inplace", tmp_path / "project")
    before = projects.tree(project)
    projects.back_end(project, editable=True)
    (wheel,) = (built / "dist").glob("*.whl")
    assert projects.build_wheel(project).read_bytes() == wheel.read_bytes()
    (project / "dist").joinpath(wheel.name).unlink()
    projects.succeed(project, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "--clean-only", "--hooks-only")
    assert projects.tree(project) == before


def test_editable_build_removes_marks_of_unlisted_sources(tmp_path: Path) -> None:
    """The mark would name a removed manifest, and launches would be refused."""
    project = projects.copy("inplace", tmp_path / "project")
    projects.back_end(project, editable=True)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace('fill = "void(int32[:], int64)"\n', ""))
    projects.back_end(project, editable=True)
    assert sorted(path.name for path in project.rglob("*.aotcuda")) == ["__init__.aotcuda", "solver.aotcuda"]


def test_numba_cuda_mlir_is_packaged_in_place(cuda: StandIn, tmp_path: Path) -> None:
    if not front_ends.is_mlir_installed():
        pytest.skip("numba-cuda-mlir is not installed (extra mlir-cu13)")
    project = tmp_path / "project"
    projects.write(project, "", aotcuda='arch = ["sm_90"]\nfrontend = "numba-cuda-mlir"')
    (project / "pkg" / "_k.py").unlink()
    (project / "pkg" / "solver.py").write_text(
        "from aotcuda.numba_cuda_mlir import cuda, float32\n\n\n"
        "@cuda.jit(device=True)\ndef twice(x):\n    return x + x\n\n\n"
        "@cuda.jit\ndef scale(factor, values):\n"
        "    shared = cuda.shared.array(4, float32)\n    shared[0] = values[0]\n    cuda.syncthreads()\n"
        "    values[cuda.grid(1)] = twice(shared[0]) * factor\n"
    )
    config = project / "pyproject.toml"
    config.write_text(
        config.read_text()
        .replace("aotcuda[cu13]", "aotcuda[mlir-cu13]")
        .replace('"pkg.k"', '"pkg.solver"')
        .replace('source = "pkg._k"', 'source = "pkg.solver"\nkernels.scale = "void(float64, float32[:])"')
    )
    cuda.install(projects.build_wheel(project))
    arrays = ARRAYS.replace("import inplace.solver as s\n", "")
    code = f"{in_place.NO_NUMBA}\nimport pkg.solver as s\ns.scale[1, 64](2.0, Array())\nprint(s.cuda)\n"
    assert cuda.run(arrays + code) == "<cuda of aotcuda.numba_cuda_mlir, in place>\n"
    assert kernels(cuda) == ["scale"]
    from_sources = projects.succeed(
        project, sys.executable, "-c", "import pkg.solver as s; print(type(s.scale).__name__)", PYTHONPATH=str(project)
    )
    assert from_sources.out == "MLIRDispatcher\n"
