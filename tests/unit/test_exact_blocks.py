"""Test launches of kernels that were compiled for one block size."""

from __future__ import annotations

import pytest

from aotcuda.errors import LaunchError
from support.manifests import kernel


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("only", [(128, 1, 1), (8, 4, 2), (1, 1, 1)])
def test_only_the_compiled_block_is_launched(cuda, only):
    k = cuda.package(kernel("k", "void(int32)", block=list(only))).k
    x, y, z = only
    blocks = [only, *([x] if (y, z) == (1, 1) else [])]
    for _ in range(3):
        for block in blocks:
            k[2, block](1)
            k.configure(2, block)(1)
        for block in (x + 1, (x, y + 1), (x, y, z + 1), (x * y * z, 2), (max(x - 1, 1), y, z + (x == 1)), 64):
            with pytest.raises(LaunchError, match=r"the kernel was compiled for blocks of .* alone"):
                k[2, block](1)
    assert {tuple(launch["block"]) for launch in cuda.launches()} == {only}


@pytest.mark.usefixtures("path")
def test_forall_takes_the_compiled_block(cuda):
    k = cuda.package(kernel("k", "void(int32)", block=[96, 1, 1])).k
    for n in (1, 97, 1000):
        k.forall(n)(1)
    assert [(launch["grid"][0], launch["block"][0]) for launch in cuda.launches()] == [(1, 96), (2, 96), (11, 96)]
    with pytest.raises(LaunchError, match=r"blocks of .* alone"):
        k.forall(8, 32)(1)


@pytest.mark.usefixtures("path")
def test_forall_refuses_a_compiled_block_of_several_dimensions(cuda):
    k = cuda.package(kernel("k", "void(int32)", block=[8, 8, 1])).k
    for _ in range(3):
        with pytest.raises(LaunchError, match=r"blocks of \(8, 8, 1\) alone"):
            k.forall(100)(1)
    assert cuda.launches() == []


@pytest.mark.usefixtures("path")
def test_upper_bound_admits_smaller_blocks(cuda):
    k = cuda.package(kernel("k", "void(int32)", launch_bounds=[128])).k
    for block in (1, 32, 128):
        for _ in range(3):
            k[1, block](1)
    with pytest.raises(LaunchError, match="launch bounds, 128"):
        k[1, 129](1)
