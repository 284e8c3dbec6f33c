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

from skips import (  # noqa: F401 (hooks of pytest)
    pytest_addoption,
    pytest_configure,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_runtest_setup,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

# A background process of a shell ignores SIGINT, and under nohup SIGHUP. Its children inherit this, and tests could not
# interrupt builds.
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32":
    import fcntl
    import resource

    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    # Some tests crash copies of this process, whose core dumps would be large.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

with suppress(ImportError):  # a machine with a GPU needs none
    from hypothesis import HealthCheck, settings

    settings.register_profile("aotcuda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("aotcuda")

_PREFIXES = ("AOTCUDA_", "NUMBA_", "HATCH_")
_NAMES = ("SOURCE_DATE_EPOCH", "PYTHONHASHSEED", "PYTHONPATH", "TRITON_INTERPRET")
_SETTINGS_OF_TESTS = ("AOTCUDA_EXTENSION", "AOTCUDA_UNTESTED")
"""Variables that select the launch path, and allow releases of compilers that are not tested yet."""


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Leave long and binary data out of test IDs: each process of pytest-xdist needs the same IDs, without times."""
    if isinstance(val, bytes) and not (len(val) < 100 and val.isascii() and val.decode().isprintable()):
        return argname
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that cannot run on Windows."""
    if sys.platform == "win32":
        from support import windows

        windows.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, since nearly all new objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that the garbage collector skips them."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreeze the tests, since finalizers of compilers run at the end of the process."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for this run of the tests, common to its processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def once(session_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that returns a folder, which the first process of the session that needs it fills."""

    def fill_once(name: str, fill: Callable[[Path], object]) -> Path:
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

    return fill_once


@pytest.fixture(scope="session", autouse=True)
def _pack_at_once() -> Iterator[None]:
    """Make the functions of `packing` after the first launch, so tests of the general path need fewer launches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aotcuda.runtime.launch.execute.PACK_AT", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quiet_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _SETTINGS_OF_TESTS:
                patch.delenv(name)
        patch.setenv("AOTCUDA_BUILD_CACHE", "0")  # tests that need the result of a build use the fixture `build_cache`
        yield
