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
        results: An object that records memory which launches could have written: `written(start, size)`,
            `launched(start, size, owner)`, and `read(start, size, call)` for reads of the host.
        launch: A function that is called with name, grid, block and arguments of kernels that CuPy launches from
            another compiler's code.
    """

    results: Any = None
    launch: Callable[[str, Any, Any, Any], object] | None = None


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is no NumPy array, so code that distinguishes the two libraries takes its branch for CuPy."""

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100
    _array: Any

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if isinstance(shape, np.ndarray) and memptr is None:  # made by this package
            self._array = shape
            return
        buffer, offset = (None, 0) if memptr is None else (memptr.mem.block, memptr.offset)
        made: Any = np.ndarray
        self._array = made(shape, dtype, buffer, offset, strides, "F" if order == "F" else "C")
        if buffer is None:
            self._array[...] = np.zeros((), self._array.dtype)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        del stream, blocking
        self._note("get")
        if out is None:
            return np.array(self._array, order="F" if order == "F" else "C" if order == "C" else "A")
        out[...] = self._array
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        del stream
        self._array[...] = np.reshape(arr, self._array.shape)

    def item(self, *index: Any) -> Any:
        self._note("item")
        return self._array.item(*index)

    def tolist(self) -> Any:
        self._note("tolist")
        return self._array.tolist()

    def scatter_add(self, slices: Any, value: Any) -> None:
        np.add.at(self._array, into(slices), into(value))

    def view(self, *args: Any, **options: Any) -> ndarray:
        return ndarray(self._array.view(*args, **options))

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        del casting, subok
        made = self._array.astype(dtype, order=order, copy=copy)
        return self if made is self._array else ndarray(made)

    def copy(self, order: str = "C") -> ndarray:
        return ndarray(self._array.copy(order))

    def fill(self, value: Any) -> None:
        self._array.fill(into(value))

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
        found = getattr(self._array, name)
        return exchanged(found, self) if callable(found) else from_numpy(found)

    def __getitem__(self, index: Any) -> ndarray:
        found = self._array[into(index)]
        return ndarray(np.asarray(found)) if not isinstance(found, np.ndarray) else ndarray(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[into(index)] = into(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        return exchanged(getattr(ufunc, method))(*args, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        del types
        return exchanged(function)(*args, **options)

    def __array__(self, *args: Any, **options: Any) -> Any:
        message = "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array."
        raise TypeError(message)

    def __iter__(self) -> Iterator[Any]:
        return map(from_numpy, self._array)

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        self._note("bool()")
        return bool(self._array)

    def __int__(self) -> int:
        self._note("int()")
        return int(self._array.item())

    def __float__(self) -> float:
        self._note("float()")
        return float(self._array.item())

    def __complex__(self) -> complex:
        self._note("complex()")
        return complex(self._array.item())

    def __index__(self) -> int:
        self._note("int()")
        return int(self._array.__index__())

    def __repr__(self) -> str:
        return repr(self._array)

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, text: str) -> str:
        return format(self._array, text)

    def __reduce__(self) -> Any:
        return type(self), (self._array,)

    def _note(self, call: str) -> None:
        if Hooks.results is not None:
            Hooks.results.read(*_memory(self._array), f"{call} of an array of CuPy's")


def _memory(array: Any) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def _is_result(value: Any) -> bool:
    """Return True if launches could have written one of the arrays in a value, at any depth of tuples and lists."""
    if isinstance(value, tuple | list):
        return any(map(_is_result, value))
    return isinstance(value, ndarray) and bool(Hooks.results.written(*_memory(value._array)))


def _derive(value: Any) -> None:
    """Record that arrays were computed from a result."""
    if isinstance(value, tuple | list):
        for item in value:
            _derive(item)
    elif isinstance(value, ndarray):
        Hooks.results.launched(*_memory(value._array), value._array)


class _Described:
    """An object whose memory NumPy shares."""

    def __init__(self, described: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = {**described, "version": 3}
        self._owner = owner


def shared(value: Any) -> Any:
    """Return a NumPy array with the memory of an object that CuPy could share; another object unchanged."""
    if isinstance(value, ndarray):
        return value._array
    described = getattr(value, "__cuda_array_interface__", None)
    if described is not None:
        return np.asarray(_Described({key: described[key] for key in described if key != "stream"}, value))
    return value


def into(value: Any) -> Any:
    """Convert arrays of the stand-in to NumPy's, at any depth of tuples, lists and dicts."""
    if isinstance(value, ndarray):
        return value._array
    if isinstance(value, slice):
        return slice(*(item._array.item() if isinstance(item, ndarray) else item for item in _parts(value)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(into, value))
    if isinstance(value, tuple | list):
        return type(value)(map(into, value))
    return {key: into(item) for key, item in value.items()} if isinstance(value, dict) else value


def _parts(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def from_numpy(value: Any) -> Any:
    """Convert NumPy's arrays to arrays of the stand-in, and scalars to arrays without dimensions, as CuPy does."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_numpy, value))
    return type(value)(map(from_numpy, value)) if isinstance(value, tuple | list) else value


def exchanged(function: Callable[..., Any], *owner: Any) -> Callable[..., Any]:
    """Wrap a function of NumPy or SciPy, or a method of its owner, to take and return arrays of the stand-in."""

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*args: Any, **options: Any) -> Any:
        given = options.get("out")
        found = function(*into(args), **into(options))
        if isinstance(given, tuple) and len(given) == 1:
            given = given[0]
        made = given if isinstance(given, ndarray) else from_numpy(found)
        if Hooks.results is not None and _is_result([*args, *options.values(), *owner]):
            _derive(made)
        return made

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
        function = exchanged(getattr(self._source, name))
        if name in ("randint", "integers", "bytes"):
            return function

        def call(*args: Any, dtype: Any = None, **options: Any) -> Any:
            found = function(*args, **options)
            return found if dtype is None else ndarray(np.asarray(into(found), dtype))

        return call


class Wrapped(ModuleType):
    """A module with the functions of a module of NumPy or SciPy, which the first use imports."""

    def __init__(self, name: str, source: str, **own: Any) -> None:
        super().__init__(name, f"{source} under CuPy's name.")
        self._source = source
        self.__path__: list[str] = []
        self.__dict__.update(own)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        source = importlib.import_module(self._source)
        if self._source == "numpy.random":
            return getattr(Generator(source), name)
        found = getattr(source, name)
        return exchanged(found) if callable(found) and not isinstance(found, type) else found
