"""Copy arrays in the host's memory to the GPU for one launch, and back after it, as Numba does.

`AOTCUDA_HOST_ARRAYS=copy` enables the copies; otherwise arrays in the host's memory are an error. The copies take far
longer than most kernels, and the launch has to wait for the kernel. Each launch with copies warns.
"""

from __future__ import annotations

import ctypes
import os
import sys

from ....errors import ConfigError, HostArrayWarning
from ...streams import LEGACY
from . import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from ...driver import Driver


_VARIABLE = "AOTCUDA_HOST_ARRAYS"
_VALUES = ("error", "copy")
_ALIGNMENT = 256  # of the driver's memory
_NOWHERE = ctypes.c_uint64()


class _Copy:
    """A NumPy array's copy on the GPU."""

    def __init__(self, array: Any, driver: Driver, where: str) -> None:
        numpy = sys.modules["numpy"]
        self._array = numpy.asarray(array)  # of a record a view without dimensions
        self._is_masked = _is_masked(array)
        self._driver = driver
        self._where = where
        self._packed = self._array if self._array.flags.forc else numpy.ascontiguousarray(self._array)
        self._address = ctypes.c_uint64()
        self._free = driver.call["cuMemFree_v2"]

    def make(self) -> None:
        """Copy the array; the caller frees the copy, also after an error."""
        call, size = self._driver.call, self._array.nbytes
        self._check(call["cuMemAlloc_v2"](ctypes.byref(self._address), max(size, 1)))
        self._check(call["cuMemcpyHtoD_v2"](self._address, self._packed.ctypes.data, size))

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return _interface(self._array, self._address.value, is_masked=self._is_masked)

    def copy_back(self) -> None:
        """Copy the array back, unless it is read-only."""
        if not self._array.flags.writeable:
            return
        packed = self._packed
        self._check(self._driver.call["cuMemcpyDtoH_v2"](packed.ctypes.data, self._address, packed.nbytes))
        if packed is not self._array:
            self._array[...] = packed

    def free(self) -> None:
        """Free the memory, if there is any; the caller may call again after an interrupt."""
        address, self._address = self._address, _NOWHERE
        if address.value:
            self._free(address)

    def _check(self, code: int) -> None:
        self._driver.check(code, f"an array in the host's memory could not be copied for {self._where}")


class _Description:
    """An object with the interface of a NumPy array's copy, to check arguments without a launch."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, array: Any, address: int, *, is_masked: bool) -> None:
        self.__cuda_array_interface__ = _interface(array, address, is_masked=is_masked)


def _interface(array: Any, address: int, *, is_masked: bool) -> dict[str, object]:
    """Return the interface of a copy: in F order if the array has that order, else in C order.

    Its stream is the stream of the copy: the driver may return before the GPU has all data of pageable memory.
    """
    data, strides = (address, not array.flags.writeable), array.strides if array.flags.fnc else None
    copied = {"data": data, "strides": strides, "version": 3, "stream": LEGACY, "mask": is_masked or None}
    return {**array.__array_interface__, **copied}


def _is_masked(array: object) -> bool:
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(array, masked.MaskedArray)


def describe_copies(args: tuple[object, ...], overloads: Sequence[Any]) -> tuple[object, ...]:
    """Return the arguments of a launch, with a description in place of each array that a launch would copy.

    Raises:
        ConfigError: As `find_arguments_to_copy`.
    """
    described, address = list(args), _ALIGNMENT
    for number in find_arguments_to_copy(args, overloads):
        at = next(at for at, arg in enumerate(args) if arg is args[number - 1])
        if at < number - 1:  # an array that is passed twice has one copy
            described[number - 1] = described[at]
            continue
        array = sys.modules["numpy"].asarray(args[at])
        described[at] = _Description(array, address, is_masked=_is_masked(args[at]))
        address += (array.nbytes // _ALIGNMENT + 1) * _ALIGNMENT
    return tuple(described)


def find_arguments_to_copy(args: tuple[object, ...], overloads: Sequence[Any]) -> list[int]:
    """Return the numbers, from 1, of the arguments that a launch has to copy.

    Args:
        args: The arguments.
        overloads: The kernel's overloads. If one of them takes a record by value, its argument is not copied.

    Raises:
        ConfigError: `AOTCUDA_HOST_ARRAYS` has an unknown value, and arguments are in the host's memory.
    """
    if not any(map(is_numpy, args)):
        return []
    value = os.environ.get(_VARIABLE, "error")
    if value not in _VALUES:
        message = f"{_VARIABLE} is {value!r}; write 'error' or 'copy'"
        raise ConfigError(message)
    if value == "error":
        return []
    pairs = [pair for each in overloads if len(each.parameters) == len(args) for pair in enumerate(each.parameters)]
    by_value = {at for at, parameter in pairs if parameter["kind"] == "struct"}
    return [at + 1 for at, arg in enumerate(args) if is_numpy(arg) and at not in by_value]


def is_host(array: object) -> bool:
    """Return True if an object is an array in the host's memory."""
    read = arrays.reader(array)
    if read is None:  # NumPy's scalars have the interface, too, but no `__setitem__`
        return hasattr(type(array), "__setitem__") and hasattr(array, "__array_interface__")
    return read(array, [], 0) is None


