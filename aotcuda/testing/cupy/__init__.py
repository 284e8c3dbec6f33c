"""Stand in for CuPy where it is missing or has no GPU, with NumPy's arrays inside its own array class.

Builds and `aotcuda record --dry` import it under CuPy's name. Tests may import it, too::

    from aotcuda import testing

    testing.stand_in("cupy")

Other names are NumPy's functions, which here take and return arrays of the stand-in. `aotcuda record --dry` records
launches of kernels in CUDA C++ (`RawKernel`, `RawModule`, `ElementwiseKernel`); elsewhere they are refused. Libraries
that take handles and addresses (`cupy.cuda.cublas`, `cufft`) compute nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import cuda, kernels
from .arrays import Hooks, WrappedModule, ndarray, share, to_numpy, wrap

_Hooks = Hooks

__version__ = "13.6.0"

RawKernel, RawModule = kernels.RawKernel, kernels.RawModule
ElementwiseKernel, ReductionKernel = kernels.ElementwiseKernel, kernels.ReductionKernel
random = WrappedModule(f"{__name__}.random", "numpy.random")
fft = WrappedModule(f"{__name__}.fft", "numpy.fft")
linalg = WrappedModule(f"{__name__}.linalg", "numpy.linalg")
testing = WrappedModule(f"{__name__}.testing", "numpy.testing")
sys.modules[f"{__name__}._core"] = sys.modules[f"{__name__}.core"] = _core = core = sys.modules[__name__]

float_ = np.float64
complex_ = np.complex128
bool_ = np.bool_
int_ = np.int64
newaxis = None
_pool = cuda.MemoryPool()


def is_available() -> bool:
    return True


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", **options: Any) -> ndarray:
    value = share(obj)
    options = {"subok": False, "ndmin": options.get("ndmin", 0)}
    result: ndarray = wrap(np.array)(value, dtype, copy=copy or None, order=_order(value, order), **options)
    return result


def asarray(a: Any, dtype: Any = None, order: Any = None, **_: Any) -> ndarray:
    if isinstance(a, ndarray) and dtype in (None, a.dtype) and order is None:
        return a
    if isinstance(a, np.ndarray):  # host memory is copied
        return array(a, dtype, order=order)
    converted: ndarray = wrap(np.asarray)(share(a), dtype, order)
    return converted


def _order(value: Any, order: Any) -> Any:
    return order if order in ("C", "F", "A", "K") else "K" if isinstance(value, ndarray | np.ndarray) else "C"


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    return asarray(a, dtype, "C")


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return asarray(a, dtype, "F")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, **_: Any) -> Any:
    del stream
    return a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(np.zeros(shape, dtype, "F" if order == "F" else "C"))


def empty_like(prototype: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None) -> ndarray:
    del subok
    return ndarray(np.zeros_like(to_numpy(prototype), dtype, order, shape=shape))


def from_dlpack(array: Any) -> ndarray:
    return ndarray(np.from_dlpack(array))


fromDlpack = from_dlpack


def get_array_module(*args: Any) -> Any:
    return sys.modules[__name__] if any(isinstance(item, ndarray) for item in args) else np


def get_default_memory_pool() -> cuda.MemoryPool:
    return _pool


get_default_pinned_memory_pool = get_default_memory_pool


def fuse(*args: Any, **_: Any) -> Any:
    return args[0] if args and callable(args[0]) else lambda function: function


def memoize(*_: Any, **__: Any) -> Any:
    return lambda function: function


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(np, name)
    return value if isinstance(value, type) or not callable(value) else wrap(value)
