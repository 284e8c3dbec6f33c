"""The second front end: its documentation's own examples, and code of both front ends in one image.

"The page" is "Compiling Python functions for use with other languages" in the documentation of numba-cuda-mlir. It
shows what its predecessor's compiler wrote; where 0.6.0 writes something else, the test says what.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration import cuda_cpp, projects
from integration.projects import FrontEnd, build_wheel, content, write
from support.front_ends import installed
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)"),
    pytest.mark.front_end("numba-cuda-mlir"),
]

B32 = (".b32", "")

PAGE = """
import json
from numba_cuda_mlir import cuda, tools
from numba_cuda_mlir.types import float32, int32
tools._cached_cc = (7, 5)  # it asks the driver otherwise

def add(x, y):
    return x + y

print(json.dumps([
    cuda.compile_ptx(add, int32(int32, int32), device=True)[0],
    cuda.compile_ptx(add, int32(int32, int32), device=True, abi="c")[0],
    cuda.compile_ptx(add, float32(float32, float32), device=True, abi="c", abi_info={"abi_name": "add_f32"})[0],
    str(cuda.compile_ptx(add, int32(int32, int32), device=True)[1]),
]))
"""


@pytest.fixture(scope="module")
def page() -> list[str]:
    """Return what `cuda.compile_ptx` itself answers to the page's calls."""
    done = subprocess.run([sys.executable, "-c", PAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_return_type_is_returned_with_the_code(page: list[str]) -> None:
    assert page[3] == "int32"


def test_the_name_in_abi_info_gives_the_prototype_of_the_page(page: list[str]) -> None:
    assert cuda_cpp.prototypes(page[2]) == {"add_f32": ([B32], [B32, B32])}


def test_the_c_abi_gives_the_prototype_of_the_page_under_another_name(page: list[str]) -> None:
    ((name, prototype),) = cuda_cpp.prototypes(page[1]).items()
    assert prototype == ([B32], [B32, B32])
    assert re.search(r"add\.s32\s+%r3, %r2, %r1;\s+st\.param\.b32\s+\[func_retval0\+0\], %r3;", page[1])
    assert name == "_Z3addii"  # the page says: add


def test_the_numba_abi_of_the_page_is_not_what_is_compiled(page: list[str]) -> None:
    # The page shows a pointer for the result before x and y, under a name with ABI tags.
    assert cuda_cpp.prototypes(page[0]) == {"_Z3addii": ([B32], [B32, B32])}


ADD = "def add(x, y):\n    return x + y\n"
NAMES = """
functions.add = "int32(int32, int32)"
functions.add_f32 = { python = "add", signature = "float32(float32, float32)" }
"""


@pytest.fixture
def mlir_project(front_end: str, tmp_path: Path) -> Path:
    return write(tmp_path / "project", ADD, module=NAMES)


@pytest.mark.parametrize("arch", ["75", "100"])
def test_packaged_functions_have_the_prototypes_of_the_page(mlir_project: Path, arch: str) -> None:
    files = content(build_wheel(mlir_project, AOTCUDA_ARCH=f"sm_{arch}"))
    header = files["pkg/k.aotcuda/pkg_k.h"].decode()
    assert "AOTCUDA_DEVICE int add(int x, int y);" in header
    assert "AOTCUDA_DEVICE float add_f32(float x, float y);" in header
    source = '#include "k.h"\nextern "C" __global__ void user(long long *out) { out[0] = (long long)&add; '
    source += "out[1] = (long long)&add_f32; }"
    options = (f"-arch=compute_{arch}", "-dlto", "-rdc=true", "-default-device")
    user = cuda_cpp.compile_source(source, "LTOIR", *options, headers={"k.h": header})
    inputs = [("LTOIR", user), ("FATBIN", files["pkg/k.aotcuda/functions.fatbin"])]
    linked = cuda_cpp.link(inputs, "-lto", "-ptx", f"-arch=compute_{arch}").decode()
    assert cuda_cpp.prototypes(linked) == {"add": ([B32], [B32, B32]), "add_f32": ([B32], [B32, B32])}


CALLER = """
from numba import cuda
add_f32 = cuda.declare_device("add_f32", "float32(float32, float32)", abi="c", link="functions.fatbin")

def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = add_f32(x[i], 1.0)
"""


@pytest.mark.parametrize("caller", ["numba-cuda", "numba-cuda-mlir"])
def test_functions_of_one_front_end_link_into_kernels_of_the_other(
    front_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: str
) -> None:
    callee = "numba-cuda" if caller == "numba-cuda-mlir" else "numba-cuda-mlir"
    monkeypatch.setattr(FrontEnd, "name", callee)
    environ = {"AOTCUDA_ARCH": "sm_80"}
    files = content(build_wheel(write(tmp_path / "callee", ADD, module=NAMES), **environ))
    monkeypatch.setattr(FrontEnd, "name", caller)
    project = write(tmp_path / "caller", CALLER, module='kernels.k = "void(float32[::1])"')
    (project / "functions.fatbin").write_bytes(files["pkg/k.aotcuda/functions.fatbin"])
    built = content(build_wheel(project, **environ))
    assert projects.manifest_of(built, "pkg.k")["frontend"] == caller
    code = cuobjdump(built["pkg/k.aotcuda/kernels.fatbin"], "--dump-sass")
    assert "FADD" in code
    assert "CALL" not in code
