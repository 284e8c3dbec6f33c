"""A fork waits for imports of other threads that a launch makes, since in the child they would never end.

An audit hook reports each import that does not hold the lock `aotcuda.runtime.importing`, until CUDA is started. In a
child of a process that has started CUDA, the hook reports all imports up to the ForkError.
"""

from __future__ import annotations

import os
import threading

import pytest

from aotcuda import runtime
from support import grids, manifests
from support.manifests import kernel

REPORT = """
import os, sys
import aotcuda.runtime
import mypkg.kernels as k
import mypkg.grids as g

class Stream:
    __cuda_stream__ = staticmethod(lambda: (0, 7))

def has_started():
    driver = sys.modules.get("aotcuda.runtime.driver")
    return driver is not None and not driver.forked and (driver._starting or driver._driver is not None)

def report(event, args):
    if event != "import" or aotcuda.runtime.importing._is_owned() or has_started():
        return
    frame = sys._getframe(1)
    while "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    print(use, "imports", args[0], "in", frame.f_code.co_filename, frame.f_lineno)

if {start}:
    from aotcuda.runtime import driver
    driver.get()
for use in {uses}:
    if os.fork() == 0:
        sys.addaudithook(report)
        try:
            exec(use)
        except Exception as error:
            print(use, "raises", type(error).__name__)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""

USES = {  # some raise an error
    "brackets": "k.k[1, 32](1)",
    "stream object": "k.k[1, 32, Stream()](1)",
    "wrong brackets": "k.k[1]",
    "forall": "k.k.forall(8)(1)",
    "forall with block": "k.k.forall(8, 32, 7, 16)(1)",
    "configure": "k.k.configure(1, 32, cluster=1, priority=0)(1)",
    "grid": "g.k[1](1)",
    "grid function": "g.k[lambda _: (1,)](1)",
    "grid with stream": "g.k[1, Stream()](1)",
    "registers": "k.k.get_regs_per_thread()",
    "occupancy": "k.k.occupancy(32)",
    "variable": "k.__aotcuda__.symbol('table').address",
    "preload": "k.__aotcuda__.preload()",
    "images": "k.__aotcuda__.chosen",
    "names": "dir(k)",
    "unknown name": "k.missing",
    "help": "k.k.__doc__",
    "unload": "k.__aotcuda__.unload()",
}


@pytest.fixture
def packages(cuda):
    manifests.write(cuda.packages, [kernel("k", "void(int32)")], load="first-use")
    manifests.write(cuda.packages, [grids.PAIR], name="mypkg.grids", load="first-use", by_grid=True)
    return cuda


@pytest.mark.parametrize("start", [False, True], ids=["before CUDA is started", "in a child after that"])
def test_uses_of_a_module_import_under_the_lock(packages, start):
    lines = packages.run(REPORT.format(start=start, uses=list(USES.values()))).splitlines()
    assert [line for line in lines if " imports " in line] == []
    errors = {line.partition(" raises ")[2] for line in lines}
    assert ("ForkError" in errors) is start


def test_fork_waits_for_imports_of_other_threads(packages):
    code = """
import os, threading
import aotcuda.runtime
entered, forked = threading.Event(), []
def hold():
    with aotcuda.runtime.importing:
        entered.set()
        for _ in range(1000):
            forked.append(len(forked))
thread = threading.Thread(target=hold)
thread.start()
entered.wait()
if os.fork() == 0:
    with aotcuda.runtime.importing:
        print(len(forked), flush=True)
    os._exit(0)
os.wait()
thread.join()
"""
    assert packages.run(code) == "1000\n"


def test_a_forked_child_frees_the_locks_that_other_threads_held(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[dict[str, object]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **functions: registered.append(functions))
    monkeypatch.setattr(runtime, "_locks", set())
    mine, others, free = (runtime.new_lock() for _ in range(3))
    assert registered == [{"after_in_child": runtime._renew_locks}]
    other = threading.Thread(target=others.acquire)
    other.start()
    other.join()
    with mine:
        assert not others.acquire(blocking=False)
        runtime._renew_locks()
        assert mine._is_owned()
        assert others.acquire(blocking=False)
    assert free.acquire(blocking=False)
    del mine, others, free
    assert runtime._locks == set()
