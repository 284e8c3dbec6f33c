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

import pytest

from aotcuda.errors import ArgumentError, CallbackError, CudaError
from aotcuda.runtime import driver
from aotcuda.runtime.images import callbacks
from aotcuda.runtime.kernel_table import KernelTable
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


@pytest.mark.parametrize("before", [0, 3], ids=["first launch", "later launch"])
def test_unload_keeps_images_of_launch_in_progress(cuda, module, before):
    run = module.k[1, 1]
    for _ in range(before):
        run(1)
    driver.get()
    cuda.hold(True)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        module.__aotcuda__.unload()
        unloads = cuda.calls("cuLibraryUnload")[:]
        cuda.hold(False)
    assert unloads == []
    run(3)
    module.__aotcuda__.unload()
    assert names(cuda).count("cuLibraryUnload") == len(cuda.calls("cuLibraryLoadData")) == 2
    assert names(cuda).count("cuLaunchKernel") == before + 2
    assert "crash" not in names(cuda)


def test_unloading_waits_for_launch_that_ends_soon(cuda, module, monkeypatch):
    run = module.k[1, 1]
    for _ in range(3):
        run(1)
    cuda.hold(True)
    ended = threading.Event()

    def release(_seconds):
        cuda.hold(False)
        assert ended.wait(30)

    monkeypatch.setattr(time, "sleep", release)
    with threads.started(lambda: (run(2), ended.set())):
        cuda.await_launch()
        module.__aotcuda__.unload()
    assert names(cuda) == ["cuLaunchKernel"] * 4 + ["cuLibraryUnload"]


def test_unload_during_launch_mixes_no_images(cuda, module, monkeypatch):
    k = module.k
    select = KernelTable.select
    order = iter([(False, True), (True, False), (True, True)])

    def unload_around(self, *args):
        before, after = next(order, (False, False))
        if before:
            module.__aotcuda__.unload()
        selection = select(self, *args)
        if after:
            module.__aotcuda__.unload()
        return selection

    monkeypatch.setattr(KernelTable, "select", unload_around)
    for number in range(8):
        k[1, number + 1](number)
        k.forall(number + 1, block=number + 1)(number)
    assert [call["block"][0] for call in cuda.launches()] == [number + 1 for number in range(8) for _ in range(2)]
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))


def test_failed_launches_do_not_delay_unload(cuda, module):
    run = module.k[1, 1]
    cuda.set(fail="cuLaunchKernel=2@2;cuLaunchKernel=2@4")
    for value in (1, 2, "wrong", 2**40, 3, 4):
        with contextlib.suppress(ArgumentError, CudaError):
            run(value)
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == 1


def test_teardown_waits_for_launches_in_driver(cuda, hooks, with_callbacks):
    run = with_callbacks.k[1, 1]
    for _ in range(3):
        run(1)
    cuda.hold(True)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        with_callbacks.__aotcuda__.unload()
        during = hooks.calls[:]
        cuda.hold(False)
    assert during == ["up"]
    with_callbacks.__aotcuda__.unload()
    assert hooks.calls == ["up", "down"]


def failed(_):
    message = "the table is gone"
    raise OSError(message)


def test_failed_teardown_of_old_images_does_not_end_a_launch(cuda, hooks, with_callbacks):
    run = with_callbacks.k[1, 1]
    run(1)
    hooks.down = failed
    cuda.hold(True)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        with_callbacks.__aotcuda__.unload()
        cuda.hold(False)
    run(3)
    assert names(cuda).count("cuLaunchKernel") == 3
    assert hooks.calls == ["up", "up"]


def test_failed_teardown_does_not_hide_the_error_of_a_setup(cuda, hooks, with_callbacks):
    cuda.set(devices="9.0,9.0")
    with_callbacks.k[1, 1](1)
    hooks.up = hooks.down = failed
    driver.get().make_current(1)
    with pytest.raises(CallbackError, match="the setup callback"):
        with_callbacks.__aotcuda__.preload()


def test_setup_that_launches_during_unload_does_not_deadlock(cuda, hooks, with_callbacks):
    entered, unloaded = threading.Event(), threading.Event()

    def up(_handle):
        hooks.calls.append("up")
        if not entered.is_set():
            entered.set()
            assert unloaded.wait(30)
            with_callbacks.k[1, 1](7)

    hooks.up = up
    with threads.started(lambda: with_callbacks.k[1, 1](8)):
        assert entered.wait(30)
        with_callbacks.__aotcuda__.unload()
        unloaded.set()
    with_callbacks.__aotcuda__.unload()
    assert [call["parameters"][:2] for call in cuda.launches()] == ["07", "08"]
    assert sorted(hooks.calls) == ["down", "down", "up", "up"]


def test_unload_waits_for_setup(hooks, with_callbacks):
    entered, unloaded = threading.Event(), threading.Event()

    def up(_handle):
        hooks.calls.append("up")
        entered.set()
        assert unloaded.wait(30)
        hooks.calls.append("set up")

    hooks.up = up

    def preload():
        with pytest.raises(CudaError, match="unloaded in the meantime"):
            with_callbacks.__aotcuda__.preload()

    with threads.started(preload):
        assert entered.wait(30)
        with_callbacks.__aotcuda__.unload()
        unloaded.set()
    with_callbacks.__aotcuda__.unload()
    assert hooks.calls == ["up", "set up", "down"]


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
