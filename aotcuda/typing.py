"""Types for annotations, for the stubs of packaged modules and for programs.

No launch needs them, and the run time does not import this module.

A launch also checks dtype, dimensions and layout of each array, which these types do not express. The types of numbers
are Python's and NumPy's; for a type checker, convert other numbers that the run time accepts, such as
`fractions.Fraction`. Arrays with DLPack alone look like NumPy's arrays to a type checker, and NumPy's arrays are not on
a GPU: write `typing.cast(aotcuda.typing.DeviceArray, x)`.
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
    """An array of JAX, with DLPack and its shards."""

    @property
    def addressable_shards(self) -> Any:
        """The parts of the array, each on a device."""
        ...

    def __dlpack__(self, *, stream: int | None = ...) -> Any: ...


DeviceArray: TypeAlias = "SupportsCudaArrayInterface | SupportsDLPackExchange | JAXArray"
"""An array on a GPU: of PyTorch, CuPy, JAX, Numba, Warp, or another library with one of these interfaces."""


class NumPyScalar(Protocol):
    """A NumPy scalar: it has no dimensions."""

    @property
    def shape(self) -> tuple[()]:
        """The empty tuple."""
        ...


class _NumPyInteger(NumPyScalar, Protocol):
    """A NumPy integer or bool. A bool has no `__index__`; only these NumPy numbers have `__invert__`."""

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
"""The configuration in brackets: grid, block, stream and bytes of dynamic shared memory."""

Grid: TypeAlias = "Dimensions | Callable[[dict[str, Any]], Dimensions]"
"""A grid of programs, or a function that returns it for the arguments of a launch by name."""
