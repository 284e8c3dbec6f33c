"""Ctrl-C at any point of a launch: nothing stays locked, and what is unloaded afterwards leaves the driver."""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import sys
import types

import numpy as np
import pytest

import aotcuda
from aotcuda.runtime import _locks, driver
from aotcuda.runtime.images import callbacks
from support import late, libraries, threads
from support.libraries import Array, State
from support.manifests import kernel
from support.stand_in import DeviceArray

pytestmark = pytest.mark.usefixtures("path")

CALLBACKS = [{"setup": "mypkg_hooks:up", "teardown": "mypkg_hooks:down", "origin": "csrc/table.cu"}]
RUNTIME = aotcuda.runtime.__path__[0]


@pytest.fixture(autouse=True)
def _what_other_tests_left_is_not_collected_again_and_again():
    """Each interrupt leaves frames in circles; in a process that has much already, collecting them takes long."""
    gc.collect()
    gc.freeze()


def interrupted(work, at):
    """Do something; the run time gets a KeyboardInterrupt when signals are looked for in it for the `at`-th time.

    The interpreter looks for signals after calls, when a function begins, and where it jumps back. Returns whether it
    came to that.
    """
    count, last = 0, {}

    def trace(frame, event, _arg):
        nonlocal count
        name = frame.f_code.co_filename
        if not name.startswith(RUNTIME):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before, place = last.get(frame, ("", 0))
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]], frame.f_lasti
            looks = before.startswith(("CALL", "RESUME", "JUMP_BACKWARD")) and "INTRINSIC" not in before
            if looks and not has_left(frame, place):
                count += 1
                if count == at:
                    raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        last.clear()
    return False


def has_left(frame, place):
    """Return True if what handles exceptions at a place of the code does so no more where the frame is now.

    The interpreter raises at the call, a trace function at what comes next: after `return call()` that leaves a `with`
    already, as if there were no exception.
    """
    return any(start <= place < end <= frame.f_lasti for start, end in handlers_of(frame.f_code))


@functools.cache
def handlers_of(code):
    """Where exceptions are handled: from where to where."""
    return [(entry.start, entry.end) for entry in dis._parse_exception_table(code)]


def assert_all_is_free(cuda, module):
    """Assert that another thread gets every lock, and that `unload` removes all images."""
    held = []

    def try_locks():
        for each in list(_locks):
            lock = each()
            if lock is not None:
                held.append(not lock.acquire(blocking=False))
                if not held[-1]:
                    lock.release()

    assert threads.at_once([try_locks]) == []
    assert not any(held)
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))


def launch(module, cuda):
    run, x = module.k[1, 32], cuda.array(np.zeros(4, "<f4"))
    return lambda: run(2.0, x)


def over_all(module, cuda):
    x = cuda.array(np.zeros(4, "<f4"))
    return lambda: module.k.forall(4)(2.0, x)


def on_a_stream(module, cuda):
    x = cuda.array(np.zeros(4, "<f4"))
    return lambda: module.k[1, 32, 77](2.0, x)


def ask(module, _cuda):
    return module.k.get_regs_per_thread


@pytest.mark.parametrize("learnt", [0, 3], ids=["general", "learnt"])
@pytest.mark.parametrize("work", [launch, over_all, on_a_stream, ask], ids=lambda work: work.__name__)
def test_an_interrupt_of_a_launch_leaves_nothing_behind(cuda, work, learnt):
    module = cuda.package(kernel("k", "void(float32, float32[::1])"))
    at = 0
    while True:
        at += 1 + at // 24  # each of the first, and then fewer of the launch's many
        module.__aotcuda__.preload()
        run = work(module, cuda)
        for _ in range(learnt):
            run()
        if not interrupted(run, at):
            break
        assert_all_is_free(cuda, module)
    assert at > 3 or "in C" in str(module.__aotcuda__)


def after_another_stream(module, _monkeypatch):
    libraries.CURRENT.update(torch=88)
    run, x = module.k[1, 32, 77], libraries.make(Array("torch", (State(),)))
    return lambda: run(2.0, x)


def waiting(module, monkeypatch):
    monkeypatch.setenv("AOTCUDA_SYNCHRONIZE", "1")
    run = module.k[1, 32]
    return lambda: run(2.0, DeviceArray(0, np.zeros(0, "<f4")))


def with_copies(module, monkeypatch):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    run, x, y = module.k[1, 32], np.zeros(4, "<f4"), np.zeros(4, "<f4")
    return lambda: run(x, y)


@pytest.mark.filterwarnings("ignore::aotcuda.errors.HostArrayWarning")
@pytest.mark.parametrize("learnt", [0, 3], ids=["general", "learnt"])
@pytest.mark.parametrize(
    "work",
    [after_another_stream, waiting, pytest.param(with_copies, marks=pytest.mark.matrix)],
    ids=lambda work: work.__name__,
)
def test_an_interrupted_launch_leaves_nothing_in_the_driver(cuda, path, monkeypatch, work, learnt):
    """No event, no memory, and no way to capture streams."""
    own = kernel("k", "void(float32, float32[::1])", "void(float32[::1], float32[::1])")
    module, at = cuda.package(own), 0
    with libraries.installed():
        run = work(module, monkeypatch)
        while True:
            at += 1 if learnt and path == "extension" else 3  # the general path holds its resources for longer
            module.__aotcuda__.preload()
            for _ in range(learnt):
                run()
            if not interrupted(run, at):
                break
            mode = driver.ctypes.c_int(0)
            driver.get().call["cuThreadExchangeStreamCaptureMode"](driver.ctypes.byref(mode))
            assert mode.value == 0
            assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree"))
            there = len(cuda.calls("cuEventCreate")) - len(cuda.calls("cuEventDestroy"))
            assert there <= 1  # which is kept for the next launch
            if not learnt:
                module.__aotcuda__.unload()
    assert at > 10 or (path == "extension" and learnt)


