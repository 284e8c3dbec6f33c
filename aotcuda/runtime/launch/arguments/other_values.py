"""Read arguments other than arrays and plain numbers: tuples, addresses, datetimes, records, descriptors, types.

Few kernels have such parameters, and only their launches import this module.
"""

from __future__ import annotations

import ctypes
import sys

from ....common.scalar_types import NAMED
from ....manifest.dtypes import structured
from ... import module_of
from . import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .scalars import Read

TENSOR_MAP = "|V128{opaque:<u8*16@0}"
"""The type string of `CUtensorMap`, as cuda.h declares it."""

_TENSOR_MAP_BYTES = 128
_TENSOR_MAPS = frozenset([("cuda.core._tensor_map", "TensorMapDescriptor"), ("cuda.bindings.driver", "CUtensorMap")])

_POINTER_VALUE: Any = ctypes.c_void_p.value  # type: ignore[misc]  # a subclass may have another `value`
_TYPES = {"bool": "|b1", "boolean": "|b1", "int8": "|i1", "uint8": "|u1"} | {
    f"{kind}{bits}": f"<{kind[0]}{bits // 8}"
    for kind, widths in (("int", (16, 32, 64)), ("uint", (16, 32, 64)), ("float", (16, 32, 64)), ("complex", (64, 128)))
    for bits in widths
}


def reader(value: object, member: Callable[[object], Read | None]) -> Read | None:
    """Return the function that reads arguments of the type of `value`; None if no parameter accepts the type.

    The function returns an int for an address, unit and count for a datetime, dtype and bytes for a record, and a list
    for a tuple. It returns constants (None and strings) unchanged. `member` returns the readers of a tuple's items.
    """
    if isinstance(value, tuple):
        members = [member(item) for item in value]
        return None if None in members else _tuple_reader([each for each in members if each is not None])
    if is_pointer(value):
        return lambda pointer, _pending, _stream: _POINTER_VALUE.__get__(pointer) or 0
    if is_datetime(value):
        return lambda date, _pending, _stream: (date.dtype.str, int(date.view("i8")))
    if is_record(value):
        return _read_tensor_map if _is_tensor_map(type(value)) else _read_record
    if arrays.is_descriptor(type(value)):
        from . import descriptors  # noqa: PLC0415 (few kernels take any)

        return descriptors.read
    if is_type(value):
        return lambda kind, _pending, _stream: type_of(kind)
    if value is None or type(value) is str:
        return lambda constant, _pending, _stream: constant
    return scalars.reader(value) if scalars.kind_of(value) is not None else None


def is_pointer(value: object) -> bool:
    """Return True if a value is a `ctypes.c_void_p`."""
    return isinstance(value, ctypes.c_void_p)


def is_datetime(value: object) -> bool:
    """Return True if a value is a datetime or timedelta of NumPy's."""
    return getattr(scalars.numpy_dtype(value), "kind", "") in ("M", "m")


def is_record(value: object) -> bool:
    """Return True if a value is a structured element in the host's memory: a record of NumPy's, or a tensor map."""
    dtype = scalars.numpy_dtype(value)
    return (dtype is not None and dtype.kind == "V" and dtype.name not in NAMED) or _is_tensor_map(type(value))


def _is_tensor_map(kind: type) -> bool:
    """Return True for the classes of tensor maps in cuda.core and cuda.bindings.driver."""
    return (module_of(kind), kind.__name__) in _TENSOR_MAPS


def _read_record(value: Any, _pending: list[object], _stream: int) -> tuple[str, bytes]:
    """Return the type string of a NumPy record, with its fields, and the record's bytes."""
    return structured(value.dtype.str, _named(value.dtype)), value.tobytes()


def _named(dtype: Any) -> list[Any]:
    """Return the `descr` of a structured dtype, in which the types of ml_dtypes have their names."""
    fields = []
    for name, kind, *shape in dtype.descr:
        label = name[1] if isinstance(name, tuple) else name
        if label:
            base = dtype.fields[label][0].base
            kind = _named(base) if base.names else base.name if base.name in NAMED else kind  # noqa: PLW2901
        fields.append((name, kind, *shape))
    return fields


def _read_tensor_map(value: Any, _pending: list[object], _stream: int) -> tuple[str, bytes]:
    """Read a tensor map. Only the parameter holder of cuda.core's own launch gives the bytes of cuda.core's map."""
    if hasattr(value, "getPtr"):
        address = int(value.getPtr())
    else:
        holder = sys.modules["cuda.core._kernel_arg_handler"].ParamHolder([value])
        address = ctypes.c_void_p.from_address(holder.ptr).value or 0
    return TENSOR_MAP, (ctypes.c_char * _TENSOR_MAP_BYTES).from_address(address).raw


def is_type(value: object) -> bool:
    """Return True if a value is a class, or an object that represents a type of numbers."""
    return isinstance(value, type) or type_of(value) is not None


def type_of(value: object) -> str | None:
    """Return the type string that a class or dtype of NumPy, PyTorch or Numba represents, else None."""
    numpy = sys.modules.get("numpy")  # a type of NumPy's exists only if NumPy is imported
    if numpy is not None and (isinstance(value, numpy.dtype) or (isinstance(value, type) and _is_numpys(value, numpy))):
        return str(numpy.dtype(value).str)
    kind = type(value)
    package, _, rest = module_of(kind).partition(".")
    if (package, kind.__name__) == ("torch", "dtype"):
        return _TYPES.get(str(value).removeprefix("torch."))
    if package in ("numba", "numba_cuda", "numba_cuda_mlir") and "types" in rest.split("."):
        return _TYPES.get(str(value))
    return None


def _is_numpys(value: type, numpy: Any) -> bool:
    return issubclass(value, numpy.generic) and value not in (numpy.generic, numpy.number)


def _tuple_reader(members: list[Read]) -> Read:
    def read(value: Any, pending: list[object], stream: int) -> object:
        return [member(item, pending, stream) for member, item in zip(members, value, strict=True)]

    return read
