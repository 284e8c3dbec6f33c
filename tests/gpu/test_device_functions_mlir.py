"""Packaged device functions in kernels of numba-cuda-mlir: numba-cuda's tests, and some for both compilers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpu import mlir_wheels, test_device_functions
from support import front_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not front_ends.installed(), reason="numba-cuda-mlir is not installed"),
    pytest.mark.filterwarnings("default"),  # what that compiler and CUDA's own packages warn of is their affair
]
cupy = pytest.importorskip("cupy")

REPOSITORY = Path(__file__).parents[2]

_DESCRIPTORS = "the program is written for the first front end's array descriptors and complex arguments"
globals().update(
    front_ends.again(
        test_device_functions,
        {
            "test_function_pointers_and_state_in_cpp": _DESCRIPTORS,
            "test_packaged_kernels_are_launched_from_cpp": _DESCRIPTORS,
            "test_cuda_core_launches_packaged_kernels": _DESCRIPTORS,
            "test_the_example_filters_with_python_functions": "its wheel is the first front end's",
        },
    )
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from mlir_wheels.install(tmp_path_factory)


@pytest.fixture(scope="module")
def cuda() -> Any:
    from numba_cuda_mlir import cuda

    return cuda


def test_with_no_word_about_lto_a_function_is_inlined(library, cuda):
    k = library.plain

    @cuda.jit
    def user(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = k.add_f32(x[i], x[i])

    x, out = cupy.arange(100, dtype="float32"), cupy.zeros(100, "float32")
    user[1, 128](x, out)
    np.testing.assert_array_equal(out.get(), 2 * x.get())
    (compiled,) = user.overloads.values()
    assert compiled.metadata["ltoir"]


def test_callbacks_come_from_a_helper_that_is_not_inlined(library, cuda):
    """The compiler compiles such a helper by itself, and passes on neither what it links nor its callbacks."""
    import devicefunctions._hooks as hooks

    t = library.table
    hooks.calls.clear()

    @cuda.jit(device=True, inline="never")
    def helper(i):
        return t.looked_up(i)

    @cuda.jit
    def user(out):
        i = cuda.grid(1)
        if i < 4:
            out[i] = helper(i) + helper(i + 1)

    out = cupy.zeros(4, "float32")
    user[1, 32](out)
    user[1, 32](out)
    np.testing.assert_array_equal(out.get(), [30, 50, 70, 50])
    assert hooks.calls == ["setup"]


def test_callbacks_run_for_each_loaded_image(library, cuda):
    import devicefunctions._hooks as hooks

    t = library.table
    hooks.calls.clear()

    @cuda.jit
    def user(out):
        i = cuda.grid(1)
        if i < 4:
            out[i] = t.looked_up(i)

    for dtype in ("float32", "float64", "float32"):
        out = cupy.zeros(4, dtype)
        user[1, 32](out)
        np.testing.assert_array_equal(out.get(), [10, 20, 30, 40])
    assert hooks.calls == ["setup", "setup"]  # one image for each signature, and a table in each


# Both compilers in one process, and the functions of one package in kernels of each.
BOTH = """
import json, warnings
warnings.simplefilter("ignore")
import cupy
import numpy as np
import devicefunctions.plain as k
import devicefunctions.table as t
import devicefunctions._hooks as hooks
from numba import cuda as first
from numba_cuda_mlir import cuda as second

def launched(cuda, **options):
    @cuda.jit(**options)
    def user(n, x, out):
        i = cuda.grid(1)
        if i < 4:
            n[i] = k.add_i32(n[i], 5)
            out[i] = k.add(x[i], k.times(x[i], np.float32(2))) + t.looked_up(i)

    n, x, out = cupy.arange(4, dtype="int32"), cupy.arange(4, dtype="float32"), cupy.zeros(4, "float32")
    before = len(hooks.calls)
    user[1, 32](n, x, out)
    user[1, 32](n, x, out)
    return [n.tolist(), out.tolist(), hooks.calls[before:]]

found = [launched(cuda, lto=lto) for cuda in (first, second, first) for lto in (True, False)]
print(json.dumps([k.__aotcuda__.manifest["frontend"], found]))
"""


@pytest.mark.parametrize("built_with", ["numba-cuda", front_ends.MLIR])
def test_one_package_serves_kernels_of_both_compilers(built_with, tmp_path, installed):
    pytest.importorskip("numba_cuda")
    folder = installed / "devicefunctions"
    if built_with == "numba-cuda":
        folder = mlir_wheels.first(tmp_path, "devicefunctions")
    path = os.pathsep.join([str(folder), str(REPOSITORY), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", BOTH],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    frontend, found = json.loads(done.stdout.splitlines()[-1])
    assert frontend == built_with
    assert found == [[[10, 11, 12, 13], [10.0, 23.0, 36.0, 49.0], ["setup"]]] * 6
