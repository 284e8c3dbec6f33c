"""Test that kernels of numba-cuda-mlir call packaged device functions of both compilers."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

if importlib.util.find_spec("numba_cuda_mlir") is None:
    pytest.skip("numba-cuda-mlir is not installed", allow_module_level=True)

FUNCTIONS = """
def add(x, y):
    return x + y

def times(x, y):
    return x * y

def scale(x, y):
    return x * y
"""
MODULE = """\
functions.add_i32 = { python = "add", signature = "int32(int32, int32)" }
functions.add_f32 = { python = "add", signature = "float32(float32, float32)" }
functions.times = "complex64(complex64, complex64)"
functions.scale_f32 = { python = "scale", signature = "float32(float32, float32)" }
functions.scale_c64 = { python = "scale", signature = "complex64(complex64, complex64)" }
"""
USER = """
import a.k as k
from numba_cuda_mlir import cuda

@cuda.jit
def user(x, n):
    i = cuda.grid(1)
    x[i] = k.add_f32(x[i], x[i + 1])
    n[i] = k.add(n[i], k.add_i32(n[i], 2))
    x[i + 1] = k.add(x[i], x[i + 2])

@cuda.jit
def crossed(z):
    z[0] = k.times(z[0], z[1])
"""


@pytest.fixture(scope="module", params=["numba-cuda-mlir", "numba-cuda"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import `a.k` from, built with either compiler."""
    if request.param == "numba-cuda":
        pytest.importorskip("numba")
    folder = tmp_path_factory.mktemp("library")
    project = projects.write(folder / "project", FUNCTIONS, aotcuda=f'frontend = "{request.param}"', module=MODULE)
    text = (project / "pyproject.toml").read_text().replace("pkg", "a")
    (project / "pyproject.toml").write_text(text)
    (project / "pkg").rename(project / "a")
    projects.aotcuda(project, "build", ".", "--out", folder / "site")
    return folder / "site"


def build(library: Path, folder: Path, module: str) -> projects.Done:
    project = projects.write(folder / "project", USER, aotcuda='frontend = "numba-cuda-mlir"', module=module)
    path = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    command = (sys.executable, "-m", "aotcuda", "build", ".", "--out", str(folder / "out"))
    return projects.forked_run(project, *command, PYTHONPATH=path)


def test_kernels_call_functions_unless_an_argument_has_another_abi(library: Path, tmp_path: Path) -> None:
    user, crossed = 'kernels.user = "void(float32[::1], int32[::1])"\n', 'kernels.crossed = "void(complex64[::1])"'
    is_mlir = json.loads((library / "a/k.aotcuda/manifest.json").read_text())["frontend"] == "numba-cuda-mlir"
    done = build(library, tmp_path / "both", user + crossed)
    if not is_mlir:
        assert "kernels.crossed: " in done.err
        assert "a.k.times cannot be called from a kernel of numba-cuda-mlir" in done.err
        done = build(library, tmp_path, user)
    assert done.status == 0, done.err
    folder = tmp_path / "both" if is_mlir else tmp_path
    manifest = json.loads((folder / "out/pkg/k.aotcuda/manifest.json").read_text())
    assert [(item["name"], item["symbols"]) for item in manifest["linked"]] == [
        ("a.k", ["add_f32", "add_i32", "scale_c64", "scale_f32", "times"])
    ]


def test_other_overloads_of_a_name_stay_callable(library: Path) -> None:
    """`a.k.scale` has an overload for float32, which both compilers pass alike, and one for complex64."""
    script = """
import json
import a.k as k
from numba_cuda_mlir import cuda, tools, types
tools._cached_cc = (9, 0)

def number(x):
    x[0] = k.scale(x[0], x[1])

def pair(z):
    z[0] = k.scale(z[0], z[1])

errors = []
for kernel, dtype in ((number, types.float32), (pair, types.complex64)):
    try:
        cuda.jit(kernel).compile(types.void(dtype[::1]))
        errors.append("")
    except Exception as error:
        errors.append(str(error))
print(json.dumps([k.__aotcuda__.manifest["frontend"], errors]))
"""
    path = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "AOTCUDA_LOAD": "first-use"}
    done = projects.succeed(library, sys.executable, "-c", script, **own)
    frontend, (number, pair) = json.loads(done.out.splitlines()[-1])
    assert number == ""
    if frontend == "numba-cuda":
        assert "float32" in pair  # the packaged types
    else:
        assert pair == ""
