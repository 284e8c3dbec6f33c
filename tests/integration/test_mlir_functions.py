"""The second front end's exported device functions: the tests of the first one's, over the same package."""

from __future__ import annotations

import pytest

from integration import projects, test_functions
from support.front_ends import again

pytestmark = pytest.mark.usefixtures("mlir")

globals().update(
    again(
        test_functions,
        {
            "test_the_packaged_code_links_into_a_cpp_kernel_for_old_and_new_gpus": "complex numbers by value; below",
        },
    )
)


@pytest.fixture(scope="module")
def features(mlir: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    project = projects.copy("features", tmp_path_factory.mktemp("features") / "project")
    environ = {"AOTCUDA_ARCH": "sm_75;sm_90;sm_90a;sm_100f;compute_75;compute_90a"}
    return projects.content(projects.build_wheel(project, **environ))


@pytest.mark.parametrize("arch", ["75", "86", "90", "120"])
def test_the_packaged_code_links_into_a_cpp_kernel_for_old_and_new_gpus(
    arch: str, header: str, functions: bytes
) -> None:
    calls = """
    store((int *)out, answer());
    out[1] = wide(p[0], p[1], p[2], p[3]) + negate_i8(p[4]) + is_positive(p[5]);
    aotcuda_complex128 z = square_c128({p[6], p[7]});
    p[8] = z.real + z.imag + square_c64({p[9], p[10]}).imag + sum_pair(p[11], p[12]) + root(p[13]) + *second(p);
    """
    user = test_functions.user_of(calls, header, arch)
    linked = test_functions.cuda_cpp.link([("LTOIR", user), ("FATBIN", functions)], "-lto", f"-arch=sm_{arch}")
    kernels = test_functions.cubin.read(linked, "the linked kernel").kernels
    assert [kernel.name for kernel in kernels] == ["user"]
