"""`unload()` beside launches: no handle of images that are gone reaches the driver, and nothing waits for ever.

The stand-in keeps launches inside the driver as long as a test wants, and logs a crash where images go meanwhile.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import types
from collections import Counter

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CallbackError, CudaError
from aotcuda.runtime import driver
from aotcuda.runtime.arguments.argument_layout import PackedOverload
from aotcuda.runtime.arguments.overloads import OverloadTable
from aotcuda.runtime.device_kernel import DeviceKernel
from aotcuda.runtime.image_source import Packaged
from aotcuda.runtime.images import callbacks
from aotcuda.runtime.kernel_table import KernelTable
from aotcuda.runtime.library import Library
from aotcuda.runtime.loader import Loader
from support import threads
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")

CALLBACKS = [{"setup": "mypkg_hooks:up", "teardown": "mypkg_hooks:down", "origin": "csrc/table.cu"}]


OF_IMAGES = (KernelTable, Library, OverloadTable, PackedOverload, DeviceKernel)


@pytest.fixture
def module(cuda):
    return cuda.package(kernel("k", "void(int32)"))


@pytest.fixture
def hooks(cuda, monkeypatch):
    """Return a module of callbacks that note their calls, for a package that has them."""
    module = types.ModuleType("mypkg_hooks")
    module.calls = []
    module.up = lambda _: module.calls.append("up")
    module.down = lambda _: module.calls.append("down")
    monkeypatch.setitem(sys.modules, "mypkg_hooks", module)

    monkeypatch.setattr(callbacks, "open_handle", lambda _, images: ("handle", cuda.load(images)))
    return module


def test_a_forked_child_leaves_its_parents_images_alone(cuda, module, hooks):
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


def test_a_launch_by_collected_garbage_loads_no_second_image(cuda, monkeypatch):
    module = cuda.package(kernel("k", "void(int32)"), kernel("j", "void(int32)"))
    original, garbage = Packaged.load, ["some"]

    def load(source, fallback):
        if garbage:
            garbage.pop()
            module.j[1, 1](7)
        return original(source, fallback)

    monkeypatch.setattr(Packaged, "load", load)
    module.__aotcuda__.unload()
    for _ in range(3):
        module.k[1, 1](1)
    module.__aotcuda__.unload()
    assert len(cuda.launches()) == 4
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))


def names(cuda):
    """Return what was done to the images, in order."""
    return [call["call"] for call in cuda.calls("cuLaunchKernel", "cuLibraryUnload", "crash")]


@pytest.mark.parametrize("before", [0, 1, 3], ids=["first launch", "second launch", "learnt"])
def test_images_stay_while_a_launch_of_another_thread_is_in_the_driver(cuda, module, before):
    run = module.k[1, 1]
    for _ in range(before):
        run(1)
    driver.get()
    cuda.hold(True)
    with threads.started(lambda: run(2)):
        cuda.await_launch()
        module.__aotcuda__.unload()
        assert cuda.calls("cuLibraryUnload") == []
        cuda.hold(False)
    run(3)
    module.__aotcuda__.unload()
    assert names(cuda).count("cuLibraryUnload") == len(cuda.calls("cuLibraryLoadData")) == 2
    assert names(cuda).count("cuLaunchKernel") == before + 2
    assert "crash" not in names(cuda)


def test_unloading_waits_for_a_launch_that_ends_soon(cuda, module, monkeypatch):
    import time

    run = module.k[1, 1]
    for _ in range(3):
        run(1)
    cuda.hold(True)
    ended = threading.Event()

    def let_go(_seconds):
        cuda.hold(False)
        assert ended.wait(30)

    monkeypatch.setattr(time, "sleep", let_go)
    with threads.started(lambda: (run(2), ended.set())):
        cuda.await_launch()
        module.__aotcuda__.unload()
    assert names(cuda) == ["cuLaunchKernel"] * 4 + ["cuLibraryUnload"]


def test_launches_of_other_modules_do_not_delay_an_unload(cuda, module):
    other_module = cuda.package(kernel("j", "void(int32)"), name="mypkg.others")
    for _ in range(3):
        module.k[1, 1](1)
        other_module.j[1, 1](1)
    cuda.hold(True)
    with threads.started(lambda: other_module.j[1, 1](2)):
        cuda.await_launch()
        module.__aotcuda__.unload()
        assert len(cuda.calls("cuLibraryUnload")) == 1
        cuda.hold(False)


def test_an_array_may_unload_the_module_while_it_is_read(cuda):
    module = cuda.package(kernel("k", "void(float32[::1])"))
    plain = cuda.array(8)

    class Unloading(type(plain)):
        act = staticmethod(lambda: None)

        @property
        def __cuda_array_interface__(self):
            self.act()
            return self.interface

    array = Unloading(plain.address, np.zeros(8, "<f4"))

    def unload_once():
        array.act = lambda: None
        module.__aotcuda__.unload()

    run = module.k[1, 1]
    for _ in range(6):
        run(array)
        array.act = unload_once
        run(array)
    assert len(cuda.launches()) == 12
    assert "crash" not in names(cuda)
    array.act = module.__aotcuda__.unload  # whenever it is read: no launch can be made of it
    with pytest.raises(CudaError, match=r"the images of mypkg\.kernels\.k were unloaded in the meantime"):
        run(array)
    assert len(cuda.launches()) == 12
    array.act = lambda: None
    run(array)
    assert len(cuda.launches()) == 13


def test_an_unload_amid_a_launch_mixes_no_images(cuda, module, monkeypatch):
    """The overloads of today with the images of yesterday, or the other way round, would keep dead handles."""

    k = module.k
    select = KernelTable.select
    order = iter([(False, True), (True, False), (True, True)])

    def unload_around(self, *args):
        before, after = next(order, (False, False))
        if before:
            module.__aotcuda__.unload()
        found = select(self, *args)
        if after:
            module.__aotcuda__.unload()
        return found

    monkeypatch.setattr(KernelTable, "select", unload_around)
    for number in range(8):
        k[1, number + 1](number)
        k.forall(number + 1, block=number + 1)(number)
    assert [call["block"][0] for call in cuda.launches()] == [number + 1 for number in range(8) for _ in range(2)]
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))


def test_failed_launches_do_not_delay_an_unload(cuda, module):
    run = module.k[1, 1]
    cuda.set(fail="cuLaunchKernel=2@2;cuLaunchKernel=2@4")
    for value in (1, 2, "wrong", 2**40, 3, 4):
        with contextlib.suppress(ArgumentError, CudaError):
            run(value)
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == 1


def test_a_launch_without_a_context_survives_an_unload(module, cuda, monkeypatch):
    run = module.k[1, 1]
    for number in range(3):
        run(number)
    left, select = [None] * 2, OverloadTable.select

    def late(self, *args):
        found = select(self, *args)
        if left:
            left.pop()
            module.__aotcuda__.unload()
        return found

    monkeypatch.setattr(OverloadTable, "select", late)
    assert threads.at_once([lambda: run(7)]) == []  # a thread without a context
    assert len(cuda.launches()) == 4


@pytest.mark.parametrize("by", ["a configuration", "forall"])
def test_a_held_launcher_keeps_no_unloaded_images(cuda, module, by):
    run = module.k[1, 32] if by == "a configuration" else module.k.forall(32, 32)
    others = [found for found in gc.get_objects() if isinstance(found, OF_IMAGES)]  # which stay from here on
    alive = []
    for _ in range(6):
        for _ in range(3):
            run(7)
        found = Counter(type(found).__name__ for found in gc.get_objects() if isinstance(found, OF_IMAGES))
        alive.append(found - Counter(type(found).__name__ for found in others))
        module.__aotcuda__.unload()
        gc.collect()
    assert alive[-3] == alive[-2] == alive[-1]
    assert 0 < alive[-1][DeviceKernel.__name__] <= 2


@pytest.mark.parametrize("ask", ["get_regs_per_thread", "occupancy", "preload"])
def test_questions_about_unloaded_images_raise(cuda, module, monkeypatch, ask):
    """And leaves nothing of them to later launches."""

    enter = Loader.enter

    def enter_and_unload(self, *args):
        device = enter(self, *args)
        monkeypatch.setattr(Loader, "enter", enter)
        self.unload()
        return device

    monkeypatch.setattr(Loader, "enter", enter_and_unload)
    questions = {
        "get_regs_per_thread": module.k.get_regs_per_thread,
        "occupancy": lambda: module.k.occupancy(32),
        "preload": module.__aotcuda__.preload,
    }
    with pytest.raises(CudaError, match=r"mypkg\.kernels were unloaded in the meantime") as caught:
        questions[ask]()
    assert caught.value.name == "CUDA_ERROR_INVALID_HANDLE"
    for _ in range(3):
        module.k[1, 1](1)
    assert len(cuda.launches()) == 3


class TestCallbacks:
    """The teardown waits as the images do."""

    @pytest.fixture
    def module(self, cuda, hooks):
        return cuda.package(
            kernel("k", "void(int32)"), load="first-use", callbacks=CALLBACKS, handle="cuda.core.ObjectCode"
        )

    @pytest.mark.parametrize("before", [0, 3])
    def test_teardown_waits_for_launches_in_the_driver(self, cuda, hooks, module, before):
        run = module.k[1, 1]
        for _ in range(before):
            run(1)
        driver.get()
        cuda.hold(True)
        with threads.started(lambda: run(2)):
            cuda.await_launch()
            module.__aotcuda__.unload()
            assert hooks.calls == ["up"]
            cuda.hold(False)
        module.__aotcuda__.unload()
        assert hooks.calls == ["up", "down"]

    def test_a_setup_that_launches_beside_an_unload_ends(self, cuda, hooks, module):
        """It needs what the unload holds, and the other way round."""
        entered, unloaded = threading.Event(), threading.Event()
        first = []

        def up(_handle):
            hooks.calls.append("up")
            if not first:
                first.append(None)
                entered.set()
                assert unloaded.wait(30)
                module.k[1, 1](7)

        hooks.up = up
        with threads.started(lambda: module.k[1, 1](8)):
            assert entered.wait(30)
            module.__aotcuda__.unload()
            unloaded.set()
        module.__aotcuda__.unload()
        assert [call["parameters"][:2] for call in cuda.launches()] == ["07", "08"]
        assert sorted(hooks.calls) == ["down", "down", "up", "up"]

    def test_an_unload_waits_for_setup(self, cuda, hooks, module):
        entered, unloaded = threading.Event(), threading.Event()

        def up(_handle):
            hooks.calls.append("up")
            entered.set()
            assert unloaded.wait(30)
            hooks.calls.append("set up")

        hooks.up = up

        def preload():
            with pytest.raises(CudaError, match="unloaded in the meantime"):
                module.__aotcuda__.preload()

        with threads.started(preload):
            assert entered.wait(30)
            module.__aotcuda__.unload()
            unloaded.set()
        module.__aotcuda__.unload()
        assert hooks.calls == ["up", "set up", "down"]
        assert len(cuda.calls("cuLibraryUnload")) == 0  # they are the handle's, which the stand-in has none of

    def test_a_setup_that_unloads_its_own_module_ends(self, cuda, hooks, module):
        def up(_handle):
            hooks.calls.append("up")
            if len(hooks.calls) == 1:
                module.__aotcuda__.unload()

        hooks.up = up
        module.k[1, 1](1)
        module.k[1, 1](2)
        module.__aotcuda__.unload()
        assert len(cuda.launches()) == 2
        assert sorted(hooks.calls) == ["down", "down", "up", "up"]

    def test_a_teardown_that_raises_is_reported_by_the_unload_that_runs_it(self, hooks, module):
        def down(_handle):
            message = "busy"
            raise OSError(message)

        module.k[1, 1](1)
        hooks.down = down
        with pytest.raises(CallbackError, match="busy"):
            module.__aotcuda__.unload()
        module.__aotcuda__.unload()


def test_threads_launch_while_another_unloads_over_and_over(cuda, module):
    """Every launch happens once, and no image goes while one of them is in the driver."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    done = threading.Event()
    launchers = [module.k[1, 1], module.k[1, 2]]

    launched = threading.Semaphore(0)

    def unload():
        while not done.is_set():
            module.__aotcuda__.unload()
            for _ in range(3):  # so that some launches are quick ones
                launched.acquire()

    def work(thread):
        for number in range(300):
            (launchers[number % 2] if thread % 2 else module.k[1, number % 5 + 1])(1000 * thread + number)
            launched.release()

    try:
        with threads.started(unload):
            errors = threads.at_once([lambda thread=thread: work(thread) for thread in range(4)])
            done.set()
            launched.release(3)
        assert errors == []
    finally:
        sys.setswitchinterval(switch)
    module.__aotcuda__.unload()
    values = sorted(int.from_bytes(bytes.fromhex(call["parameters"]), "little") for call in cuda.launches())
    assert values == [1000 * thread + number for thread in range(4) for number in range(300)]
    assert "crash" not in names(cuda)
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))
