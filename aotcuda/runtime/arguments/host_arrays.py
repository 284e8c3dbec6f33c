"""Arrays in the host's memory, copied to the GPU for one launch and back after it, as Numba does.

`AOTCUDA_HOST_ARRAYS=copy` asks for it; otherwise such arrays are an error. The copies take far longer than most kernels
and the launch has to wait for the kernel, so it is for trying things out, and each such launch warns.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings

from aotcuda.errors import ConfigError, HostArrayWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.runtime.driver import Driver
    from aotcuda.runtime.forall import ForAll
    from aotcuda.runtime.images.program import Program
    from aotcuda.runtime.launcher import Launcher

_VARIABLE = "AOTCUDA_HOST_ARRAYS"
_VALUES = ("error", "copy")


class _Copy:
    """A NumPy array's copy on the GPU."""

    def __init__(self, array: Any, driver: Driver, where: str) -> None:
        numpy = sys.modules["numpy"]
        self._array = array
        self._driver = driver
        self._where = where
        self._packed = array if array.flags.forc else numpy.ascontiguousarray(array)
        self._address = ctypes.c_uint64()
        self._check(driver.call["cuMemAlloc_v2"](ctypes.byref(self._address), max(array.nbytes, 1)))
        self._check(driver.call["cuMemcpyHtoD_v2"](self._address, self._packed.ctypes.data, array.nbytes))

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        interface = self._packed.__array_interface__
        readonly = not self._array.flags.writeable
        return {**interface, "data": (self._address.value, readonly), "version": 3, "stream": None}

    def bring_back(self) -> None:
        """Copy what a kernel wrote; read-only arrays have not changed."""
        if not self._array.flags.writeable:
            return
        packed = self._packed
        self._check(self._driver.call["cuMemcpyDtoH_v2"](packed.ctypes.data, self._address, packed.nbytes))
        if packed is not self._array:
            self._array[...] = packed

    def free(self) -> None:
        """Give the memory back."""
        self._driver.call["cuMemFree_v2"](self._address)

    def _check(self, code: int) -> None:
        self._driver.check(code, f"an array in the host's memory could not be copied for {self._where}")


def launch(launcher: Launcher | ForAll, program: Program, args: tuple[object, ...]) -> bool:
    """Launch with copies of the host's arrays and records; False if the arguments have none, or none are wanted.

    Raises:
        ConfigError: `AOTCUDA_HOST_ARRAYS` has an unknown value.
    """
    wanted = os.environ.get(_VARIABLE, "error")
    if wanted not in _VALUES:
        message = f"{_VARIABLE} is {wanted!r}; write 'error' or 'copy'"
        raise ConfigError(message)
    numpy = sys.modules.get("numpy")
    if wanted == "error" or numpy is None:
        return False
    numbers = [number for number, arg in enumerate(args, 1) if isinstance(arg, (numpy.ndarray, numpy.void))]
    if not numbers:
        return False
    driver = program.driver
    launcher.kernel.module.enter(program, ())
    copies: dict[int, _Copy] = {}  # an array that is given twice is one array on the GPU too
    try:
        for number in numbers:
            array = args[number - 1]
            if id(array) not in copies:  # of a record this is an array without dimensions, in the same memory
                copies[id(array)] = _Copy(numpy.asarray(array), driver, str(launcher.kernel))
        launcher.launch(tuple([copies.get(id(arg), arg) for arg in args]))
        _warn(launcher, numbers)
        synchronize: Callable[..., int] = driver.call["cuStreamSynchronize"]
        driver.check(synchronize(launcher.stream), f"{launcher.kernel} failed")
        for copy in copies.values():
            copy.bring_back()
    finally:
        for copy in copies.values():
            copy.free()
    return True


def _warn(launcher: Launcher | ForAll, numbers: list[int]) -> None:
    which = f"argument {numbers[0]}" if len(numbers) == 1 else f"arguments {', '.join(map(str, numbers))}"
    message = (
        f"{launcher.kernel} got an array in the host's memory ({which}), which was copied to the GPU and back; "
        "that takes longer than most kernels, so keep arrays on the GPU, as cupy.asarray does"
    )
    warnings.warn(message, HostArrayWarning, stacklevel=_depth())


def _depth() -> int:
    """How many frames up the caller of aotcuda is."""
    depth = 1
    frame = sys._getframe(1)  # noqa: SLF001 (warnings have no other way before Python 3.12)
    here = os.path.dirname(os.path.dirname(__file__))
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
        depth += 1
    return depth
