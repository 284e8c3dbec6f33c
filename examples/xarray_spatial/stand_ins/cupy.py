"""NumPy under CuPy's names, so that code for CuPy's arrays runs in Numba's simulator, where there is no GPU.

An array here is no `numpy.ndarray`, as CuPy's is none: code that tells the two apart takes its branch for CuPy.
Whatever is not written here is NumPy's, with arrays exchanged on the way in and out.
"""

# ruff: noqa: SLF001 (its own arrays' inside)

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

if TYPE_CHECKING:
    from collections.abc import Callable


class ndarray(np.lib.mixins.NDArrayOperatorsMixin, FakeCUDAArray):  # type: ignore[misc]  # noqa: N801 (CuPy's name)
    """An array of CuPy's kind; the simulator takes it for one on the GPU."""

    __hash__ = None  # type: ignore[assignment]

    def get(self) -> Any:
        """The content as NumPy's array."""
        return self._ary

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, a plain tuple."""
        return tuple(self._ary.shape)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ary, name)
        return _exchanged(found) if callable(found) else _out(found)

    def __getitem__(self, index: Any) -> Any:
        found = self._ary[_in(index)]
        return ndarray(found) if isinstance(found, np.ndarray) else found  # kernels want numbers

    def __setitem__(self, index: Any, value: Any) -> None:
        self._ary[_in(index)] = _in(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        return _exchanged(getattr(ufunc, method))(*args, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return _exchanged(function)(*args, **options)

    def __array__(self, *args: Any, **options: Any) -> Any:
        message = "an array of CuPy's is converted by get() alone"
        raise TypeError(message)

    def __iter__(self) -> Any:
        return map(_out, self._ary)

    def __float__(self) -> float:
        return float(self._ary.item())

    def __bool__(self) -> bool:
        return bool(self._ary)


def _in(value: Any) -> Any:
    """Arrays of this module as NumPy's, at any depth of tuples, lists and dicts."""
    if isinstance(value, ndarray):
        return value._ary
    if isinstance(value, (tuple, list)):
        return type(value)(map(_in, value))
    return {key: _in(item) for key, item in value.items()} if isinstance(value, dict) else value


def _out(value: Any) -> Any:
    """NumPy's arrays as those of this module. CuPy's have no scalars but arrays without dimensions."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    return type(value)(map(_out, value)) if isinstance(value, (tuple, list)) else value


def _exchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def exchanged(*args: Any, **options: Any) -> Any:
        return _out(function(*_in(args), **_in(options)))

    return exchanged


def asnumpy(array: Any) -> Any:
    """The content as NumPy's array."""
    return _in(array)


def get_default_memory_pool() -> Any:
    """A pool of nothing."""
    return SimpleNamespace(free_all_blocks=lambda: None)


cuda = SimpleNamespace(Device=lambda _: SimpleNamespace(synchronize=lambda: None))
random = SimpleNamespace(seed=np.random.seed, permutation=_exchanged(np.random.permutation))


float_ = np.float64


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(np, name)
    return found if isinstance(found, type) or not callable(found) else _exchanged(found)
