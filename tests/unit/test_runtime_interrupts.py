"""Press Ctrl-C at any point of a launch: no lock stays held, and an unload afterwards removes all images."""

from __future__ import annotations

import dis
import functools
import gc
import sys

import numpy as np
import pytest

import aotcuda
from aotcuda.runtime import _locks, driver
from support import threads
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")

RUNTIME = aotcuda.runtime.__path__[0]


@pytest.fixture(autouse=True)
def _older_objects_are_not_collected():
    """Each interrupt leaves frames in reference cycles; in a large process, collecting them takes long."""
    gc.collect()
    gc.freeze()


def interrupted(work, at):
    """Run a function, with a KeyboardInterrupt at the `at`-th point where the interpreter checks for signals.

    Only points in the run time count: after calls, at the begin of a function, and before a jump back. Return True if
    there were enough of them.
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
            checks = before.startswith(("CALL", "RESUME", "JUMP_BACKWARD")) and "INTRINSIC" not in before
            if checks and not has_left(frame, place):
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
    """Return True if the frame has left an exception handler since it was at a place of its code.

    The interpreter raises at the call, a trace function at the next instruction: after `return call()`, that is behind
    the end of a `with`.
    """
    return any(start <= place < end <= frame.f_lasti for start, end in handlers_of(frame.f_code))


@functools.cache
def handlers_of(code):
    """Return the ranges of the exception handlers."""
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


@pytest.mark.parametrize("launched", [0, 3], ids=["general", "fast"])
@pytest.mark.parametrize("stream", [None, 77], ids=["no stream", "a stream"])
def test_an_interrupted_launch_leaves_nothing_behind(cuda, stream, launched):
    module = cuda.package(kernel("k", "void(float32, float32[::1])"))
    x, at = cuda.array(np.zeros(4, "<f4"), stream=88), 0
    while True:
        at += 1 + at // 24  # each of the first points, then fewer
        module.__aotcuda__.preload()
        run = module.k[1, 32] if stream is None else module.k[1, 32, stream]
        for _ in range(launched):
            run(2.0, x)
        if not interrupted(lambda run=run: run(2.0, x), at):
            break
        mode = driver.ctypes.c_int(0)
        driver.get().call["cuThreadExchangeStreamCaptureMode"](driver.ctypes.byref(mode))
        assert mode.value == 0
        assert len(cuda.calls("cuEventCreate")) - len(cuda.calls("cuEventDestroy")) <= 1  # the cached one
        assert_all_is_free(cuda, module)
    assert at > 3 or "in C" in str(module.__aotcuda__)


def test_an_interrupted_unload_leaves_no_images(cuda):
    module = cuda.package(kernel("k", "void(float32, float32[::1])"))
    run, x, at = module.k[1, 32], cuda.array(np.zeros(4, "<f4")), 0
    while True:
        at += 1
        for _ in range(3):
            run(2.0, x)
        if not interrupted(module.__aotcuda__.unload, at):
            break
        launched = len(cuda.launches())
        run(2.0, x)
        assert len(cuda.launches()) == launched + 1
        assert_all_is_free(cuda, module)
    assert at > 30


def test_an_interrupted_load_unloads_its_images(cuda, monkeypatch):
    """The interpreter raises it when the driver's call returns, which takes most of the time of an import."""
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
    assert_all_is_free(cuda, module)
