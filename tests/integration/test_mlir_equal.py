"""Test that numba-cuda and numba-cuda-mlir build one module alike, if one key and one import are changed."""

from __future__ import annotations

import pytest

from integration import projects
from integration.projects import build_wheel, content, manifest_of, write
from support.front_ends import MLIR, NUMBA, is_mlir_installed
from support.images import cuobjdump

pytestmark = pytest.mark.skipif(not is_mlir_installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)")

IMPORT = "from numba import cuda\n"
SOURCE = """
import numba
import numpy as np

from numba import cuda

particle = np.dtype([("x", "f4"), ("id", "i8")], align=True)
failing = cuda.declare_device("failing", "float32(float32)", link=cuda.CUSource(
    'extern "C" __device__ int failing(float *result, float x) { *result = 2 * x; return x > 0; }'
))


@numba.njit
def twice(x):
    return x * 2


@cuda.jit(device=True)
def positive(x):
    if x < 0:
        raise ValueError("negative")
    return x


def tiles(x, out):
    tile = cuda.shared.array(64, cuda.float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = twice(x[i])
    cuda.syncthreads()
    out[i] = cuda.libdevice.sinf(tile[63 - cuda.threadIdx.x])


def transposes(a, b):
    b[0, 1] = a[1, -1]
    b[1, 0].x = a[0, 1].id


def ends_thread(x):
    x[0] = positive(x[1])
    x[1] = failing(x[2])


def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)


def add(x, y):
    return x + y
"""
MODULE = """
kernels.tiles = "void(float32[::1], float32[::1])"
kernels.transposes = "void(particle[:, :], particle[:, ::1])"
kernels.ends_thread = "void(float32[::1])"
functions.factorial = "int64(int64)"
functions.add_f32 = { python = "add", signature = "float32(float32, float32)" }
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Return the files of each compiler's wheel. The key, the import and the extra differ."""
    pytest.importorskip("numba")
    wheels = {}
    for name in (NUMBA, MLIR):
        project = write(tmp_path_factory.mktemp(name) / "project", SOURCE, module=MODULE)
        if name == MLIR:
            config, source = project / "pyproject.toml", project / "pkg" / "_k.py"
            text = config.read_text().replace("aotcuda[cu13]", "aotcuda[mlir-cu13]")
            config.write_text(text.replace(f"[{projects.MODULE}]\n", f'[{projects.MODULE}]\nfrontend = "{MLIR}"\n'))
            source.write_text(source.read_text().replace(IMPORT, "from numba_cuda_mlir import cuda\n"))
        wheels[name] = content(build_wheel(project, AOTCUDA_ARCH="sm_80"))
    return wheels


def test_both_modules_have_equal_kernels_and_functions(wheels: dict[str, dict[str, bytes]]) -> None:
    contents = []
    for front_end, files in wheels.items():
        manifest = manifest_of(files, "pkg.k")
        assert manifest["frontend"] == front_end
        kernels = {
            kernel["name"]: [(overload["signature"], overload["symbol"]) for overload in kernel["overloads"]]
            for kernel in manifest["kernels"]
        }
        functions = [(function["name"], function["signature"]) for function in manifest["functions"]]
        contents.append((kernels, functions, files["pkg/k.pyi"]))
    assert contents[0] == contents[1]
    assert len(contents[0][0]) == MODULE.count("kernels.")


def test_status_or_exception_of_helper_ends_the_thread(wheels: dict[str, dict[str, bytes]]) -> None:
    code = cuobjdump(wheels[MLIR]["pkg/k.aotcuda/kernels.fatbin"], "--dump-sass").partition("Function : ends_thread\n")[
        2
    ]
    code = code.partition("Function : ")[0]
    assert code.count("EXIT") >= 3  # an exit in each of two helpers, and the end of the kernel
