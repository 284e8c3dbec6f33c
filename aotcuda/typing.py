"""Types for annotations: the stubs of packaged modules are written in them, and so may be the code around them.

Nothing here is needed to launch a kernel, and no run time imports it.

Kernels accept more than types can express. An array's dtype, dimensions and layout are checked at the launch.
Numbers are Python's and NumPy's; of what else the run time takes (`fractions.Fraction`, whatever has `__index__`), make
one of those. What speaks plain DLPack and nothing else, types cannot tell from NumPy's arrays, which are on no GPU: an
array of such a library passes as `typing.cast(aotcuda.typing.DeviceArray, x)`.
"""

from __future__ import annotations

from typing import Any, Protocol, SupportsIndex, TypeAlias

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

__all__ = [
    "Complex",
    "Configuration",
    "DeviceArray",
    "Dimensions",
    "Grid",
    "Integer",
    "JAXArray",
    "NumPyScalar",
    "Pointer",
    "Real",
    "Stream",
    "SupportsCudaArrayInterface",
    "SupportsDLPackExchange",
]


class SupportsCudaArrayInterface(Protocol):
    """An array on a GPU with Numba's CUDA Array Interface."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SupportsDLPackExchange(Protocol):
    """An array whose class exchanges data by DLPack's table of C functions."""

    @property
    def __dlpack_c_exchange_api__(self) -> Any: ...


class JAXArray(Protocol):
    """An array of JAX, with DLPack and the places of its shards."""

    @property
    def addressable_shards(self) -> Any:
        """Its parts, by device."""
        ...

    def __dlpack__(self, *, stream: int | None = ...) -> Any: ...


DeviceArray: TypeAlias = "SupportsCudaArrayInterface | SupportsDLPackExchange | JAXArray"
"""An array on a GPU: PyTorch's, CuPy's, JAX's, Numba's, Warp's, and others with one of these interfaces."""


class NumPyScalar(Protocol):
    """A scalar of NumPy's: it has no dimensions."""

    @property
    def shape(self) -> tuple[()]:
        """No extents."""
        ...


class _NumPyInteger(NumPyScalar, Protocol):
    """An integer or a bool, which has no `__index__`: of NumPy's numbers, these can be inverted."""

    def __invert__(self) -> Any: ...


class _NumPyReal(NumPyScalar, Protocol):
    def __float__(self) -> float: ...


class _NumPyComplex(NumPyScalar, Protocol):
    def __complex__(self) -> complex: ...


Integer: TypeAlias = "int | _NumPyInteger"
Real: TypeAlias = "float | _NumPyInteger | _NumPyReal"
Complex: TypeAlias = "complex | _NumPyInteger | _NumPyReal | _NumPyComplex"
Pointer: TypeAlias = "int | ctypes.c_void_p"
"""An address on the GPU."""


class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...


class _PyTorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


class _NumbaStream(Protocol):
    @property
    def handle(self) -> Any: ...


class _CuPyStream(Protocol):
    @property
    def ptr(self) -> int: ...


Stream: TypeAlias = "int | _CudaStream | _PyTorchStream | _NumbaStream | _CuPyStream | None"
"""A stream: a handle, any library's object, or None for the current one."""

Dimensions: TypeAlias = "SupportsIndex | tuple[SupportsIndex, ...] | list[int]"
"""A grid in blocks or a block in threads: an int, or one to three of them."""

Configuration: TypeAlias = (
    "tuple[Dimensions, Dimensions] | tuple[Dimensions, Dimensions, Stream] | tuple[Dimensions, Dimensions, Stream, int]"
)
"""What is in brackets: grid, block, stream and bytes of dynamic shared memory."""

Grid: TypeAlias = "Dimensions | Callable[[dict[str, Any]], Dimensions]"
"""A grid of programs, or what makes it of a launch's arguments, by their names."""
