"""Read Triton's tensor descriptors, and let the driver encode them as tensor maps."""

# A kernel that was compiled with tensor maps takes a `CUtensorMap` (128 bytes) by value, then shape and strides. A
# kernel for a GPU without tensor maps takes address, shape, strides and one or two flags, then shape and strides again.
# `cuTensorMapEncodeTiled` gets the same arguments as in Triton's driver (releases 3.6 to 3.9,
# triton/backends/nvidia/driver.c): extents are reversed, strides are in bytes, and the last dimension has no stride.

from __future__ import annotations

import ctypes

from ... import driver as drivers
from . import array_view, arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....manifest.schema import TensorMap

BYTES = 128
"""The size of a tensor map."""

_ALIGNMENT = 64
_TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_LAST_DRIVER, _SMALL, _BIT = (13, 1), 128 << 10, 1 << 21
"""Up to this driver, tensor maps of smaller tensors must not have this bit in their second word (as in Triton)."""


class Descriptor:
    """The properties of a tensor descriptor; block shape and strides are in elements."""

    __slots__ = ("address", "block", "dtype", "pads_with_nan", "rounds_to_tf32", "shape", "strides")

    def __init__(self, value: Any, dtype: str, address: int) -> None:
        self.dtype, self.address = dtype, address
        self.block, self.shape, self.strides = tuple(value.block_shape), tuple(value.shape), tuple(value.strides)
        self.pads_with_nan: bool = value.padding == "nan"
        self.rounds_to_tf32 = bool(getattr(value, "round_f32_to_tf32", False))  # newer releases of Triton have it
        for each in (*self.block, *self.shape, *self.strides):
            if type(each) is not int:
                array_view.number(each, "shape or strides")


def read(value: Any, pending: list[object], stream: int) -> Descriptor | None:
    """Read a tensor descriptor; return None if its array is not on a GPU."""
    base = value.base
    reader = arrays.reader(base)
    view = reader(base, pending, stream) if reader is not None else None
    if view is None:
        return None
    return Descriptor(value, view[0], view[1])


def encode(tensor_map: TensorMap, descriptor: Descriptor) -> bytes | None:
    """Return the `CUtensorMap` of a tensor descriptor; None if the driver refuses it."""
    driver = drivers.get()
    size, rank, shape = tensor_map["bytes"], len(descriptor.shape), descriptor.shape
    if tensor_map["padded"]:
        shape = (*shape[:-1], shape[-1] * 2)
    extents = (ctypes.c_uint64 * rank)(*reversed(shape))
    strides = (ctypes.c_uint64 * rank)(*[size * step for step in reversed(descriptor.strides[:-1])])
    box, steps = (ctypes.c_uint32 * rank)(*reversed(tensor_map["box"])), (ctypes.c_uint32 * rank)(*[1] * rank)
    storage = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    begin = -ctypes.addressof(storage) % _ALIGNMENT
    code = driver.call["cuTensorMapEncodeTiled"](
        ctypes.addressof(storage) + begin,
        _TF32 if descriptor.rounds_to_tf32 else tensor_map["element"],
        rank,
        descriptor.address,
        *(extents, strides, box, steps),
        *(0, tensor_map["swizzle"], _PROMOTION, int(descriptor.pads_with_nan)),
    )
    if code:
        return None
    data = storage.raw[begin : begin + BYTES]
    last = sum((extent - 1) * step for extent, step in zip(extents, (size, *strides), strict=False))
    if driver.version <= _LAST_DRIVER and last + 1 < _SMALL:
        word = int.from_bytes(data[8:16], "little") & ~_BIT
        data = data[:8] + word.to_bytes(8, "little") + data[16:]
    return data
