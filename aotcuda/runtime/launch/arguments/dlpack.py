"""Read arrays through DLPack; ctypes reads the structure in the capsule.

The capsule is never marked as used. It stays in `pending` until the launch was made. Then its destructor releases the
array, as DLPack demands for a capsule that was not consumed.
"""

from __future__ import annotations

import ctypes

from ....errors import UnreadableError, describe
from .array_view import MOST_DIMENSIONS, view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .array_view import View

_CUDA, _CUDA_MANAGED = 2, 13
_READ_ONLY = 1
_CODES = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_NAMED = {
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
"""`DLDataTypeCode` and bits (dlpack.h 1.1) of types that NumPy has no type string for."""


class _Array(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`, the content of `dltensor_versioned` capsules; `dltensor` capsules hold the array."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("array", _Array),
    )


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.py_object, ctypes.c_char_p)
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.argtypes = (ctypes.py_object, ctypes.c_char_p)
_address.restype = ctypes.c_void_p


def read(array: Any, pending: list[object], stream: int) -> View | None:
    """Return the view of an array, as `aotcuda.runtime.launch.arguments.arrays` describes.

    The array's library makes `stream` wait for the array's data.
    """
    device = array.__dlpack_device__()
    if not isinstance(device, tuple) or len(device) != 2:
        message = f"gives {describe(device)} from __dlpack_device__, where a type and a number belong"
        raise UnreadableError(message)
    if int(device[0]) not in (_CUDA, _CUDA_MANAGED):
        return None
    capsule = _export(array, stream or 1)
    pending.append(capsule)
    tensor, readonly = _open(capsule)
    shape = _numbers(tensor.shape, tensor.ndim)
    if shape is None:
        message = f"gives a DLPack capsule of {tensor.ndim} dimensions with no shape"
        raise UnreadableError(message)
    strides = _numbers(tensor.strides, tensor.ndim)
    if strides is not None:
        strides = tuple([step * (tensor.bits // 8) for step in strides])
    name = typestr(tensor.code, tensor.bits, tensor.lanes)
    return view(name, tensor.data and tensor.data + tensor.byte_offset, shape, strides, readonly=readonly)


def _export(array: Any, stream: int) -> object:
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a library without DLPack 1.0 does not know `max_version`
        return array.__dlpack__(stream=stream)


def _open(capsule: object) -> tuple[_Array, bool]:
    """Return the array of a capsule, and True if it is read-only."""
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_address(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            message = f"gives a DLPack capsule of version {managed.major}, and aotcuda reads version 1"
            raise UnreadableError(message)
        return managed.array, bool(managed.flags & _READ_ONLY)
    if _is_capsule(capsule, b"dltensor"):
        return _Array.from_address(_address(capsule, b"dltensor")), False
    message = f"gives {describe(capsule)} from __dlpack__, where an unused DLPack capsule belongs"
    raise UnreadableError(message)


def _numbers(pointer: Any, count: int) -> tuple[int, ...] | None:
    """Return the numbers behind a pointer; None if it is NULL."""
    if not 0 <= count <= MOST_DIMENSIONS:  # a capsule with a larger number is damaged
        message = f"gives a DLPack capsule of {count} dimensions"
        raise UnreadableError(message)
    if count == 0:
        return ()
    return tuple(pointer[:count]) if pointer else None


def typestr(code: int, bits: int, lanes: int = 1) -> str:
    """Return the type string of a DLPack type; a description if NumPy has no such type."""
    if lanes == 1 and (code, bits) in _NAMED:
        return _NAMED[code, bits]
    if code not in _CODES or lanes != 1 or bits % 8:
        return f"DLPack type {code} of {bits} bits and {lanes} lanes"
    return f"{'|' if bits == 8 else '<'}{_CODES[code]}{bits // 8}"
