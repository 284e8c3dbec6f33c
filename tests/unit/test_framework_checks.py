"""Test which kernels and configurations PyTorch, JAX and TVM-FFI may get, without these libraries."""

from __future__ import annotations

import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.integrations.framework_checks import check_configuration, check_kernel
from support.grids import kernel as grid_kernel
from support.grids import variant
from support.manifests import kernel


@pytest.mark.parametrize(
    ("grid", "block", "forall", "accepted"),
    [
        (1, 32, None, True),
        (None, None, 100, True),
        (None, 32, 100, True),
        (1, None, None, False),
        (None, 32, None, False),
        (None, None, None, False),
        (1, None, 100, False),
        (1, 32, 100, False),
    ],
)
def test_either_grid_and_block_or_a_number_of_threads_is_given(grid, block, forall, accepted):
    if accepted:
        check_configuration("k", grid, block, forall)
    else:
        with pytest.raises(LaunchError, match=r"^k needs a configuration: either grid= and block=, or forall="):
            check_configuration("k", grid, block, forall)


def test_kernels_with_a_grid_alone_and_other_objects_are_refused(cuda):
    check_kernel(cuda.package(kernel("k", "void(int32)")).k, "aotcuda.torch.op")
    by_grid = cuda.package(grid_kernel(variant("k", 128)), name="mypkg.tri", by_grid=True, frontend="triton").k
    for refused in (by_grid, print, None):
        with pytest.raises(ArgumentError, match=r"op takes kernels that are launched as kernel\[grid, b"):
            check_kernel(refused, "aotcuda.torch.op")
