"""Setup and teardown callbacks, and exceptions of debug kernels."""

from __future__ import annotations

import sys
import threading
import types
from unittest.mock import Mock

import numpy as np
import pytest

import aotcuda
from aotcuda.errors import CudaError, LaunchError
from aotcuda.runtime import driver
from aotcuda.runtime.images import callbacks
from support import libraries, manifests, threads
from support.libraries import Array, State
from support.manifests import kernel

HANDLE = object()
CALLBACKS = [{"setup": "mypkg_hooks:up", "teardown": "mypkg_hooks:down", "origin": "csrc/table.cu"}]


@pytest.fixture
def hooks(cuda, monkeypatch):
    """Return the module of the callbacks, which records each call with the GPU of the current context."""
    module = types.ModuleType("mypkg_hooks")
    module.calls = []

    def recorder(name):
        def callback(handle):
            assert handle is HANDLE
            module.calls.append((name, driver.get().current_device()))

        return callback

    module.up, module.down = recorder("up"), recorder("down")
    monkeypatch.setitem(sys.modules, "mypkg_hooks", module)
    monkeypatch.setattr(callbacks, "open_handle", lambda _, images: (HANDLE, cuda.load(images)))
    at_exit = types.SimpleNamespace(register=lambda _: None, unregister=lambda _: None)
    monkeypatch.setattr(callbacks, "atexit", at_exit)  # the test ends before the process does
    return module


@pytest.fixture
def package(cuda, hooks):
    def make(load="first-use", **options):
        return cuda.package(kernel("k", "void(int32)"), load=load, callbacks=CALLBACKS, **options)

    return make


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_setup_runs_once_at_import_or_before_the_first_launch(cuda, hooks, package, load):
    module = package(load)
    assert hooks.calls == [("up", 0)] * (load == "import")
    for _ in range(3):
        module.k[1, 1](1)
    assert hooks.calls == [("up", 0)]
    assert len(cuda.launches()) == 3


LAUNCHES = {
    "brackets": lambda k, array: k[1, 1, 77](array),
    "configure": lambda k, array: k.configure(1, 1, stream=77, cluster=1)(array),
    "forall": lambda k, array: k.forall(8, stream=77)(array),
}
CAPTURED = {
    "launch": (77, lambda cuda: cuda.array(8)),
    "host array": (77, lambda _: np.zeros(8, "f4")),
    "cupy": (88, lambda _: libraries.make(Array("cupy", State()))),
    "exchange": (88, lambda _: libraries.make(Array("exchange", State()))),
}
"""Captured streams, of the launch or of its array, each with a function that makes the array."""


@pytest.mark.parametrize(("captured", "make"), CAPTURED.values(), ids=CAPTURED)
@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
@pytest.mark.filterwarnings("ignore::aotcuda.HostArrayWarning")
def test_setup_is_refused_during_a_capture(cuda, current, hooks, monkeypatch, launch, captured, make):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    current.update(cupy=88, torch=88)
    cuda.set(capturing=str(captured))
    module = cuda.package(kernel("k", "void(float32[::1])"), load="first-use", callbacks=CALLBACKS)
    array = make(cuda)
    for _ in range(2):
        with pytest.raises(LaunchError, match=rf"stream {captured:#x} is being captured .*\.preload"):
            launch(module.k, array)
    assert (hooks.calls, cuda.launches(), cuda.calls("cuMemAlloc", "cuEventRecord")) == ([], [], [])
    cuda.set(capturing="")
    module.__aotcuda__.preload()
    launch(module.k, array)
    assert hooks.calls == [("up", 0)]
    assert [call["stream"] for call in cuda.launches()] == [77]


def test_an_error_of_loading_during_a_capture_names_preload(cuda, package):
    cuda.set(fail="cuLibraryGetKernel=900")
    with pytest.raises(CudaError, match=r"a stream is being captured into a graph.*preload\(\)"):
        package().k[1, 1](1)


