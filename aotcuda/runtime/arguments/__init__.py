"""What the arguments of a launch mean; here, how an argument is read: by a function that its type alone decides.

An array gives its view, a number a plain one, and so on: what the parameters of `aotcuda.runtime.arguments.parameters`
then take, or do not.
"""

from __future__ import annotations

import sys

from aotcuda.runtime.arguments import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.runtime.arguments.scalars import Read


TENSOR_MAP = "|V128{opaque:<u8*16@0}"
"""The type string of `CUtensorMap`, as cuda.h declares it."""

_TENSOR_MAP_BYTES = 128
_TENSOR_MAPS = frozenset([("cuda.core._tensor_map", "TensorMapDescriptor"), ("cuda.bindings.driver", "CUtensorMap")])


def reader(value: object) -> Read | None:
    """The function that reads arguments of the type of `value`; None if no parameter takes such.

    An array gives its view (None on the host), a number a plain one, an address an int, a datetime its unit and count,
    a record its type and its bytes, a tuple a list of these. None and strings, of constants alone, as they are.
    """
    found: Read | None = arrays.reader(value)
    if found is not None:
        return found
    if isinstance(value, tuple):
        members = [reader(item) for item in value]
        return None if None in members else _tuple_reader([member for member in members if member is not None])
    if is_pointer(value):
        held = sys.modules["ctypes"].c_void_p.value  # whatever a subclass makes of it
        return lambda pointer, _pending, _stream: held.__get__(pointer) or 0
    if is_datetime(value):
        return lambda date, _pending, _stream: (date.dtype.str, int(date.view("i8")))
    if is_record(value):
        return _read_tensor_map if _is_tensor_map(type(value)) else _read_record
    if is_type(value):
        return lambda given, _pending, _stream: scalars.type_of(given)
    if value is None or type(value) is str:
        return lambda constant, _pending, _stream: constant
    return scalars.reader(value) if scalars.kind_of(value) is not None else None


def is_pointer(value: object) -> bool:
    """Whether a value is a `ctypes.c_void_p`."""
    ctypes = sys.modules.get("ctypes")  # who has such a value has imported it
    return ctypes is not None and isinstance(value, ctypes.c_void_p)


def is_datetime(value: object) -> bool:
    """Whether a value is a datetime or timedelta of NumPy's."""
    return getattr(scalars.numpy_dtype(value), "kind", "") in ("M", "m")


def is_record(value: object) -> bool:
    """Whether a value is a structured element in the host's memory: one of NumPy's, or a tensor map."""
    return getattr(scalars.numpy_dtype(value), "kind", "") == "V" or _is_tensor_map(type(value))


def _is_tensor_map(kind: type) -> bool:
    """Whether this is the class of cuda.core's tensor maps, or of those of the driver's bindings."""
    return (kind.__module__, kind.__name__) in _TENSOR_MAPS


def _read_record(value: Any, _pending: list[object], _stream: int) -> tuple[str, bytes]:
    """The type string of a record of NumPy's, with its fields, and its bytes."""
    from aotcuda.dtypes import structured  # noqa: PLC0415 (few arguments are structured)

    return structured(value.dtype.str, value.dtype.descr), value.tobytes()


def _read_tensor_map(value: Any, _pending: list[object], _stream: int) -> tuple[str, bytes]:
    """The same of a tensor map. Of cuda.core's there is no public way to the bytes but what its own launch takes."""
    from aotcuda.runtime import c_types as ctypes  # noqa: PLC0415 (likewise)

    if hasattr(value, "getPtr"):
        address = int(value.getPtr())
    else:
        held = sys.modules["cuda.core._kernel_arg_handler"].ParamHolder([value])
        address = ctypes.c_void_p.from_address(held.ptr).value or 0
    return TENSOR_MAP, (ctypes.c_char * _TENSOR_MAP_BYTES).from_address(address).raw


def is_type(value: object) -> bool:
    """Whether a value is a class, or an object that stands for a type of numbers."""
    return isinstance(value, type) or scalars.type_of(value) is not None


def _tuple_reader(members: list[Read]) -> Read:
    def read(value: Any, pending: list[object], stream: int) -> object:
        return [member(item, pending, stream) for member, item in zip(members, value, strict=True)]

    return read
