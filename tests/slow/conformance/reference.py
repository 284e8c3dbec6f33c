"""Run the kernel of a case by CPython, to compute the correct arrays.

Integers are exact while they are computed with, and wrap where they are stored or converted, as in Numba's 64-bit
arithmetic. Floats are NumPy's of the array's type, so float32 is computed in float32. Threads run one after another.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from slow.conformance.case import Case


def results(case: Case) -> dict[str, Any]:
    """Return the arrays of a case after its launch, by the names of the parameters.

    Raises:
        ValueError: Two threads change one byte without atomic operations, so the result depends on their order.
    """
    arrays = {name: copy_array(value) for name, value in case.arguments.items() if isinstance(value, np.ndarray)}
    values = {
        name: Array(arrays[name]) if name in arrays else to_python(value) for name, value in case.arguments.items()
    }
    cuda = _Cuda(case)
    text = case.source
    if case.reference:
        head = text.splitlines()[0]
        text = "\n".join([head, *(f"    {line}" for line in case.reference.splitlines()), ""])
    names: dict[str, Any] = {"cuda": cuda, "math": _Math, "np": np}
    exec(compile(text, case.name, "exec"), names)
    changed: set[int] = set()
    with np.errstate(all="ignore"):
        for thread in range(case.first, case.threads):
            cuda.enter(thread)
            before = _bytes(arrays)
            names[case.kernel](**values)
            changes = {place for place, (old, new) in enumerate(zip(before, _bytes(arrays), strict=True)) if old != new}
            if changed & changes and "cuda.atomic" not in case.body:
                message = f"{case.name}: thread {thread} changes an element that an earlier thread has changed"
                raise ValueError(message)
            changed |= changes
    return arrays


def _bytes(arrays: dict[str, np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in arrays.values())


def copy_array(array: np.ndarray) -> np.ndarray:
    """Return a copy of an array with the same strides, which may be negative."""
    low = sum(stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True) if stride < 0)
    high = sum(stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True) if stride > 0)
    block = np.zeros(high - low + array.itemsize, np.uint8)
    view = np.ndarray(array.shape, array.dtype, block, -low, array.strides)
    view[...] = array
    return view


def to_python(value: Any) -> Any:
    """Return the Python value of a NumPy scalar, as kernels compute with it."""
    if isinstance(value, np.integer):
        return int(value)
    return bool(value) if isinstance(value, np.bool_) else value


def to_element(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value in the form in which an array of this type stores it."""
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        wrapped = int(value) & (1 << bits) - 1
        return wrapped - (1 << bits) if dtype.kind == "i" and wrapped >> (bits - 1) else wrapped
    return value


class Array:
    """An array whose elements are Python's integers and NumPy's floats."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Any:
        value = self.array[index]
        if isinstance(value, np.void):
            return Record(self.array, index)
        return Array(value) if isinstance(value, np.ndarray) else to_python(value)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Array):
            self.array[index] = value.array
        elif isinstance(value, Record):
            self.array[index] = value.value
        else:
            self.array[index] = to_element(value, self.array.dtype)

    def __getattr__(self, name: str) -> Any:
        if self.array.dtype.names and name in self.array.dtype.names:
            return Array(self.array[name])
        value = getattr(self.array, name)
        return Array(value) if isinstance(value, np.ndarray) else value

    def __len__(self) -> int:
        return len(self.array)

    def view(self, dtype: Any) -> Array:
        """Return the same memory as elements of another type."""
        return Array(self.array.view(dtype.dtype if isinstance(dtype, _Type) else dtype))


class Record:
    """One record of an array."""

    def __init__(self, array: np.ndarray, index: Any) -> None:
        object.__setattr__(self, "_place", (array, index))

    @property
    def value(self) -> Any:
        array, index = self._place
        return array[index]

    def __getattr__(self, name: str) -> Any:
        return to_python(self.value[name])

    def __setattr__(self, name: str, value: Any) -> None:
        array, index = self._place
        array[name][index] = to_element(value, array.dtype[name])

    __getitem__ = __getattr__
    __setitem__ = __setattr__


class _Type:
    """A type of Numba, which converts values."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype(name)

    def __call__(self, value: Any) -> Any:
        if self.dtype.kind == "b":
            return bool(value)
        return to_python(self.dtype.type(to_element(value, self.dtype)))


_Math = SimpleNamespace(**{**vars(math), "trunc": int})
"""Python's `math` with a `trunc` for NumPy's floats."""


class _Atomic:
    """`cuda.atomic`, for threads that run one after another."""

    def add(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: old + x, value)

    def sub(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: old - x, value)

    def max(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, max, value)

    def min(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, min, value)

    def and_(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: old & x, value)

    def or_(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: old | x, value)

    def xor(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: old ^ x, value)

    def exch(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda _, x: x, value)

    def inc(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: 0 if old >= x else old + 1, value)

    def dec(self, array: Array, index: Any, value: Any) -> Any:
        return self._put(array, index, lambda old, x: x if old == 0 or old > x else old - 1, value)

    def cas(self, array: Array, index: Any, expected: Any, value: Any) -> Any:
        old_value = to_python(array.array.dtype.type(to_element(expected, array.array.dtype)))
        return self._put(array, index, lambda old, x: x if old == old_value else old, value)

    def _put(self, array: Array, index: Any, operation: Any, value: Any) -> Any:
        old = array[index]
        array[index] = operation(old, to_python(array.array.dtype.type(to_element(value, array.array.dtype))))
        return old


class _Cuda:
    """Numba's `cuda` in a kernel."""

    atomic = _Atomic()

    def __init__(self, case: Case) -> None:
        blocks, size = case.launch
        self.blockDim, self.gridDim = _dimensions(size, 1), _dimensions(blocks, 1)
        for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"):
            setattr(self, name, _Type(name))
        self.boolean = _Type("bool")
        self.local = SimpleNamespace(array=lambda shape, dtype: Array(np.zeros(shape, dtype.dtype)))

    def enter(self, thread: int) -> None:
        """Set the indices of a thread."""
        self.threadIdx = _dimensions(thread % self.blockDim.x, 0)
        self.blockIdx = _dimensions(thread // self.blockDim.x, 0)

    def grid(self, _: int) -> int:
        return int(self.blockIdx.x * self.blockDim.x + self.threadIdx.x)

    def gridsize(self, _: int) -> int:
        return int(self.gridDim.x * self.blockDim.x)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return type(x)(float(x) * float(y) + float(z))

    def popc(self, x: int) -> int:
        return (x & (1 << 64) - 1).bit_count()

    def selp(self, condition: Any, yes: Any, no: Any) -> Any:
        return yes if condition else no

    def cbrt(self, x: Any) -> Any:
        return np.cbrt(x)


def _dimensions(x: int, others: int) -> SimpleNamespace:
    return SimpleNamespace(x=x, y=others, z=others)
