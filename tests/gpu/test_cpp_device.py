"""Test grid synchronization, device variables, launches by kernels, fma and small floats in CUDA C++ on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def package(packaged):
    """Return a function from a module's name to the module of `tests/packages/cppdevice`."""
    return lambda name: packaged("cppdevice", f"cppdevice.{name}")


@pytest.mark.parametrize("module", ["kernels", "python"])
def test_kernels_that_synchronize_their_grid_launch_cooperatively(package, module):
    numbers, following = cupy.full(64, -1, "int32"), cupy.full(64, -1, "int32")
    for _ in range(3):
        package(module).synced[64, 32](numbers, following)
    cupy.cuda.Device().synchronize()
    assert following.tolist() == [*range(1, 64), 0]


def test_device_variables_are_written_and_read_by_name(package):
    k = package("kernels")
    out = cupy.zeros(4, "float32")
    k.looked_up[1, 4](out)
    assert out.tolist() == [1, 2, 3, 4]
    table, calls = k.__aotcuda__.symbol("table"), k.__aotcuda__.symbol("calls")
    assert (table.nbytes, calls.nbytes) == (16, 4)
    table.copy_from(np.array([10, 20, 30, 40], "float32"))
    k.looked_up[1, 4](out)
    assert out.tolist() == [10, 20, 30, 40]
    count = np.zeros(1, "int32")
    calls.copy_to(count)
    assert count[0] == 8


@pytest.mark.parametrize(
    ("module", "name", "fused"), [("kernels", "exact", 0), ("kernels", "fused", 1), ("python", "exact", 0)]
)
def test_fma_decides_how_multiply_add_is_rounded(package, module, name, fused):
    # Rounded, the product is 1 + 2**-11; fused, it is 2**-24 more.
    x = np.array([1 + 2**-12, 1 + 2**-12, -1 - 2**-11], "float32")
    out = cupy.full(1, 5, "float32")
    getattr(package(module), name)[1, 1](cupy.asarray(x), out)
    assert out.item() == (2.0**-24 if fused else 0)


def test_kernel_launches_kernel(package):
    x = cupy.zeros(32, "float32")
    package("launching").parent[1, 1](x)
    cupy.cuda.Device().synchronize()
    assert x.tolist() == [1] * 32


@pytest.mark.parametrize(
    "values", [(1.0, 2.0, 3.0), (0.1, 0.1, 0.1), (-3.3e38, 448, -57344), (1e-40, 2.0**-9, 2.0**-16)]
)
def test_bfloat16_and_float8_scalars_arrive_rounded(package, values):
    from aotcuda.runtime.launch.arguments import small_floats
    from support.small_floats import decode

    out = cupy.zeros(3, "float32")
    package("small").numbers[1, 1](*values, out)
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    rounded = [decode(name, small_floats.encode(name, value)) for name, value in zip(names, values, strict=True)]
    assert out.tolist() == rounded


def test_float8_and_bfloat16_tensors_arrive(package):
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.5, -2.0, 448.0], device="cuda").to(torch.float8_e4m3fn)
    y = torch.tensor([1.0, 2.0, 3.0], device="cuda", dtype=torch.bfloat16)
    out = torch.zeros(3, device="cuda")
    package("small").widened[1, 3](x, y, out)
    assert out.tolist() == [1.5, 0.0, 451.0]
