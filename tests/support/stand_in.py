"""The stand-in driver, as fixtures."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aotcuda
from aotcuda.runtime import driver
from support import manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ROOT = Path(aotcuda.__file__).parents[1]


class DeviceArray:
    """An array in the stand-in's memory that offers `__cuda_array_interface__`; `changes` replace its keys."""

    def __init__(self, address: int, like: np.ndarray[Any, Any], **changes: object) -> None:
        self.shape = like.shape
        self.interface: dict[str, Any] = {
            "version": 3,
            "data": (address, False),
            "shape": like.shape,
            "typestr": like.dtype.str,
            "strides": None if like.flags.c_contiguous else like.strides,
            "stream": None,
            **changes,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface

    @property
    def address(self) -> int:
        return int(self.interface["data"][0])


class StandIn:
    """The stand-in driver of one test."""

    def __init__(self, library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.library = library
        self.folder = folder
        self.packages = folder / "packages"
        self._monkeypatch = monkeypatch
        self._log = folder / "calls.jsonl"
        self._calls: list[dict[str, Any]] = []
        self._read = 0
        self._fake = ctypes.CDLL(str(library))
        self._fake.fake_allocate.restype = ctypes.c_uint64
        self._fake.fake_reset()
        monkeypatch.setenv("FAKE_CUDA_LOG", str(self._log))
        monkeypatch.syspath_prepend(str(self.packages))

    def set(self, **settings: object) -> None:
        """Set variables of the stand-in: `set(devices="9.0,7.5", version=12080, fail="cuInit=999")`."""
        for name, value in settings.items():
            text = str(value) or (" " if sys.platform == "win32" else "")  # a variable of Windows cannot be empty
            self._monkeypatch.setenv(f"FAKE_CUDA_{name.upper()}", text)

    def package(self, *kernels: dict[str, Any], **options: Any) -> Any:
        """Write a packaged module, import it and return it."""
        manifests.write(self.packages, list(kernels), **options)
        importlib.invalidate_caches()
        return importlib.import_module(options.get("name", "mypkg.kernels"))

    def install(self, wheel: Path) -> None:
        """Extract a wheel into the folder of packages."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        importlib.invalidate_caches()

    def calls(self, *names: str) -> list[dict[str, Any]]:
        """Return the calls that were logged so far, of all functions or of the named ones."""
        if self._log.exists():
            with self._log.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            self._read += len(data)
            self._calls += map(json.loads, data.splitlines())
        return [call for call in self._calls if not names or call["call"] in names]

    def launches(self) -> list[dict[str, Any]]:
        """Return the launches so far."""
        return self.calls("cuLaunchKernel")

    def parameters(self) -> bytes:
        """Return the parameter block of the last launch."""
        return bytes.fromhex(self.launches()[-1]["parameters"])

    def array(self, like: np.ndarray[Any, Any] | int = 8, *, device: int = 0, **changes: object) -> DeviceArray:
        """Return an array on a GPU with the type, shape and strides of `like`, or with `like` float32 elements."""
        if isinstance(like, int):
            like = np.zeros(like, "<f4")
        return DeviceArray(self.allocate(like.nbytes * 4, device), like, **changes)

    def hold(self, hold: bool) -> None:
        """Hold launches inside the driver from now on, or release them."""
        self._fake.fake_hold(int(hold))

    def await_launch(self) -> None:
        """Wait until a launch is inside the driver."""
        self._fake.fake_await()

    def start(self) -> None:
        """Start the driver, as another library does."""
        self._fake.cuInit(0)

    def destroy_context(self) -> None:
        """Reset the context of the first GPU, as another library's `cuDevicePrimaryCtxReset` does."""
        self._fake.fake_destroy()

    def allocate(self, size: int, device: int = 0) -> int:
        """Return the address of new memory on a GPU."""
        return int(self._fake.fake_allocate(ctypes.c_uint64(size), device))

    def load(self, images: bytes) -> int:
        """Load images as another library does; return the driver's handle."""
        handle = ctypes.c_void_p()
        load = driver.get().call["cuLibraryLoadData"]
        assert load(ctypes.byref(handle), images, None, None, 0, None, None, 0) == 0
        return int(handle.value or 0)

    def run(self, code: str, **environment: str) -> str:
        """Return the output of `code` in a bare interpreter (without `site`), with the stand-in as its driver."""
        done = subprocess.run(
            [sys.executable, "-S", "-c", code],
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Return the environment of the interpreters of `run`."""
        path = os.pathsep.join([str(self.packages), str(ROOT)])
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library.parent), "PYTHONPATH": path}


@pytest.fixture(scope="session")
def stand_in_library(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return the stand-in, compiled; on Windows by tools/windows.py."""
    if sys.platform == "win32":
        return Path(sys.base_prefix, "nvcuda.dll")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("the stand-in driver needs a C compiler: install gcc")
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-o", "libcuda.so.1", HERE / "fake_libcuda.c", "-lpthread"]
    return once("driver", lambda folder: subprocess.run([compiler, *options], cwd=folder, check=True)) / "libcuda.so.1"


@pytest.fixture
def cuda(stand_in_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Make the stand-in this process's driver; it has one GPU of compute capability 9.0 by default."""
    before = set(sys.modules)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(driver, "LIBRARY", str(stand_in_library))
    monkeypatch.setattr(driver, "_driver", None)
    found = StandIn(stand_in_library, tmp_path, monkeypatch)
    yield found
    found.hold(False)  # after a test that failed
    packaged = {path.stem for path in found.packages.iterdir()} if found.packages.is_dir() else set()
    for name in set(sys.modules) - before:
        if name.startswith("mypkg") or name.partition(".")[0] in packaged:
            del sys.modules[name]  # its images are not in the driver of later tests
