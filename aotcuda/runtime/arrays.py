"""Reading device arrays of every library, with none of them imported.

A reader takes an array and gives its view: `(typestr, address, shape, strides, readonly)`, with NumPy's type string and
strides in bytes, or None for an array that is C-contiguous. It gives None for an array that is not on a GPU. What must
happen before or be kept alive until the launch goes into `pending`: the handle of a stream that the data is on, or a
DLPack capsule.

PyTorch tensors are read directly (bfloat16 and tensors that require gradients have no `__cuda_array_interface__`), then
`__cuda_array_interface__` is tried, then DLPack.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    View = tuple[str, int, tuple[int, ...], tuple[int, ...] | None, bool]
    Reader = Callable[[Any, list[object], int], View | None]

_TORCH = {
    "torch.bool": "|b1",
    "torch.uint8": "|u1",
    "torch.int8": "|i1",
    "torch.uint16": "<u2",
    "torch.int16": "<i2",
    "torch.uint32": "<u4",
    "torch.int32": "<i4",
    "torch.uint64": "<u8",
    "torch.int64": "<i8",
    "torch.float16": "<f2",
    "torch.bfloat16": "bfloat16",
    "torch.float32": "<f4",
    "torch.float64": "<f8",
    "torch.complex64": "<c8",
    "torch.complex128": "<c16",
}
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}

_torch_types: dict[object, str] = {}  # torch.dtype -> type string, filled as they are met


def reader(array: object) -> Reader | None:
    """The reader for arrays of this one's type, or None if it is no array."""
    kind = type(array)
    if any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in kind.__mro__):
        return _read_torch
    if hasattr(kind, "__cuda_array_interface__") or hasattr(array, "__cuda_array_interface__"):
        return _read_interface
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        from aotcuda.runtime.dlpack import read  # noqa: PLC0415 (most programs never meet DLPack)

        return read
    return None


def is_host(array: object) -> bool:
    """Whether this is an array in the host's memory: it can be read there, and not on a GPU."""
    found = reader(array)
    if found is None:  # NumPy's scalars have that interface too, but nothing can be assigned to their elements
        return hasattr(array, "__array_interface__") and hasattr(type(array), "__setitem__")
    return found(array, [], 0) is None


def _read_interface(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        interface = array.__cuda_array_interface__
    except AttributeError:  # some libraries raise it for arrays of theirs that are on the host
        return None
    address, readonly = interface["data"]
    ready = interface.get("stream")
    if ready is not None and ready != stream and (ready, stream) != (1, 0):
        pending.append(ready)
    if interface.get("mask") is not None:
        return None
    return interface["typestr"], address, interface["shape"], interface.get("strides"), readonly


def _read_torch(tensor: Any, _pending: list[object], _stream: int) -> View | None:
    if not tensor.is_cuda:
        return None
    dtype = tensor.dtype
    name = _torch_types.get(dtype)
    if name is None:
        name = _torch_types[dtype] = _TORCH.get(str(dtype), str(dtype))
    if tensor.is_conj() or tensor.is_neg():  # views whose memory holds other numbers than they show
        name += " (a lazy conjugate; call resolve_conj() or resolve_neg())"
    strides = None
    if not tensor.is_contiguous():
        itemsize = tensor.element_size()
        strides = tuple([step * itemsize for step in tensor.stride()])
    return name, tensor.data_ptr(), tensor.shape, strides, False


def canonical(typestr: str) -> str:
    """A type string with the byte order as NumPy writes it: `|` for single bytes, `<` for little-endian."""
    if typestr[:1] not in ("<", "|", "="):
        return typestr
    return ("|" if typestr[2:] == "1" else "<") + typestr[1:]


def item_bytes(typestr: str) -> int:
    """Bytes of one element of a type string."""
    return 2 if typestr == "bfloat16" else int(typestr[2:].partition("[")[0])


def contiguous_strides(shape: tuple[int, ...], itemsize: int, layout: str) -> tuple[int, ...]:
    """The strides, in bytes, of a contiguous array in C or F order."""
    strides = []
    step = itemsize
    for extent in reversed(shape) if layout == "C" else shape:
        strides.append(step)
        step *= extent
    return tuple(reversed(strides)) if layout == "C" else tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, layout: str) -> bool:
    """Whether strides are contiguous in an order; the stride of a dimension of one element does not matter."""
    if 0 in shape:
        return True
    wanted = contiguous_strides(shape, itemsize, layout)
    return all(extent == 1 or have == want for extent, have, want in zip(shape, strides, wanted, strict=True))


def type_name(typestr: str) -> str:
    """The type of an element as signatures write it: `float32`."""
    if canonical(typestr) == "|b1":
        return "bool"
    if typestr[:1] in ("<", "|", "=") and typestr[1:2] in _NAMES and typestr[2:].isdigit():
        return f"{_NAMES[typestr[1]]}{8 * int(typestr[2:])}"
    return typestr


def array_name(typestr: str, ndim: int, layout: str) -> str:
    """An array's type as signatures write it: `float32[:,::1]`."""
    parts = [":"] * ndim
    if parts and layout != "A":
        parts[-1 if layout == "C" else 0] = "::1"
    return f"{type_name(typestr)}[{','.join(parts)}]"


def view_name(view: View) -> str:
    """What `array_name` gives for an array that was read."""
    typestr, _, shape, strides, _ = view
    layout = "C"
    if strides is not None:
        itemsize = item_bytes(typestr) if typestr[2:].isdigit() or typestr == "bfloat16" else 0
        layout = next((order for order in "CF" if is_contiguous(shape, strides, itemsize, order)), "A")
    return array_name(typestr, len(shape), layout)
