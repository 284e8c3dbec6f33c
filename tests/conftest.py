"""Settings of all tests: no environment variables of aotcuda, Numba or the packaging tools."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What a shell starts in the background ignores SIGINT, under nohup SIGHUP too, and so do all processes below it: builds
# that are to be interrupted would never hear of it.
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32":
    import fcntl
    import resource

    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    # Some tests crash copies of this process, which may be large by then.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

with suppress(ImportError):  # a machine with a GPU needs none
    from hypothesis import HealthCheck, settings

    # What takes how long is the machine's affair.
    settings.register_profile("aotcuda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("aotcuda")

_PREFIXES = ("AOTCUDA_", "NUMBA_", "HATCH_")
# Which of the two launch paths the tests go, and whether they go with a compiler that may become a tested one.
_KEPT = ("AOTCUDA_EXTENSION", "AOTCUDA_UNTESTED")
_NAMES = ("SOURCE_DATE_EPOCH", "PYTHONHASHSEED", "PYTHONPATH")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Leave binary data out of test IDs: it may contain a time, and pytest-xdist needs equal IDs in each process."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return argname
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run on Windows."""
    if sys.platform == "win32":
        from support import windows

        windows.mark(items)


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that the garbage collector skips them."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """But for the end of the process, when compilers look for what they have lost."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for this run of the tests, common to its processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def once(session_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that has a folder filled by the first process of the session that needs it."""

    def filled(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = session_folder / "once" / name, session_folder / "once" / f"{name}.done"
        done.parent.mkdir(parents=True, exist_ok=True)
        with done.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture(scope="session", autouse=True)
def _learnt_at_once() -> Iterator[None]:
    """Teach the fast path after the first launch, so that tests need fewer launches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aotcuda.runtime.general_path.SPECIALIZE_AT", 1)
        patch.setattr("aotcuda.runtime.arguments.overloads.DIRECT_AT", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quiet_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _KEPT:
                patch.delenv(name)
        patch.setenv("AOTCUDA_BUILD_CACHE", "0")  # tests of builds build; those that only need one ask for a cache
        yield