def is_numpy(arg: object) -> bool:
    """Return True if an argument is an array or a record of NumPy's."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(arg, (numpy.ndarray, numpy.void))


class Copies:
    """A context manager for the copies on the GPU of one launch's host arrays and records.

    Attributes:
        args: The arguments, with copies in place of arrays.
    """

    def __init__(self, args: tuple[object, ...], numbers: list[int], driver: Driver, where: str) -> None:
        """Prepare copies of the arguments with these numbers; entering the context copies them.

        A CUDA context must then be current.
        """
        self._numbers = numbers
        self._driver = driver
        self._where = where
        self._copies: list[tuple[object, _Copy]] = []
        replaced = list(args)
        for number in numbers:
            array = args[number - 1]
            copy = next((copy for other, copy in self._copies if other is array), None)  # it may be passed twice
            if copy is None:
                copy = _Copy(array, driver, where)
                self._copies.append((array, copy))
            replaced[number - 1] = copy
        self.args = tuple(replaced)

    def __enter__(self) -> Self:
        try:
            for _, copy in self._copies:
                copy.make()
        except BaseException:
            self.free()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.free()

    def copy_back(self, stream: int) -> None:
        """Wait for the kernel, copy the arrays back, and warn. The warning comes last, since it may be an error.

        Raises:
            CudaError: The kernel or a copy failed.
        """
        synchronize: Callable[..., int] = self._driver.call["cuStreamSynchronize"]
        self._driver.check(synchronize(stream), f"{self._where} failed")
        for _, copy in self._copies:
            copy.copy_back()
        _warn(self._where, self._numbers)

    def free(self) -> None:
        """Free the memory of all copies."""
        try:
            for _, copy in self._copies:
                copy.free()
        except BaseException:  # an interrupt: free the other copies, too
            for _, copy in self._copies:
                copy.free()
            raise


def _warn(where: str, numbers: list[int]) -> None:
    which = f"argument {numbers[0]}" if len(numbers) == 1 else f"arguments {', '.join(map(str, numbers))}"
    message = (
        f"{where} got an array in the host's memory ({which}), which was copied to the GPU and back; a copy "
        "takes longer than most kernels, so store arrays on the GPU, as cupy.asarray does"
    )
    import warnings  # noqa: PLC0415 (few launches copy)

    warnings.warn(message, HostArrayWarning, stacklevel=caller_depth())


def caller_depth() -> int:
    """Return the `stacklevel` of the frame that called aotcuda."""
    depth = 1
    frame = sys._getframe(1)  # noqa: SLF001 (`skip_file_prefixes` needs Python 3.12)
    here = __file__.rpartition(os.path.join("runtime", "launch", "arguments"))[0]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
        depth += 1
    return depth