@pytest.mark.parametrize("others", ["", "kernels compiled beside", "images kept aside"])
def test_an_interrupted_unload_leaves_no_images(cuda, others):
    module = cuda.package(kernel("k", "void(float32, float32[::1])"))
    run, x, at = module.k[1, 32], cuda.array(np.zeros(4, "<f4")), 0
    while True:
        at += 1
        for _ in range(3):
            run(2.0, x)
        add(others, module.k.loader)
        if not interrupted(module.__aotcuda__.unload, at):
            break
        launched, loaded = len(cuda.launches()), len(cuda.calls("cuLibraryLoadData"))
        going = module.k.loader.current is None
        run(2.0, x)
        assert len(cuda.launches()) == launched + 1
        assert len(cuda.calls("cuLibraryLoadData")) == loaded + going
        assert_all_is_free(cuda, module)
    assert at > 30


def add(others, loader):
    """Other images, which go with those that are launched."""
    if others == "kernels compiled beside":
        loader.fallback().loaded[object(), (9, 0)] = loader.source.load(loader.fallback)
    elif others == "images kept aside":
        loader.staleness()._aside = loader.source.load(loader.fallback)


@pytest.mark.parametrize("work", ["tear down", "ask whose a stream is"])
def test_an_interrupt_restores_the_current_context(cuda, monkeypatch, work):
    hooks = types.ModuleType("mypkg_hooks")
    hooks.up = hooks.down = lambda _: None
    monkeypatch.setitem(sys.modules, "mypkg_hooks", hooks)
    at_exit = types.SimpleNamespace(register=lambda _: None, unregister=lambda _: None)
    monkeypatch.setattr(callbacks, "atexit", at_exit)  # the stand-in is gone by then
    cuda.set(devices="9.0,9.0", streams="119=1")
    module, gpus, at = cuda.package(kernel("k", "void(int32)"), load="first-use"), driver.get(), 0
    manifest = {"module": "mypkg.kernels", "callbacks": CALLBACKS}
    while True:
        at += 1
        made = callbacks.Callbacks(manifest, None, gpus)
        for index in (1, 0):
            gpus.make_current(index)
            made.set_up()
        module.__aotcuda__.preload()
        before = gpus.current_context()

        def launch():
            with contextlib.suppress(aotcuda.LaunchError):
                module.k[1, 1, 119](1)

        came = interrupted(made.tear_down if work == "tear down" else launch, at)
        assert gpus.current_context() == before
        made.tear_down()
        if not came:
            break
    assert at > 10


def test_an_interrupted_load_unloads_its_images(cuda, monkeypatch):
    """It is raised when the call returns, which takes most of the time of an import."""
    module, call = cuda.package(kernel("k", "void(int32)"), load="first-use"), driver.get().call
    load = call["cuLibraryLoadData"]

    def load_meanwhile(*args):
        load(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(call, "cuLibraryLoadData", load_meanwhile)
        with pytest.raises(KeyboardInterrupt):
            module.k[1, 1](1)
    module.k[1, 1](1)
    assert (len(cuda.calls("cuLibraryLoadData")), len(cuda.launches())) == (2, 1)
    assert_all_is_free(cuda, module)


@pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io:pytest.PytestUnraisableExceptionWarning")  # open files
@pytest.mark.parametrize("compiled", [False, True], ids=["packaged", "compiled"])
def test_an_interrupt_after_a_load_unloads_the_images(cuda, builder, compiled):
    """From the driver's answer to the moment when the module has them, nobody else could take them out."""
    if compiled:
        pytest.importorskip("numba_cuda", reason="there is no Numba for this Python")
    own, at = kernel("k", "void(int32)"), 0
    builder.whole = [own]
    options = {"targets": ("sm_80",), "fallback": "jit", "rebuild": late.rebuild()} if compiled else {}
    module = cuda.package(own, load="first-use", **options)
    (cuda.packages / "mypkg" / "_kernels.py").write_text("")
    module.__aotcuda__.preload()
    while True:
        at += 1
        module.__aotcuda__.unload()
        if not interrupted(module.k.loader.ready, at):
            break
        gc.collect()
        assert_all_is_free(cuda, module)
    assert at > 30


def test_an_interrupt_of_a_setup_callback_leaves_nothing_behind(cuda, monkeypatch):
    hooks = types.ModuleType("mypkg_hooks")
    hooks.up = hooks.down = lambda _: None
    monkeypatch.setitem(sys.modules, "mypkg_hooks", hooks)

    monkeypatch.setattr(callbacks, "open_handle", lambda _, images: ("handle", cuda.load(images)))
    module = cuda.package(kernel("k", "void(int32)"), callbacks=CALLBACKS)
    at = 1
    while True:
        module.k[1, 1](0)
        loaded = module.k.loader.current
        if not interrupted(loaded.library.set_up, at):
            break
        module.__aotcuda__.unload()
        assert loaded.library.is_idle()
        at += 1
    assert at > 5
    module.__aotcuda__.unload()
