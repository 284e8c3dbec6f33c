"""Stand in for cupyx: SciPy's functions on arrays of the stand-in for CuPy."""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any

cupy: Any = importlib.import_module(f"{__name__.removesuffix('cupyx')}cupy")
_arrays: Any = importlib.import_module(f"{cupy.__name__}.arrays")
_numpy: Any = importlib.import_module("numpy")

scipy = _arrays.WrappedModule(f"{__name__}.scipy", "scipy", get_array_module=cupy.get_array_module)
for _name in ("fft", "fftpack", "interpolate", "linalg", "ndimage", "signal", "sparse", "sparse.linalg", "spatial",
              "special", "stats"):  # fmt: skip
    _holder, _, _last = _name.rpartition(".")
    _module = _arrays.WrappedModule(f"{__name__}.scipy.{_name}", f"scipy.{_name}")
    setattr(getattr(scipy, _holder) if _holder else scipy, _last, _module)


GeneralizedUFunc = type("GeneralizedUFunc", (cupy.RawKernel,), {})


def scatter_add(a: Any, slices: Any, value: Any) -> None:
    a.scatter_add(slices, value)


def rsqrt(x: Any) -> Any:
    return 1 / cupy.sqrt(x)


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return _numpy.zeros(shape, dtype, order)


zeros_pinned = empty_pinned


def zeros_like_pinned(a: Any, *_: Any, **__: Any) -> Any:
    return _numpy.zeros_like(_arrays.to_numpy(a))


empty_like_pinned = zeros_like_pinned


@contextlib.contextmanager
def errstate(**_: Any) -> Any:
    yield


class _Profiler(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return contextlib.nullcontext


profiler = sys.modules[f"{__name__}.profiler"] = _Profiler(f"{__name__}.profiler")
