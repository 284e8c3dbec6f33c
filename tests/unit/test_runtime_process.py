"""Test what the run time does to its process: what it imports, threads that race, and forks."""

from __future__ import annotations

import sys
import threading

import pytest

from aotcuda.runtime.library import Library
from aotcuda.runtime.loader import Loader
from support import manifests
from support.manifests import kernel
from support.quick import needs_extension

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
]
ARRAY = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
"""
LAUNCH = f"{ARRAY}mypkg.kernels.k[1, 32](2.0, Array())\n"


@pytest.fixture
def packaged(cuda):
    """Write a packaged module for other interpreters to import."""

    def write(load, count=1):
        kernels = [kernel("k", "void(float32, float32[::1])")]
        kernels += [kernel(f"k{index}", "void(float32, float32[::1])") for index in range(1, count)]
        manifests.write(cuda.packages, kernels, load=load, functions=("add",))
        return cuda

    return write


def imported(cuda, code, **environment):
    """The modules that a bare interpreter has after it ran `code`, beyond its own and those that `site` brings."""
    shown = cuda.run(
        f"import os, sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))", **environment
    )
    return set(shown.split())


@needs_extension
@pytest.mark.parametrize("launched", ["k[1, 32]", "k.forall(8, 32)"])
def test_what_is_launched_once_is_not_learnt_and_what_is_launched_again_is(packaged, launched):
    """However many kernels a program launches once, none of them pays for launches that never come."""
    cuda = packaged("first-use")
    code = f"""
import sys
from aotcuda.runtime.general_path import GeneralPath
general = []
submit = GeneralPath.submit
def submitted(self, *args):
    general.append(self)
    submit(self, *args)
GeneralPath.submit = submitted
import mypkg.kernels
{ARRAY}
seen = []
for _ in range(5):
    mypkg.kernels.{launched}(2.0, Array())
    seen.append((len(general), "aotcuda.runtime.specialize" in sys.modules))
print(seen)
"""
    assert cuda.run(code) == f"{[(1, False), *[(2, True)] * 4]}\n"
    first, *others = cuda.launches()
    assert others == [first] * 4


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_an_import_and_a_launch_import_nothing_heavy(packaged, load):
    cuda = packaged(load)
    modules = imported(cuda, f"import mypkg.kernels\n{LAUNCH}") - imported(cuda, "import ctypes")
    assert [name for name in HEAVY if name in modules] == []
    assert len(cuda.launches()) == 1


def test_a_first_use_import_reads_no_manifest_and_imports_no_driver(packaged):
    cuda = packaged("first-use", count=20)
    found = imported(cuda, "import mypkg.kernels")
    assert {name for name in found if name.startswith("aotcuda")} == {
        "aotcuda",
        "aotcuda.runtime",
        "aotcuda.runtime.module",
    }
    assert not found & {"ctypes", "hashlib", "json", "threading"}
    assert cuda.calls() == []


def test_an_import_that_loads_imports_what_loading_needs_and_leaves_the_rest_to_the_first_launch(packaged):
    cuda = packaged("import")
    found = imported(cuda, "import mypkg.kernels")
    launches = {"launcher", "kernel", "launch_config", "fast", "general_path", "arguments"}
    assert [name for name in found if name.startswith("aotcuda.runtime.") and name.split(".")[2] in launches] == []
    assert {
        "aotcuda.manifest",
        "aotcuda.common.data_folder",
        "aotcuda.runtime.loader",
        "aotcuda.runtime.library",
        "aotcuda.runtime.driver",
    } <= found


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_a_driver_that_fails_to_start_is_started_again_at_each_launch(packaged, load):
    cuda = packaged(load)
    code = f"""
import mypkg.kernels
{ARRAY}
for _ in range(3):
    try:
        mypkg.kernels.k[1, 32](2.0, Array())
    except Exception as error:
        print(type(error).__name__, error.name)
"""
    assert cuda.run(code, FAKE_CUDA_FAIL="cuInit=999") == "CudaError CUDA_ERROR_UNKNOWN\n" * 3
    assert len(cuda.calls("cuInit")) == 3 + (load == "import")


@pytest.mark.parametrize("extension", ["0", "1"])
@pytest.mark.parametrize("load", ["import", "first-use"])
@pytest.mark.parametrize("lacking", ["driver", "GPU"])
def test_without_one_that_starts_a_parent_and_its_children_are_told_what_is_missing(
    packaged, tmp_path, load, extension, lacking
):
    cuda = packaged(load)
    code = f"""
