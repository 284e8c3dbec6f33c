"""Errors of drivers that lack functions, fail to start, or have lost their context."""

from __future__ import annotations

import pytest

from aotcuda.errors import CudaError, DriverTooOldError
from aotcuda.integrations.in_place import numba_proxy
from aotcuda.runtime import driver
from support import threads
from support.manifests import kernel


@pytest.mark.parametrize("name", [*driver._PROTOTYPES, "cuInit", "cuDriverGetVersion", "cuLaunchKernelEx"])
def test_a_function_that_the_driver_lacks_is_named(cuda, monkeypatch, name):
    renamed = {name: f"{name}_of_a_later_driver"}
    for method in ("_function", "address", "without_types"):
        original = getattr(driver.Driver, method)
        monkeypatch.setattr(
            driver.Driver,
            method,
            lambda self, function, *types, call=original: call(self, renamed.get(function, function), *types),
        )
    module = cuda.package(kernel("k", "void(int32)"))
    for _ in range(2):
        with pytest.raises(DriverTooOldError, match=rf"{cuda.library.name} has no {name}.*CUDA 12\.0 or newer"):
            launch_and_find(module, name)


def launch_and_find(module, name):
    """Launch, which needs some of the driver's functions, and look for the function of this name."""
    module.k[1, 1](1)
    driver.get().call[name]


@pytest.mark.parametrize(
    ("code", "hint"), [(803, "of different versions: restart"), (802, "fabric manager"), (999, "unknown error$")]
)
def test_a_driver_that_cannot_start_says_why(cuda, code, hint):
    cuda.set(fail=f"cuInit={code}")
    module = cuda.package(kernel("k", "void(int32)"))
    with pytest.raises(CudaError, match=f"the CUDA driver could not be started: .*{hint}") as caught:
        module.k[1, 1](1)
    assert caught.value.code == code


@pytest.mark.usefixtures("path")
class TestReset:
    """Launches after another library's call of `cuDevicePrimaryCtxReset`, which destroys the primary context."""

    @pytest.mark.parametrize("launches", [1, 3])
    def test_a_launch_after_a_reset_names_the_reset(self, cuda, launches):
        k = cuda.package(kernel("k", "void(int32)")).k
        for _ in range(launches):
            k[1, 1](1)
        cuda.destroy_context()
        for _ in range(2):
            with pytest.raises(
                CudaError, match=r"CONTEXT_IS_DESTROYED.*was reset.*freed its arrays and streams"
            ) as caught:
                k[1, 1](1)
        assert caught.value.name == "CUDA_ERROR_CONTEXT_IS_DESTROYED"
        assert "earlier launch" not in str(caught.value)

    def test_a_thread_without_a_context_gets_a_new_one(self, cuda):
        k = cuda.package(kernel("k", "void(int32)")).k
        for _ in range(3):
            k[1, 1](1)
        cuda.destroy_context()
        assert threads.at_once([lambda: k[1, 1](2)]) == []
        assert len(cuda.launches()) == 4
        k[1, 1](3)
        assert len(cuda.launches()) == 5


@pytest.mark.parametrize(("version", "extra"), [("12040", "jit-cu12"), ("13010", "jit-cu13"), (None, "jit-cu13")])
def test_the_extra_to_install_fits_the_driver(cuda, monkeypatch, version, extra):
    if version is None:
        monkeypatch.setattr(driver, "LIBRARY", "libcuda.so.nowhere")
    else:
        monkeypatch.setenv("FAKE_CUDA_VERSION", version)
    assert numba_proxy.requirement("numba") == f"aotcuda[{extra}]"
    assert driver._driver is None, "the query starts no driver"
