"""Arrays with CuPy's interface in the host's memory, and functions of NumPy and SciPy that take and return them."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Hooks:
    """Functions that the recorder sets.

    Attributes:
        results: An object that records memory which launches could have written: `is_written(start, size)`,
            `mark_written(start, size, owner)`, and `report_read(start, size, call)` for reads of the host.
        launch: A function that is called with name, grid, block and arguments of kernels that CuPy launches from
            another compiler's code.
        source: A function that is called with text, name, arguments and further facts of a kernel in CUDA C++.
        site: A function that returns the `file:line` of the program.
    """

    results: Any = None
    launch: Callable[[str, Any, Any, Any], object] | None = None
    source: Callable[..., object] | None = None
    site: Callable[[], str] | None = None


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is no NumPy array, so code that distinguishes the two libraries takes its branch for CuPy.

    Methods without a definition here are those of NumPy's array.
    """

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100
    _array: Any

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if isinstance(shape, np.ndarray) and memptr is None:  # this package passes the array itself
            self._array = shape
            return
        buffer, offset = (None, 0) if memptr is None else (memptr.mem.block, memptr.offset)
        make: Any = np.ndarray
        self._array = make(shape, dtype, buffer, offset, strides, "F" if order == "F" else "C")
        if buffer is None:
            self._array[...] = np.zeros((), self._array.dtype)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        del stream, blocking
        self._record_read("get")
        if out is None:
            return np.array(self._array, order="F" if order == "F" else "C" if order == "C" else "A")
        out[...] = self._array
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        del stream
        self._array[...] = np.reshape(arr, self._array.shape)

    def item(self, *index: Any) -> Any:
        self._record_read("item")
        return self._array.item(*index)

    def tolist(self) -> Any:
        self._record_read("tolist")
        return self._array.tolist()

    def scatter_add(self, slices: Any, value: Any) -> None:
        wrap(np.add.at)(self, slices, value)

    def astype(self, *args: Any, **options: Any) -> ndarray:
        converted: ndarray = wrap(self._array.astype, self)(*args, **options)
        return self if converted._array is self._array else converted

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._array.shape = shape

    @property
    def data(self) -> Any:
        from .cuda import MemoryPointer

        return MemoryPointer.from_array(self._array)

    @property
    def device(self) -> Any:
        from .cuda import Device

        return Device(0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = self._array.__array_interface__
        contiguous = self._array.flags.c_contiguous
        return {
            "shape": described["shape"],
            "typestr": described["typestr"],
            "descr": described["descr"],
            "strides": None if contiguous else self._array.strides,
            "data": (described["data"][0], False),
            "stream": 1,
            "version": 3,
        }

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        del stream  # nothing runs
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __getattr__(self, name: str) -> Any:
        if name == "_array" or name in ("__array_interface__", "__array_struct__", "_numba_type_"):
            raise AttributeError(name)
        value = getattr(self._array, name)
        return wrap(value, self) if callable(value) else from_numpy(value)

    def __getitem__(self, index: Any) -> Any:
        return wrap(self._array.__getitem__, self)(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        wrap(self._array.__setitem__, self)(index, value)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        return wrap(getattr(ufunc, method))(*args, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        del types
        return wrap(function)(*args, **options)

    def __array__(self, *args: Any, **options: Any) -> Any:
        message = "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array."
        raise TypeError(message)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        self._record_read("bool()")
        return bool(self._array)

    def __int__(self) -> int:
        self._record_read("int()")
        return int(self._array.item())

    def __float__(self) -> float:
        self._record_read("float()")
        return float(self._array.item())

    def __complex__(self) -> complex:
        self._record_read("complex()")
        return complex(self._array.item())

    def __index__(self) -> int:
        self._record_read("int()")
        return int(self._array.__index__())

    def __repr__(self) -> str:
        return repr(self._array)

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, text: str) -> str:
        return format(self._array, text)

    def __reduce__(self) -> Any:
        return type(self), (self._array,)

    def _record_read(self, call: str) -> None:
        if Hooks.results is not None:
            Hooks.results.report_read(*_memory(self._array), f"{call} of an array of CuPy's")


def _memory(array: Any) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def _is_result(value: Any) -> bool:
    """Return True if launches could have written one of the arrays in a value, at any depth of tuples and lists."""
    if isinstance(value, tuple | list):
        return any(map(_is_result, value))
    return isinstance(value, ndarray) and bool(Hooks.results.is_written(*_memory(value._array)))


def _add_result(value: Any) -> None:
    """Record that arrays were computed from memory that launches could have written."""
    if isinstance(value, tuple | list):
        for item in value:
            _add_result(item)
    elif isinstance(value, ndarray):
        Hooks.results.mark_written(*_memory(value._array), value._array)


class Described:
    """An object whose memory NumPy shares, with the array interface `described`; it keeps the owner alive."""

    def __init__(self, described: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = {**described, "version": 3}
        self._owner = owner


def share(value: Any) -> Any:
    """Return an array with the memory of an object that CuPy could share; another object unchanged."""
    described = getattr(value, "__cuda_array_interface__", None)
    if described is None or isinstance(value, ndarray):
        return value
    return ndarray(np.asarray(Described({key: described[key] for key in described if key != "stream"}, value)))


def to_numpy(value: Any) -> Any:
    """Convert arrays of the stand-in to NumPy's, at any depth of tuples, lists and dicts."""
    if isinstance(value, ndarray):
        return value._array
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*(item._array.item() if isinstance(item, ndarray) else item for item in parts))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(to_numpy, value))
    if isinstance(value, tuple | list):
        return type(value)(map(to_numpy, value))
    return {key: to_numpy(item) for key, item in value.items()} if isinstance(value, dict) else value


def from_numpy(value: Any) -> Any:
    """Convert NumPy's arrays to arrays of the stand-in, and scalars to arrays without dimensions, as CuPy does."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_numpy, value))
    return type(value)(map(from_numpy, value)) if isinstance(value, tuple | list) else value


def wrap(function: Callable[..., Any], *owner: Any) -> Callable[..., Any]:
    """Wrap a function of NumPy or SciPy, or a method of its owner, to take and return arrays of the stand-in.

    If an argument could be written by a launch, the result could be, too. A function without a result changes its
    owner or its first argument.
    """

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*args: Any, **options: Any) -> Any:
        out = options.get("out")
        result = function(*to_numpy(args), **to_numpy(options))
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        result = out if isinstance(out, ndarray) else from_numpy(result)
        if Hooks.results is not None and _is_result([*args, *options.values(), *owner]):
            _add_result((*owner, *args)[:1] if result is None else result)
        return result

    return call


class Generator:
    """A generator of NumPy's random numbers in the requested dtype, as arrays of the stand-in."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("RandomState", "default_rng", "Generator"):
            return lambda *args, **_: Generator(getattr(self._source, name)(*args))
        if name == "get_random_state":
            return lambda: self
        function = wrap(getattr(self._source, name))
        if name in ("randint", "integers", "bytes"):
            return function

        def call(*args: Any, dtype: Any = None, **options: Any) -> Any:
            value = function(*args, **options)
            return value if dtype is None else ndarray(np.asarray(to_numpy(value), dtype))

        return call


class WrappedModule(ModuleType):
    """A module with the functions of a module of NumPy or SciPy, which the first use imports."""

    def __init__(self, name: str, source: str, **names: Any) -> None:
        super().__init__(name, f"{source} under CuPy's name.")
        self._source = source
        self.__path__: list[str] = []
        self.__dict__.update(names)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        source = importlib.import_module(self._source)
        if self._source == "numpy.random":
            return getattr(Generator(source), name)
        value = getattr(source, name)
        return wrap(value) if callable(value) and not isinstance(value, type) else value
