"""The run time and its process: the modules that it imports, the driver's start, and forks."""

from __future__ import annotations

import pytest

from support import manifests
from support.manifests import kernel

HEAVY = [
    "numpy",
    "numba",
    "cuda",
    "pathlib",
    "dataclasses",
    "typing",
    "importlib.metadata",
    "inspect",
    "threading",
    "contextlib",
    "aotcuda.errors",
    "aotcuda.gpus",
]
ARRAY = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
"""
LAUNCH = f"{ARRAY}mypkg.kernels.k[1, 32](2.0, Array())\n"


@pytest.fixture
def packaged(cuda):
    """Return a function that writes a packaged module for other interpreters."""

    def write(load):
        manifests.write(cuda.packages, [kernel("k", "void(float32, float32[::1])")], load=load, functions=("add",))
        return cuda

    return write


def imported(cuda, code, **environment):
    """Return the modules that `code` imports in a bare interpreter."""
    script = f"import os, sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    return set(cuda.run(script, **environment).split())


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_import_and_launch_import_nothing_heavy(packaged, load):
    cuda = packaged(load)
    modules = imported(cuda, f"import mypkg.kernels\n{LAUNCH}") - imported(cuda, "import ctypes")
    assert [name for name in HEAVY if name in modules] == []
    assert len(cuda.launches()) == 1


def test_importing_aotcuda_imports_nothing_more(packaged):
    assert imported(packaged("import"), "import aotcuda") == {"__future__", "aotcuda"}
    with_version = imported(packaged("import"), "import aotcuda; aotcuda.__version__")
    assert with_version == {"__future__", "aotcuda", "aotcuda.version"}


STARTED = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'
FORK = """
import os, sys
import mypkg.kernels as k
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
%s
sys.stdout.flush()
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    k.k[1, 32](1.0, Array())
    sys.exit(os.waitstatus_to_exitcode(status))
try:
    k.k[1, 32](2.0, Array())
    print("launched")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_forked_child_of_process_with_cuda_names_remedies(packaged):
    cuda = packaged("import")
    shown = cuda.run(FORK % "")
    assert shown.startswith("ForkError this process forked after CUDA was started")
    assert 'get_context("spawn")' in shown
    assert "AOTCUDA_LOAD=first-use" in shown
    assert len(cuda.launches()) == 1


def test_first_use_allows_fork_before_first_launch(packaged):
    cuda = packaged("first-use")
    assert cuda.run(FORK % "") == "launched\n"
    assert len(cuda.launches()) == 2


HELD = """
import threading
from aotcuda.runtime import _locks
import aotcuda.runtime.driver, aotcuda.runtime.launch.specialize
k.k[1, 32]
ready, over = threading.Event(), threading.Event()
def hold():
    held = [lock() for lock in list(_locks)]
    for lock in held:
        lock.acquire()
    assert len(held) >= 4, held
    ready.set()
    over.wait(60)
threading.Thread(target=hold, daemon=True).start()
assert ready.wait(60)
import signal
os.register_at_fork(after_in_parent=over.set, after_in_child=lambda: signal.alarm(20))
"""


@pytest.mark.parametrize("extension", ["0", "1"])
def test_forked_child_finds_no_lock_held(packaged, extension):
    """Another thread may hold a lock of the run time during a fork. The child does not have that thread."""
    cuda = packaged("first-use")
    code = FORK.replace("    k.k[1, 32](1.0, Array())\n    sys.exit", "    sys.exit")
    assert cuda.run(code % HELD, AOTCUDA_EXTENSION=extension) == "launched\n"
    assert len(cuda.launches()) == 1


def test_fork_after_another_library_started_cuda_is_error(packaged):
    cuda = packaged("first-use")
    assert cuda.run(FORK % STARTED).startswith("ForkError this process forked after CUDA was started")


def test_import_after_such_fork_succeeds(packaged):
    cuda = packaged("import")
    manifests.write(cuda.packages, [kernel("other", "void(int32)")], name="mypkg.others")
    code = FORK.replace(
        "    k.k[1, 32](2.0, Array())", "    import mypkg.others as o; print('imported'); o.other[1, 1](1)"
    )
    shown = cuda.run(code % "")
    assert shown.startswith("imported\nForkError")
