"""Test what a driver may lack, and what others may do to its contexts: an error in words, or the launch goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

import pytest

from aotcuda.errors import AotcudaError, CudaError, DriverTooOldError, NoDriverError
from aotcuda.integrations.in_place import numba_proxy
from aotcuda.runtime import driver
from support import threads
from support.manifests import kernel


@pytest.mark.parametrize("name", [*driver._PROTOTYPES, "cuInit", "cuDriverGetVersion", "cuLaunchKernelEx"])
def test_a_function_that_the_driver_lacks_is_named(cuda, monkeypatch, name):
    present = driver.Driver._function
    lacking = {name: f"{name}_of_a_later_driver"}
    monkeypatch.setattr(
        driver.Driver, "_function", lambda self, wanted, *types: present(self, lacking.get(wanted, wanted), *types)
    )
    for method in ("address", "without_types"):
        original = getattr(driver.Driver, method)
        monkeypatch.setattr(
            driver.Driver, method, lambda self, wanted, of=original: of(self, lacking.get(wanted, wanted))
        )
    module = cuda.package(kernel("k", "void(int32)"))
    for _ in range(2):
        with pytest.raises(DriverTooOldError, match=rf"{cuda.library.name} has no {name}.*CUDA 12\.0 or newer"):
            ask(module, name)


def ask(module, name):
    """Launch, which asks for some of the driver's functions, and then for this one."""
    module.k[1, 1](1)
    driver.get().call[name]


def test_a_library_that_is_no_driver_is_named(cuda, monkeypatch):
    other = "kernel32.dll" if sys.platform == "win32" else "libm.so.6"
    monkeypatch.setattr(driver, "LIBRARY", other)
    module = cuda.package(kernel("k", "void(int32)"))
    with pytest.raises(DriverTooOldError, match=f"{other} has no cuInit"):
        module.k[1, 1](1)


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
    """Another library resets the primary context: `cuDevicePrimaryCtxReset`."""

    @pytest.mark.parametrize("before", [1, 3])
    def test_a_launch_after_a_reset_says_what_happened(self, cuda, before):
        k = cuda.package(kernel("k", "void(int32)")).k
        for _ in range(before):
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


def test_a_context_on_an_unknown_gpu_is_an_error(cuda):
    module = cuda.package(kernel("k", "void(int32)"))
    module.k[1, 1](1)
    driver.get().devices[0].handle = 99
    with pytest.raises(CudaError, match=r"CUdevice 10\) that the driver did not count"):
        module.k.get_regs_per_thread()


@pytest.mark.parametrize(("version", "extra"), [("12040", "jit-cu12"), ("13010", "jit-cu13"), (None, "jit-cu13")])
def test_the_extra_to_install_fits_the_driver(cuda, monkeypatch, version, extra):
    if version is None:
        monkeypatch.setattr(driver, "LIBRARY", "libcuda.so.nowhere")
    else:
        monkeypatch.setenv("FAKE_CUDA_VERSION", version)
    assert numba_proxy.requirement("numba") == f"aotcuda[{extra}]"
    assert driver._driver is None, "asking does not start it"


def test_a_launch_works_where_a_gpu_has_no_name(cuda):
    cuda.set(fail="cuDeviceGetName=999")
    module = cuda.package(kernel("k", "void(int32)"))
    module.k[1, 1](1)
    (gpu,) = driver.get().devices
    assert gpu._name == ""
    assert str(gpu) == "GPU 0 (unnamed, compute capability 9.0)"
    cuda.set(fail="")
    assert str(gpu) == "GPU 0 (Stand-in A, compute capability 9.0)"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("starts", [True, False], ids=["starts", "fails"])
def test_a_child_forked_while_the_driver_starts_gets_an_error(monkeypatch, starts):
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def __init__(self):
            begun.set()
            assert go_on.wait(30)
            if not starts:
                raise NoDriverError

    def start():
        with contextlib.suppress(NoDriverError):
            driver.get()

    monkeypatch.setattr(driver, "Driver", Slow)
    monkeypatch.setattr(driver, "_driver", None)
    with threads.started(start):
        assert begun.wait(30)
        amid = forked_says()
        go_on.set()
    assert (amid, forked_says()) == ("ForkError", "ForkError" if starts else "NoDriverError")


def forked_says():
    """Return the error of the driver's start in a child; a child that waits for a lock is killed."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(10)
        try:
            driver.get()
        except AotcudaError as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 100)  # nothing where it was killed
    os.close(reading)
    os.waitpid(child, 0)
    return said.decode()
