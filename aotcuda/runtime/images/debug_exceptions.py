"""Raise on the host the exception that a kernel of a debug build raised on the GPU.

A kernel built with `debug = true` stores the code of the first exception of a thread, and the thread's indices, in
globals named after the kernel (numba.cuda.compiler.add_exception_store_helper). Launches of debug builds wait for the
kernel and read these globals, unless the launch's stream is captured.
"""

from __future__ import annotations

import builtins
import ctypes

from ...errors import DeviceError
from .. import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...manifest import Overload, Raised
    from ..driver import Driver


class Watch:
    """The globals of one debug kernel in a loaded library."""

    __slots__ = ("_address", "_driver", "_library", "_overload", "_where")

    def __init__(self, driver: Driver, library: ctypes.c_void_p, overload: Overload, where: str) -> None:
        self._driver = driver
        self._library = library
        self._overload = overload
        self._where = where

    def clear(self, stream: int) -> None:
        """Clear the code of an earlier launch."""
        code = self._driver.call["cuMemsetD32Async"](self._global("errcode"), 0, 1, stream)
        self._driver.check(code, f"the error code of {self._where} could not be cleared")

    def check(self, stream: int) -> int:
        """Wait for a launch, and raise its exception; return the driver's code if the kernel failed otherwise.

        Raises:
            Exception: The exception that the kernel raised; `DeviceError` for a class that is not built into Python.
            CudaError: The globals cannot be read.
        """
        if streams.is_captured(self._driver, stream):
            return 0  # the kernel has not run
        code = streams.wait(self._driver, stream)
        if code:
            return code
        number = self._read("errcode")
        if not number:
            return 0
        thread = [self._read(f"tid{axis}") for axis in "xyz"]
        block = [self._read(f"ctaid{axis}") for axis in "xyz"]
        record = next((item for item in self._overload.get("raises", ()) if item["code"] == number), None)
        raise _exception(record, f"{self._where}, thread {thread} of block {block}", number)

    def _global(self, name: str) -> int:
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        symbol = f"{self._overload['symbol']}__{name}__".encode()
        code = self._driver.call["cuLibraryGetGlobal"](ctypes.byref(address), ctypes.byref(size), self._library, symbol)
        self._driver.check(code, f"{self._where} has no global {symbol.decode()}")
        return address.value

    def _read(self, name: str) -> int:
        value = ctypes.c_int()
        code = self._driver.call["cuMemcpyDtoH_v2"](ctypes.byref(value), self._global(name), 4)
        self._driver.check(code, f"the error code of {self._where} could not be read")
        return value.value


def _exception(record: Raised | None, where: str, code: int) -> Exception:
    if record is None:
        return DeviceError(f"{where}: error code {code}, which the manifest does not explain")
    place = f"in {record['function']} ({record['file']}:{record['line']}), " if record["file"] else "in "
    text = place + where + (f": {record['arguments']}" if record["arguments"] else "")
    kind = getattr(builtins, record["exception"], None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(text)
    return DeviceError(f"{record['exception']} {text}")