import os, sys
import mypkg.kernels
{ARRAY}
for turn in range(2):
    try:
        mypkg.kernels.k[1, 32](2.0, Array())
    except Exception as error:
        print(type(error).__name__)
    sys.stdout.flush()
    if turn == 0 and (child := os.fork()):
        assert os.waitpid(child, 0)[1] == 0
"""
    more = {"LD_LIBRARY_PATH": str(tmp_path)} if lacking == "driver" else {"FAKE_CUDA_FAIL": "cuInit=100"}
    error = "NoDriverError\n" if lacking == "driver" else "NoDeviceError\n"
    assert cuda.run(code, AOTCUDA_EXTENSION=extension, **more) == error * 3


LOCKS = {
    "Python's own": "import _imp\n_imp.acquire_lock()\n",
    "an import hook's": """
import builtins, threading
lock, wrapped = threading.RLock(), builtins.__import__
def locked(*args, **named):
    with lock:
        return wrapped(*args, **named)
builtins.__import__ = locked
""",
}


@pytest.mark.parametrize("load", ["import", "first-use"])
@pytest.mark.parametrize("lock", LOCKS)
def test_the_driver_starts_under_a_lock_that_imports_need(packaged, load, lock):
    """Nothing that is done while it starts waits for a thread that waits for it."""
    cuda = packaged(load)
    cuda.run(f"{LOCKS[lock]}import mypkg.kernels\n{LAUNCH}")
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_the_driver_starts_while_garbage_launches(packaged, load):
    code = """
import gc
class Garbage:
    def __init__(self):
        self.own = self
    def __del__(self):
        import mypkg.kernels
        try:
            mypkg.kernels.k[1, 32](1.0, Array())
        except Exception:
            pass
gc.set_threshold({threshold})
import sys
sys.unraisablehook = lambda _: None
garbage = Garbage()
del garbage
"""
    cuda = packaged(load)
    for threshold in (50, 300, 1000, 1500):
        before = len(cuda.launches())
        cuda.run(f"{ARRAY}{code.format(threshold=threshold)}import mypkg.kernels\n{LAUNCH}")
        assert len(cuda.launches()) > before


def test_a_damaged_module_starts_no_driver(packaged):
    cuda = packaged("import")
    fatbin = cuda.packages / "mypkg" / "kernels.aotcuda" / "kernels.fatbin"
    fatbin.write_bytes(fatbin.read_bytes() + b"x")
    cuda.run("try:\n    import mypkg.kernels\nexcept Exception as error:\n    print(type(error).__name__)")
    assert cuda.calls() == []


def test_an_import_that_loads_makes_no_error_of_a_driver_that_is_missing(packaged):
    cuda = packaged("import")
    found = imported(cuda, "import mypkg.kernels", LD_LIBRARY_PATH="")
    assert "aotcuda.manifest" in found
    assert "aotcuda.runtime.library" not in found


def test_importing_aotcuda_imports_nothing_more(packaged):
    assert imported(packaged("import"), "import aotcuda") == {"__future__", "aotcuda"}
    asked = imported(packaged("import"), "import aotcuda; aotcuda.__version__")
    assert asked == {"__future__", "aotcuda", "aotcuda.version"}


def test_the_library_is_found_by_its_name_on_the_library_path(packaged):
    cuda = packaged("import")
    shown = cuda.run("import mypkg.kernels as k; print(k.__aotcuda__.chosen[0].arch)")
    assert shown == "sm_90\n"


def test_threads_that_race_to_the_first_launch_load_once(cuda, monkeypatch):
    module = cuda.package(kernel("k", "void(int32)"), load="first-use")
    arrived = threading.Semaphore(0)
    ready, has_image = Loader.ready, Library.has_image

    def counted_ready(self):
        arrived.release()
        return ready(self)

    def patient(self, device):  # in the midst of loading, until every thread has asked for the images
        monkeypatch.setattr(Library, "has_image", has_image)
        for _ in range(8):
            assert arrived.acquire(timeout=30)
        return has_image(self, device)

    monkeypatch.setattr(Loader, "ready", counted_ready)
    monkeypatch.setattr(Library, "has_image", patient)
    failures = []
    k = module.k  # looking it up takes the lock that is held while the images are loaded

    def launch(value):
        try:
            for _ in range(50):
                k[1, 1](value)
        except BaseException as error:  # noqa: BLE001 (whatever a thread met, the test must see)
            failures.append(error)

    threads = [threading.Thread(target=launch, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(cuda.calls("cuInit")) == len(cuda.calls("cuLibraryLoadData")) == 1
    values = sorted(int.from_bytes(bytes.fromhex(call["parameters"]), "little") for call in cuda.launches())
    assert values == sorted(list(range(8)) * 50)


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


def test_a_child_of_a_process_that_started_cuda_is_told_how_to_do_it(packaged):
    cuda = packaged("import")
    shown = cuda.run(FORK % "")
    assert shown.startswith("ForkError this process forked after CUDA was started")
    assert 'get_context("spawn")' in shown
    assert "AOTCUDA_LOAD=first-use" in shown
    assert len(cuda.launches()) == 1


def test_so_is_one_whose_kernel_was_already_launched(packaged):
    cuda = packaged("first-use")
    assert cuda.run(FORK % "launch = k.k[1, 32]; launch(0.0, Array())").startswith("ForkError")
    assert len(cuda.launches()) == 2


def test_with_first_use_a_process_may_fork_before_its_first_launch(packaged):
    cuda = packaged("first-use")
    assert cuda.run(FORK % "") == "launched\n"
    assert len(cuda.launches()) == 2


HELD = """
import gc, signal, threading, _thread
LOCKS = type(_thread.RLock()), type(_thread.allocate_lock())
def held():
    of = [vars(module) for name, module in sys.modules.items() if name.startswith("aotcuda")]
    for each in gc.get_objects():
        if type(each).__module__.startswith("aotcuda"):
            of.append({name: getattr(each, name, None) for name in ("_lock", "_making")})
            of.append(getattr(each, "__dict__", {}))
    found = [value for names in of for value in names.values() if isinstance(value, LOCKS)]
    for lock in found:
        lock.acquire()
    return found
