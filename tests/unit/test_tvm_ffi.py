"""Functions of TVM-FFI that launch packaged kernels, on the stand-in. The rest is in tests/gpu."""

from __future__ import annotations

import pytest

from aotcuda.errors import LaunchError
from support import manifests

tvm_ffi = pytest.importorskip("tvm_ffi")
import aotcuda.tvm_ffi  # noqa: E402 (it imports TVM-FFI)


@pytest.fixture
def fill(cuda):
    return cuda.package(manifests.kernel("fill", "void(int32, float32)")).fill


@pytest.mark.parametrize(
    ("options", "grid"),
    [
        ({"grid": (2, 3), "block": 32}, [2, 3, 1]),
        ({"grid": lambda count, _value: count, "block": 32}, [7, 1, 1]),
        ({"forall": 65, "block": 32}, [3, 1, 1]),
        ({"forall": lambda count, _value: 10 * count, "block": 32}, [3, 1, 1]),
    ],
)
def test_a_function_launches_with_its_configuration(cuda, fill, options, grid):
    function = aotcuda.tvm_ffi.function(fill, **options)
    assert isinstance(function, tvm_ffi.Function)
    function(7, 2.5)
    (launch,) = cuda.launches()
    assert (launch["grid"], launch["block"]) == (grid, [32, 1, 1])
    fill[1, 32](7, 2.5)
    assert launch["parameters"] == cuda.launches()[-1]["parameters"]


def test_tensors_on_the_host_are_refused(cuda):
    import numpy as np

    kernel = cuda.package(manifests.kernel("f", "void(float32[::1])")).f
    with pytest.raises(Exception, match="in the host's memory"):
        aotcuda.tvm_ffi.function(kernel, grid=1, block=1)(tvm_ffi.from_dlpack(np.zeros(4, "float32")))


@pytest.mark.parametrize("options", [{}, {"grid": 1}, {"grid": 1, "block": 1, "forall": 2}])
def test_grid_and_forall_exclude_each_other(fill, options):
    with pytest.raises(LaunchError, match="either grid= and block=, or forall="):
        aotcuda.tvm_ffi.function(fill, **options)
