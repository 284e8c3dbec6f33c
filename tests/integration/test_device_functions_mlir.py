"""Check that kernels of numba-cuda-mlir call packaged device functions."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects
from support import front_ends
from support.images import cuobjdump

if TYPE_CHECKING:
    from collections.abc import Callable
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
    """Return a folder to import `a.k` from, built with one compiler or the other."""
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


def test_its_kernels_call_them_by_either_name(library: Path, tmp_path: Path) -> None:
    done = build(library, tmp_path, 'kernels.user = "void(float32[::1], int32[::1])"')
    assert done.status == 0, done.err
    manifest = json.loads((tmp_path / "out/pkg/k.aotcuda/manifest.json").read_text())
    assert [(item["name"], item["symbols"]) for item in manifest["linked"]] == [
        ("a.k", ["add_f32", "add_i32", "scale_c64", "scale_f32", "times"])
    ]


def test_argument_with_different_abi_is_refused(library: Path, tmp_path: Path) -> None:
    done = build(library, tmp_path, 'kernels.crossed = "void(complex64[::1])"')
    built_with = json.loads((library / "a/k.aotcuda/manifest.json").read_text())["frontend"]
    if built_with == "numba-cuda-mlir":
        assert done.status == 0, done.err
    else:
        assert done.status == 1
        assert "a.k.times cannot be called from a kernel of numba-cuda-mlir" in done.err


# Compiles kernels as numba-cuda-mlir does at a launch, for a GPU that it believes to be there.
JIT = """
import base64, json, sys
import devicefunctions.plain as k
import devicefunctions.table as t
from numba_cuda_mlir import cuda, tools, types
from numba_cuda_mlir.numba_cuda.np.numpy_support import from_dtype
import devicefunctions._hooks as hooks
import numpy as np

tools._cached_cc = (9, 0)
particle = np.dtype([("x", "f4"), ("n", "i4"), ("v", "f4", (3,)), ("tag", [("a", "i1"), ("b", "i1")])])

@cuda.jit(device=True, inline="never")
def helper(x):
    return t.looked_up(x) + t.looked_up(x + 1)

class Code:
    handle = 7

hooks.upload = lambda code: hooks.calls.append("setup")
results = []

def compiled(kernel, signature):
    dispatcher = cuda.jit(kernel)
    try:
        code = dispatcher.compile(signature).metadata["cubin"]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    hooks.calls.clear()
    for function in (*dispatcher._module_setup_callbacks, *dispatcher._module_teardown_callbacks):
        function(Code)
    return {"code": base64.b64encode(code).decode(), "calls": [*hooks.calls]}

"""


@pytest.fixture(scope="module")
def packaged(wheel_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import `tests/packages/devicefunctions` from, built with numba-cuda-mlir."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects.FrontEnd, "name", front_ends.MLIR)
        return projects.unpacked(wheel_of("devicefunctions"), tmp_path_factory.mktemp("packaged"))


def compiled(library: Path, *cases: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the compiled kernel of each case (a body and argument types `a0`, `a1`, ...): `sass` or `error`.

    The types are Python; in JIT there are names for what they need.
    """
    lines = [JIT]
    for number, (body, *types) in enumerate(cases):
        names = ", ".join(f"a{index}" for index in range(len(types)))
        lines += [f"def kernel{number}({names}):", f"    {body}"]
        lines += [f"results.append(compiled(kernel{number}, types.void({', '.join(types)})))"]
    results: list[dict[str, Any]] = run(library, "\n".join([*lines, "print(json.dumps(results))"]))
    for result in results:
        assert "error" not in result, result
        result["sass"] = cuobjdump(base64.b64decode(result["code"]), "--dump-sass")
    return results


def run(library: Path, script: str) -> Any:
    """Return the JSON that a script prints last, where the packages of `library` can be imported."""
    path = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "AOTCUDA_LOAD": "first-use"}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ADD = ("a0[0] = k.add(a0[1], a0[2])", "types.float32[::1]")
EVERY_TYPE = [
    ("a0[0] = k.times(a0[0], a0[1])", "types.complex64[::1]"),
    ("a0[0] = k.total(a0)", "types.float32[::1]"),
    ("a0[0] = k.split(a0[1])[1][0]", "types.float32[::1]"),
    ("a0[0] = k.polar(a0[1])[1].imag", "types.float32[::1]"),
    ("a0[0] = k.swapped((a0[1], a0[2]), 1j)", "types.float32[::1]"),
    ("a0[0] = k.later(a0[0], a1[0])", "types.NPDatetime('ns')[::1]", "types.NPTimedelta('ns')[::1]"),
    ("a0[0] = k.scaled(a0[0], a1)", "types.float32[::1]", "types.CPointer(types.float32)"),
    ("a0[0] = k.length(a1[0])", "types.float32[::1]", "from_dtype(particle)[::1]"),
]
LOOKED_UP = [
    ("a0[0] = t.looked_up(1) + t.looked_up(2)", "types.float32[::1]"),
    ("a0[0] = helper(1)", "types.float32[::1]"),  # compiled by itself; the compiler leaves behind what it links
]


def test_jit_kernels_inline_packaged_functions(packaged: Path) -> None:
    absent = front_ends.absent("devicefunctions")
    cases = [case for case in EVERY_TYPE if not any(f"k.{name}(" in case[0] for name in absent)]
    results = compiled(packaged, *cases, ADD, *LOOKED_UP)
    assert not any("CALL" in result["sass"] for result in results)
    # Link items and callbacks come along once.
    assert [result["calls"] for result in results[-3:]] == [[], ["setup", "teardown"], ["setup", "teardown"]]


def test_other_overloads_of_a_name_stay_callable(library: Path) -> None:
    """`a.k.add` stands for two functions of numbers, `a.k.scale` for one of numbers and one of complex numbers."""
    script = """
import json
import a.k as k
from numba_cuda_mlir import cuda, tools, types
tools._cached_cc = (9, 0)

def number(x):
    x[0] = k.scale(x[0], x[1])

def pair(z):
    z[0] = k.scale(z[0], z[1])

found = []
for kernel, dtype in ((number, types.float32), (pair, types.complex64)):
    try:
        cuda.jit(kernel).compile(types.void(dtype[::1]))
        found.append("")
    except Exception as error:
        found.append(str(error))
print(json.dumps([k.__aotcuda__.manifest["frontend"], found]))
"""
    frontend, (number, pair) = run(library, script)
    assert number == ""
    if frontend == "numba-cuda":
        assert "float32" in pair  # the packaged types
    else:
        assert pair == ""
