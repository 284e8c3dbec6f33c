"""Unload a module while other threads launch its kernels: no handle of unloaded images reaches the driver.

The stand-in driver holds launches as long as a test wants, and logs a crash if their images are unloaded meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import types

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CallbackError, CudaError
from aotcuda.runtime import driver
from aotcuda.runtime.images import callbacks
from support import threads
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")

CALLBACKS = [{"setup": "mypkg_hooks:up", "teardown": "mypkg_hooks:down", "origin": "csrc/table.cu"}]


@pytest.fixture
def module(cuda):
    return cuda.package(kernel("k", "void(int32)"))


@pytest.fixture
def hooks(cuda, monkeypatch):
    """Return a module of callbacks that record their calls, for a package that has them."""
    module = types.ModuleType("mypkg_hooks")
    module.calls = []
    module.up = lambda _: module.calls.append("up")
    module.down = lambda _: module.calls.append("down")
    monkeypatch.setitem(sys.modules, "mypkg_hooks", module)
    monkeypatch.setattr(callbacks, "open_handle", lambda _, images: ("handle", cuda.load(images)))
    at_exit = types.SimpleNamespace(register=lambda _: None, unregister=lambda _: None)
    monkeypatch.setattr(callbacks, "atexit", at_exit)  # the test ends before the process does
    return module


@pytest.fixture
def with_callbacks(cuda, hooks):
    return cuda.package(
        kernel("k", "void(int32)"), load="first-use", callbacks=CALLBACKS, handle="cuda.core.ObjectCode"
    )


def names(cuda):
    """Return the driver calls that concern the images, in order."""
    return [call["call"] for call in cuda.calls("cuLaunchKernel", "cuLibraryUnload", "crash")]


def test_forked_child_leaves_its_parents_images_alone(cuda, module, hooks):
    other = cuda.package(kernel("j", "void(int32)"), name="mypkg.other", callbacks=CALLBACKS)
    module.k[1, 1](1)
    other.j[1, 1](1)
    loaded = len(cuda.calls("cuLibraryLoadData"))
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            module.__aotcuda__.unload()
            other.__aotcuda__.unload()
            os.write(writer, b",".join(each.encode() for each in hooks.calls))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 100) == b"up"
    os.close(reader)
    assert cuda.calls("cuLibraryUnload") == []
    module.k[1, 1](1)
    assert len(cuda.calls("cuLibraryLoadData")) == loaded
    other.__aotcuda__.unload()
    assert hooks.calls == ["up", "down"]


def test_unload_while_another_thread_imports_the_driver(cuda, monkeypatch):
    module = cuda.package(kernel("k", "void(int32)"), load="first-use")
    monkeypatch.setattr("aotcuda.runtime.images.images.imported", lambda _name: types.ModuleType("driver"))
    module.__aotcuda__.unload()
    module.k[1, 1](1)
    assert len(cuda.launches()) == 1


@pytest.fixture
def when_unload_waits(monkeypatch):
    """Return a function that sets what happens, once, when an unload waits for a launch of another thread."""
    steps = []
    monkeypatch.setattr(time, "sleep", lambda _seconds: steps.pop()() if steps else None)
    return steps.append


@pytest.mark.parametrize("before", [0, 3], ids=["first launch", "later launch"])
def test_unload_waits_for_launch_in_progress(cuda, module, before, when_unload_waits):
    run = module.k[1, 1]
    for _ in range(before):
        run(1)
    driver.get()
    cuda.hold(True)
    during = []

    def release():
        during.append(names(cuda).count("cuLibraryUnload"))
        cuda.hold(False)

    when_unload_waits(release)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        module.__aotcuda__.unload()
    assert during == [0]
    assert names(cuda) == ["cuLaunchKernel"] * (before + 1) + ["cuLibraryUnload"]
    run(3)
    module.__aotcuda__.unload()
    assert names(cuda).count("cuLibraryUnload") == len(cuda.calls("cuLibraryLoadData")) == 2


def test_unload_waits_for_the_kernels_of_each_gpu(cuda, hooks):
    cuda.set(devices="9.0,9.0")
    other = cuda.package(kernel("j", "void(int32)"), name="mypkg.other", load="first-use", callbacks=CALLBACKS)
    for device in (0, 1):
        driver.get().make_current(device)
        other.j[1, 1](1)
    hooks.down = lambda _: hooks.calls.append([call["device"] for call in cuda.calls("cuCtxSynchronize")])
    other.__aotcuda__.unload()
    assert hooks.calls == ["up", "up", [1, 0], [1, 0]]


class Unloading:
    """An array whose description unloads the module of the launch that reads it."""

    def __init__(self, array, module):
        self._array = array
        self._module = module

    @property
    def __cuda_array_interface__(self):
        self._module.__aotcuda__.unload()
        return self._array.__cuda_array_interface__


def test_code_that_a_launch_runs_may_unload(cuda):
    module = cuda.package(kernel("a", "void(float32[::1])"))
    array = Unloading(cuda.array(np.zeros(4, "<f4")), module)
    for number in range(1, 5):
        module.a[1, 1](array)
        assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData")) == number
    assert len(cuda.launches()) == 4
    assert "crash" not in names(cuda)


def test_setup_callback_may_unload(cuda, hooks, with_callbacks):
    def up(_handle):
        hooks.calls.append("up")
        with_callbacks.__aotcuda__.unload()
        assert cuda.calls("cuLibraryUnload") == []

    hooks.up = up
    with_callbacks.k[1, 1](1)
    assert (hooks.calls, len(cuda.launches())) == (["up", "down"], 1)


def test_last_launch_unloads_what_another_has_marked(cuda, module):
    """Two launches are in progress, and code of the first one unloads."""
    arrays = cuda.package(kernel("a", "void(float32[::1])"), name="mypkg.arrays")
    array = cuda.array(np.zeros(4, "<f4"))
    entered, ended = threading.Event(), threading.Event()

    class Waiting:
        @property
        def __cuda_array_interface__(self):
            entered.set()
            assert ended.wait(30)
            return array.__cuda_array_interface__

    with threads.started(lambda: arrays.a[1, 1](Waiting())):
        assert entered.wait(30)
        arrays.a[1, 1](Unloading(array, arrays))
        assert cuda.calls("cuLibraryUnload") == []
        ended.set()
    assert names(cuda) == ["cuLaunchKernel", "cuLaunchKernel", "cuLibraryUnload"]


def test_failed_launches_do_not_delay_unload(cuda, module):
    run = module.k[1, 1]
    cuda.set(fail="cuLaunchKernel=2@2;cuLaunchKernel=2@4")
    for value in (1, 2, "wrong", 2**40, 3, 4):
        with contextlib.suppress(ArgumentError, CudaError):
            run(value)
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == 1


def failed(_):
    message = "the table is gone"
    raise OSError(message)


def test_failed_teardown_does_not_hide_the_error_of_a_setup(cuda, hooks, with_callbacks):
    cuda.set(devices="9.0,9.0")
    with_callbacks.k[1, 1](1)
    hooks.up = hooks.down = failed
    driver.get().make_current(1)
    with pytest.raises(CallbackError, match="the setup callback"):
        with_callbacks.__aotcuda__.preload()


def test_setup_that_launches_during_unload_does_not_deadlock(cuda, hooks, with_callbacks, when_unload_waits):
    """The launch of the setup callback loads new images."""
    entered, unloading = threading.Event(), threading.Event()

    def up(_handle):
        hooks.calls.append("up")
        if not entered.is_set():
            entered.set()
            assert unloading.wait(30)
            with_callbacks.k[1, 1](7)

    hooks.up = up
    when_unload_waits(unloading.set)
    with threads.started(lambda: with_callbacks.k[1, 1](8)):
        assert entered.wait(30)
        with_callbacks.__aotcuda__.unload()
    with_callbacks.__aotcuda__.unload()
    assert [call["parameters"][:2] for call in cuda.launches()] == ["07", "08"]
    assert sorted(hooks.calls) == ["down", "down", "up", "up"]


def test_unload_waits_for_setup(hooks, with_callbacks, when_unload_waits):
    entered, unloading = threading.Event(), threading.Event()

    def up(_handle):
        hooks.calls.append("up")
        entered.set()
        assert unloading.wait(30)
        hooks.calls.append("set up")

    hooks.up = up
    when_unload_waits(unloading.set)
    with threads.started(with_callbacks.__aotcuda__.preload):
        assert entered.wait(30)
        with_callbacks.__aotcuda__.unload()
    assert hooks.calls == ["up", "set up", "down"]


def test_interrupted_unload_is_finished_by_the_next_one(cuda, module, when_unload_waits):
    run = module.k[1, 1]
    driver.get()
    cuda.hold(True)

    def interrupt():
        cuda.hold(False)
        raise KeyboardInterrupt

    when_unload_waits(interrupt)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        with pytest.raises(KeyboardInterrupt):
            module.__aotcuda__.unload()
    module.__aotcuda__.unload()
    assert names(cuda) == ["cuLaunchKernel", "cuLibraryUnload"]


def test_interrupted_load_unloads_its_images(cuda, monkeypatch):
    """The interpreter raises the interrupt when the call of the driver returns."""
    module, call = cuda.package(kernel("k", "void(int32)"), load="first-use"), driver.get().call
    load = call["cuLibraryLoadData"]

    def interrupted_load(*args):
        load(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(call, "cuLibraryLoadData", interrupted_load)
        with pytest.raises(KeyboardInterrupt):
            module.k[1, 1](1)
    module.k[1, 1](1)
    assert (len(cuda.calls("cuLibraryLoadData")), len(cuda.launches())) == (2, 1)
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == 2
