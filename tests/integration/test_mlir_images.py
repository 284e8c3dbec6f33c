"""The second front end's images: the tests of the first one's, over the same package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin
from integration import cuda_cpp, projects, test_images
from support.front_ends import again

if TYPE_CHECKING:
    from aotcuda.manifest import Overload

pytestmark = pytest.mark.usefixtures("mlir")

globals().update(
    again(
        test_images,
        {
            "test_shared_memory_of_kernels_in_one_module_is_their_own": "names of its own; see below",
            "test_members_of_enumerations_are_numbers_in_the_code": "the compiler cannot store them in arrays",
            "test_parameters_lie_where_cuda_cpp_would_put_them": "memrefs, complex numbers as structures; see below",
        },
    )
)


@pytest.fixture(scope="module")
def features(mlir: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    project = projects.copy("features", tmp_path_factory.mktemp("features") / "project")
    environ = {"AOTCUDA_ARCH": "sm_75;sm_90;sm_90a;sm_100f;compute_75;compute_90a"}
    return projects.content(projects.build_wheel(project, **environ))


ARRAY = "void*, void*, long long"
CPP_KERNELS = f"""
struct Complex64 {{ float real, imag; }};
struct Complex128 {{ double real, imag; }};
extern "C" {{
__global__ void scalars(bool, signed char, unsigned char, short, unsigned short, int, unsigned, long long,
    unsigned long long, unsigned short, float, double, float*, {ARRAY}, long long, long long) {{}}
__global__ void nested(float, signed char, signed char, double, Complex64, Complex128,
    {ARRAY}, long long, long long) {{}}
__global__ void helpers__0({ARRAY}, long long, long long, {ARRAY}, long long, long long) {{}}
__global__ void scratch({ARRAY}, long long, long long, int) {{}}
}}
"""


@pytest.mark.parametrize("symbol", ["scalars", "nested", "helpers__0", "scratch"])
def test_parameters_lie_where_cuda_cpp_would_put_them(symbol: str, overloads: dict[str, Overload]) -> None:
    compiled = cubin.read(cuda_cpp.compile_source(CPP_KERNELS, "CUBIN", "-arch=sm_75"), "the C++ kernels")
    theirs = next(kernel for kernel in compiled.kernels if kernel.name == symbol)
    whole = [(offset, size) for _, offset, size in sorted(theirs.parameters)]
    starts = {offset for offset, _ in test_images.words(overloads[symbol]["parameters"])}
    assert {offset for offset, _ in whole} <= starts  # of a complex number, the first of two
    assert overloads[symbol]["parameter_bytes"] == theirs.parameter_bytes


def test_an_array_is_a_memref_with_its_strides_in_elements(overloads: dict[str, Overload]) -> None:
    array = overloads["layouts"]["parameters"][2]
    assert array["words"] == ["data", "data", "zero", "shape0", "shape1", "step0", "step1"]


def test_shared_memory_of_kernels_in_one_module_is_their_own(ptx: dict[str, str], kernels: bytes) -> None:
    usage = test_images.resource_usage(test_images.image(kernels, "sm_75"))
    assert [int(usage[name]["SHARED"]) for name in ("reverse", "rotate", "histogram")] == [256, 256, 1024]
    assert int(usage["times_two"]["SHARED"]) == 0


BOTH = """
from numba_cuda_mlir import cuda
from numba_cuda_mlir.types import float32

def both(x):
    fixed = cuda.shared.array(64, float32)
    given = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    fixed[i] = x[i]
    given[i] = x[i]
    cuda.syncthreads()
    x[i] = fixed[63 - i] + given[63 - i]
"""


def test_memory_of_a_size_given_at_launch_lies_behind_that_of_a_fixed_size(tmp_path) -> None:
    # The compiler alone makes the first an array of one byte, before the second or behind it.
    project = projects.write(tmp_path / "project", BOTH, module='kernels.both = "void(float32[::1])"')
    environ = {"AOTCUDA_ARCH": "sm_80;sm_100;compute_80;compute_100"}
    data = projects.content(projects.build_wheel(project, **environ))["pkg/k.aotcuda/kernels.fatbin"]
    for arch in ("sm_80", "sm_100"):
        usage = test_images.resource_usage(test_images.image(data, arch))["both"]
        assert int(usage["SHARED"]) % 1024 == 256  # later GPUs keep 1024 bytes for themselves
    for arch in ("compute_80", "compute_100"):
        text = test_images.image(data, arch).decode()
        assert ".extern .shared" in text
