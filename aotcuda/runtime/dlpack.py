"""Reading arrays through DLPack: what its capsule holds, taken apart with ctypes.

The capsule is never marked as used. It goes into `pending` and lives until the launch is made; its own destructor then
gives the array back, as DLPack asks of a capsule that nobody consumed.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.runtime.arrays import View

_CUDA, _CUDA_MANAGED = 2, 13
_READ_ONLY = 1
_CODES = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BFLOAT = 4


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
    """`DLManagedTensorVersioned`, which begins `dltensor_versioned` capsules; `dltensor` ones begin with the array."""

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
    """The view of an array, as `aotcuda.runtime.arrays` describes; its owner orders its data before `stream`."""
    kind, _ = array.__dlpack_device__()
    if int(kind) not in (_CUDA, _CUDA_MANAGED):
        return None
    capsule = _export(array, stream or 1)
    pending.append(capsule)
    readonly = False
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_address(capsule, b"dltensor_versioned"))
        readonly = bool(managed.flags & _READ_ONLY)
        tensor = managed.array
    else:
        tensor = _Array.from_address(_address(capsule, b"dltensor"))
    typestr, itemsize = _typestr(tensor.code, tensor.bits, tensor.lanes)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple([step * itemsize for step in tensor.strides[: tensor.ndim]]) if tensor.strides else None
    return typestr, tensor.data + tensor.byte_offset, shape, strides, readonly


def _export(array: Any, stream: int) -> object:
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a library from before DLPack 1.0, which knows no max_version
        return array.__dlpack__(stream=stream)


def _typestr(code: int, bits: int, lanes: int) -> tuple[str, int]:
    size = bits // 8
    if code == _BFLOAT and bits == 16 and lanes == 1:
        return "bfloat16", size
    if code not in _CODES or lanes != 1 or bits % 8:
        return f"DLPack type {code} of {bits} bits and {lanes} lanes", size
    return f"{'|' if size == 1 else '<'}{_CODES[code]}{size}", size