k.k[1, 32]  # whatever there is before the first launch
import aotcuda.runtime.driver, aotcuda.runtime.fast.specializations
counts, ready, over = [], threading.Event(), threading.Event()
def hold():
    counts.append(len(set(held())))
    ready.set()
    over.wait(60)
holder = threading.Thread(target=hold, daemon=True)
holder.start()
assert ready.wait(60)
assert counts[0] >= 6, counts
os.register_at_fork(after_in_parent=over.set, after_in_child=lambda: signal.alarm(20))
"""


@pytest.mark.parametrize("extension", ["0", "1"])
def test_a_child_finds_no_lock_held_by_a_thread_that_it_has_not(packaged, extension):
    """Whichever lock of the run time another thread held, as while it read the manifest: the child would never end."""
    cuda = packaged("first-use")
    code = FORK.replace("    k.k[1, 32](1.0, Array())\n    sys.exit", "    sys.exit")
    assert cuda.run(code % HELD, AOTCUDA_EXTENSION=extension) == "launched\n"
    assert len(cuda.launches()) == 1


def test_a_fork_after_another_library_started_cuda_is_told_too(packaged):
    cuda = packaged("first-use")
    assert cuda.run(FORK % STARTED).startswith("ForkError this process forked after CUDA was started")


def test_an_import_in_such_a_child_succeeds(packaged):
    cuda = packaged("import")
    manifests.write(cuda.packages, [kernel("other", "void(int32)")], name="mypkg.others")
    code = FORK.replace(
        "    k.k[1, 32](2.0, Array())", "    import mypkg.others as o; print('imported'); o.other[1, 1](1)"
    )
    shown = cuda.run(code % "")
    assert shown.startswith("imported\nForkError")


@pytest.mark.skipif(sys.platform == "win32", reason="counts are of Linux")
@pytest.mark.parametrize(("load", "most"), [("first-use", 8), ("import", 28)])
def test_an_import_opens_few_files_writes_nothing_and_takes_no_lock(packaged, load, most):
    code = r"""
import os, re, sys
events = []
sys.addaudithook(lambda event, given: events.append((event, given)))
import mypkg.kernels
opened = [given for event, given in events if event == "open" and isinstance(given[0], str)]
writes = [given for given in opened if given[1] not in (None, "r", "rb") or given[2] & (os.O_WRONLY | os.O_RDWR)]
others = [event for event, _ in events if event in ("fcntl.flock", "fcntl.lockf", "os.mkdir", "os.rename", "os.remove")]
places = tuple(os.environ["PYTHONPATH"].split(os.pathsep))
read = {re.sub(r"__pycache__/|([.]cpython-[0-9]+t?)?[.]pyc?$", "", given[0]) for given in opened}
print(sum(name.startswith(places) for name in read), len(writes), len(others))
"""
    cuda = packaged(load, 50)
    opened, writes, others = map(int, cuda.run(code, PYTHONDONTWRITEBYTECODE="1").split())
    assert 2 <= opened <= most
    assert (writes, others) == (0, 0)