def test_setup_and_teardown_run_once_for_each_context(cuda, hooks, package):
    cuda.set(devices="9.0,9.0")
    module = package()
    for device in (0, 1, 0, 1):
        driver.get().make_current(device)
        module.k[1, 1](1)
    assert hooks.calls == [("up", 0), ("up", 1)]
    module.__aotcuda__.unload()
    module.__aotcuda__.unload()
    assert hooks.calls[2:] == [("down", 0), ("down", 1)]


@pytest.mark.parametrize("raised", [ValueError("no table"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_setup_that_fails_unloads_the_module_and_runs_again(cuda, hooks, package, raised):
    good, hooks.up = hooks.up, Mock(side_effect=raised)
    module = package()
    with pytest.raises((aotcuda.CallbackError, KeyboardInterrupt)) as caught:
        module.k[1, 1](1)
    if isinstance(raised, ValueError):
        expected = "the setup callback mypkg_hooks:up of csrc/table.cu in mypkg.kernels raised ValueError: no table"
        assert str(caught.value) == expected
        assert caught.value.__cause__ is raised
    assert module.__aotcuda__.library is None
    assert cuda.launches() == []
    hooks.up = good
    module.k[1, 1](1)
    assert hooks.calls == [("up", 0)]
    assert (len(cuda.launches()), len(cuda.calls("cuLibraryLoadData"))) == (1, 2)


def test_a_setup_may_launch_kernels_of_its_own_module(cuda, hooks, package):
    module = package()
    hooks.up = lambda _: module.k[1, 1](7)
    module.k[1, 1](8)
    assert [call["parameters"] for call in cuda.launches()] == ["07000000", "08000000"]


def test_a_setup_may_launch_on_other_gpus(cuda, hooks, package):
    cuda.set(devices="9.0,9.0")
    module, record = package(), hooks.up

    def launch_on_each(handle):
        record(handle)
        device = driver.get().current_device()
        for other in (1 - device, device):
            driver.get().make_current(other)
            module.k[1, 1](other)

    hooks.up = launch_on_each
    module.k[1, 1](2)
    assert hooks.calls == [("up", 0), ("up", 1)]


@pytest.mark.parametrize("raised", [OSError("no table"), SystemExit("no table")], ids=["error", "exit"])
def test_threads_that_wait_for_a_failing_setup_raise(hooks, package, raised):
    """They must not repeat a setup whose module is unloaded meanwhile: each would wait for the other."""
    module = package()
    entered, finish = threading.Event(), threading.Event()

    def fail(_):
        hooks.calls.append("up")
        entered.set()
        assert finish.wait(30)
        raise raised

    hooks.up = fail
    table = module.__aotcuda__.ready()
    errors = []

    def enter():
        driver.get().make_current(0)
        with pytest.raises((aotcuda.CallbackError, SystemExit)) as caught:
            table.enter(())
        errors.append(str(caught.value))

    with threads.started(enter, enter, enter):
        assert entered.wait(30)
        finish.set()
    assert hooks.calls == ["up"]
    ended = "setting up mypkg.kernels was ended by a SystemExit in another thread"
    assert sorted(errors) == (["no table", ended, ended] if isinstance(raised, SystemExit) else [errors[0]] * 3)


def test_an_error_of_teardown_is_raised_after_all_teardowns(cuda, hooks, package):
    cuda.set(devices="9.0,9.0")
    module = package()
    for device in (0, 1):
        driver.get().make_current(device)
        module.k[1, 1](1)
    hooks.down = Mock(side_effect=OSError("busy"))
    with pytest.raises(aotcuda.CallbackError, match=r"teardown callback mypkg_hooks:down .* raised OSError: busy"):
        module.__aotcuda__.unload()
    assert hooks.down.call_count == 2
    assert module.__aotcuda__.library is None


def test_callbacks_without_cuda_core_say_what_to_install(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    module = cuda.package(
        kernel("k", "void(int32)"), load="first-use", callbacks=CALLBACKS, handle="cuda.core.ObjectCode"
    )
    with pytest.raises(
        aotcuda.DependencyError, match=r"take a cuda\.core\.ObjectCode.*pip install 'cuda-core\[cu13\]'"
    ):
        module.k[1, 1](1)


AT_EXIT = """
import ctypes, os, sys, types
hooks = sys.modules["hooks"] = types.ModuleType("hooks")
hooks.up = lambda handle: print("up", flush=True)
hooks.down = lambda handle: print("down", flush=True)
from aotcuda.runtime.images import callbacks; from aotcuda.runtime import driver
def load(manifest, fatbin):
    library = ctypes.c_void_p()
    driver.get().call["cuLibraryLoadData"](ctypes.byref(library), fatbin, None, None, 0, None, None, 0)
    return None, library.value
callbacks.open_handle = load
import mypkg.kernels as k
if os.fork() == 0:
    sys.exit(0)
os.wait()
print("end", flush=True)
"""


def test_teardown_runs_once_at_exit_and_not_in_a_forked_child(cuda):
    entries = [{"setup": "hooks:up", "teardown": "hooks:down", "origin": "x.cu"}]
    manifests.write(cuda.packages, [kernel("k", "void(int32)")], callbacks=entries)
    assert cuda.run(AT_EXIT).split() == ["up", "end", "down"]


RAISES = [
    {"code": 1, "exception": "ValueError", "arguments": "too big", "function": "f", "file": "mypkg/a.py", "line": 12},
    {"code": 2, "exception": "mypkg.errors:Odd", "arguments": "", "function": "f", "file": "mypkg/a.py", "line": 14},
]


@pytest.fixture
def debug_kernel(cuda):
    return cuda.package(kernel("k", "void(int32)", raises=RAISES)).k


def test_an_exception_of_a_debug_kernel_is_raised_with_its_place(cuda, debug_kernel):
    cuda.set(store="k_0__errcode__=1,k_0__tidx__=5,k_0__ctaidy__=2")
    expected = r"in f \(mypkg/a.py:12\), k_0 of mypkg.kernels, thread \[5, 0, 0\] of block \[0, 2, 0\]: too big"
    with pytest.raises(ValueError, match=expected):
        debug_kernel[1, 1](1)


def test_an_exception_class_of_the_user_is_named_once(cuda, debug_kernel, monkeypatch):
    cuda.set(store="k_0__errcode__=2")
    with pytest.raises(aotcuda.DeviceError, match=r"mypkg.errors:Odd in f \(mypkg/a.py:14\)"):
        debug_kernel[1, 1](1)
    monkeypatch.delenv("FAKE_CUDA_STORE")
    debug_kernel[1, 1](1)


@pytest.mark.usefixtures("path")
def test_threads_wait_for_a_setup_that_launches(cuda, hooks, package, monkeypatch):
    module = package()
    order, entered, waiting, finish = [], threading.Event(), threading.Event(), threading.Event()
    set_up = callbacks.Callbacks.set_up

    def recorded_set_up(self):
        if entered.is_set():
            waiting.set()
        set_up(self)

    def up(_handle):
        for _ in range(3):
            module.k[1, 1](0)
        entered.set()
        assert finish.wait(30)
        order.append("set up")

    def launch(number):
        driver.get().make_current(0)
        module.k[1, 1](number)
        order.append(number)
        waiting.set()  # a launch that does not wait comes here first, and the assertion below fails

    hooks.up = up
    with threads.started(lambda: launch(1)):
        assert entered.wait(30)
        monkeypatch.setattr(callbacks.Callbacks, "set_up", recorded_set_up)
        with threads.started(lambda: launch(2)):
            assert waiting.wait(30)
            finish.set()
    assert order[0] == "set up"
    assert len(cuda.launches()) == 5
