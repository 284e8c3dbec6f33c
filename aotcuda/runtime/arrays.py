"""Reading device arrays of every library, with none of them imported.

A reader takes an array and gives its view: `(typestr, address, shape, strides, readonly)`, with NumPy's type string and
strides in bytes, or None for an array that is C-contiguous. It gives None for an array that is not on a GPU. What must
happen before or be kept alive until the launch goes into `pending`: the handle of a stream that the data is on, or a
DLPack capsule.

CuPy arrays, PyTorch tensors and Numba's arrays are read directly: their interfaces would cost more than the launch, and
bfloat16 tensors and those that require gradients have none. Everything else is read through
`__cuda_array_interface__`, or else DLPack. Either of these says which stream the data is on. For CuPy and PyTorch that
is, by their own conventions, the library's current stream; for Numba the one that the array is bound to, if any, as its
interface would say.
"""

from __future__ import annotations

import sys

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
_NUMBA = ("numba.cuda.cudadrv.devicearray", "numba_cuda_mlir.numba_cuda.cudadrv.devicearray")
"""Where the class `DeviceNDArray` is whose attributes are known; its subclasses' memory may be another."""

_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}

_torch_types: dict[object, str] = {}  # torch.dtype -> type string, filled as they are met
_families: dict[type, str] = {}  # likewise
_MOST_FAMILIES = 256  # programs that make classes as they go must not fill the memory


def family(array: object) -> str | None:
    """How arrays of this one's type are read; None for no array.

    `"cupy"`, `"torch"` and `"numba"` are read directly, `"interface"` and `"dlpack"` through these.
    """
    kind = type(array)
    found = _families.get(kind)
    if found is None:
        found = _family_of(kind)
        if found is None:  # one object of a type may have what others have not
            return "interface" if hasattr(array, "__cuda_array_interface__") else None
        if len(_families) < _MOST_FAMILIES:
            _families[kind] = found
    return found


def _family_of(kind: type) -> str | None:
    if kind.__name__ == "DeviceNDArray" and kind.__module__ in _NUMBA and hasattr(kind, "device_ctypes_pointer"):
        return "numba"
    for base in kind.__mro__:
        if base.__name__ == "Tensor" and base.__module__ == "torch":
            return "torch"
        if base.__name__ == "ndarray" and base.__module__ == "cupy" and hasattr(kind, "_c_contiguous"):
            return "cupy"
    if hasattr(kind, "__cuda_array_interface__"):
        return "interface"
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return "dlpack"
    return None


def reader(array: object) -> Reader | None:
    """The reader for arrays of this one's type, or None if it is no array."""
    found = family(array)
    if found == "dlpack":
        from aotcuda.runtime.dlpack import read  # noqa: PLC0415 (most programs never meet DLPack)

        return read
    return _READERS[found] if found else None


def identity(array: Any) -> tuple[object, int] | None:
    """An array's element type, as its library names it, and its number of dimensions; None where asking costs more.

    `element` gives the type string of the first.
    """
    found = family(array)
    if found in ("cupy", "torch", "numba"):
        return array.dtype, array.ndim
    if found == "interface":
        try:
            interface = array.__cuda_array_interface__
        except AttributeError:
            return None
        return _typestr(array, interface), len(interface["shape"])
    return None


def element(name: Any) -> str:
    """The type string, byte order as NumPy writes it, of what `identity` gives."""
    if isinstance(name, str):
        return canonical(name)
    found = getattr(name, "str", None)  # NumPy's, which CuPy uses
    if found is None:
        return _torch_typestr(name)
    typestr: str = found
    if "V" not in typestr:
        return typestr
    from aotcuda.dtypes import structured  # noqa: PLC0415 (most arrays hold plain numbers)

    return structured(typestr, name.descr)


def cupy_stream() -> Callable[[], Any] | None:
    """CuPy's function that gives its current stream; None if CuPy was told to leave streams to its user.

    `CUPY_CUDA_ARRAY_INTERFACE_EXPORT_VERSION=2` tells it so: its arrays then name no stream in their interface.
    """
    cupy: Any = sys.modules["cupy"]
    if getattr(cupy._util, "CUDA_ARRAY_INTERFACE_EXPORT_VERSION", 3) < 3:  # noqa: SLF001 (there is no public name)
        return None
    current: Callable[[], Any] = cupy.cuda.get_current_stream
    return current


def torch_stream() -> Callable[[int], int] | None:
    """PyTorch's function from a GPU's ordinal to the handle of its current stream, None if it has none."""
    found: Callable[[int], int] | None = getattr(
        getattr(sys.modules.get("torch"), "_C", None), "_cuda_getCurrentRawStream", None
    )
    return found


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
    if ready is not None:
        _wait(ready, pending, stream)
    if interface.get("mask") is not None:
        return None
    return _typestr(array, interface), address, interface["shape"], interface.get("strides"), readonly


def _read_cupy(array: Any, pending: list[object], stream: int) -> View | None:
    current = cupy_stream()
    if current is not None:
        _wait(current().ptr, pending, stream)
    strides = None if array._c_contiguous else array.strides  # noqa: SLF001 (flags makes an object for each question)
    return array.dtype.str, array.data.ptr, array.shape, strides, False


def _read_torch(tensor: Any, pending: list[object], stream: int) -> View | None:
    if not tensor.is_cuda:
        return None
    current = torch_stream()
    if current is not None:
        _wait(current(tensor.get_device()), pending, stream)
    name = _torch_typestr(tensor.dtype)
    if tensor.is_conj() or tensor.is_neg():  # views whose memory holds other numbers than they show
        name += " (a lazy conjugate; call resolve_conj() or resolve_neg())"
    strides = None
    if not tensor.is_contiguous():
        itemsize = tensor.element_size()
        strides = tuple([step * itemsize for step in tensor.stride()])
    return name, tensor.data_ptr(), tensor.shape, strides, False


def _read_numba(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        ready = array.stream
        if ready != 0:  # as its interface has it: 0 is no stream, and there is nothing to wait for
            _wait(int(ready), pending, stream)
        # Its own strides: the interface gives none where broadcast dimensions stand beside contiguous ones.
        return element(array.dtype), array.device_ctypes_pointer.value or 0, array.shape, array.strides, False
    except (AttributeError, TypeError):  # another version's, made otherwise
        return _read_interface(array, pending, stream)


_READERS: dict[str, Reader] = {
    "cupy": _read_cupy,
    "torch": _read_torch,
    "numba": _read_numba,
    "interface": _read_interface,
}


def _torch_typestr(dtype: object) -> str:
    name = _torch_types.get(dtype)
    if name is None:
        name = _torch_types[dtype] = _TORCH.get(str(dtype), str(dtype))
    return name


def _typestr(array: Any, interface: dict[str, Any]) -> str:
    """The type string of an interface; of a structured type with its fields, as `aotcuda.dtypes` writes them."""
    typestr: str = interface["typestr"]
    if typestr[1:2] != "V":
        return typestr
    from aotcuda.dtypes import structured  # noqa: PLC0415 (few arrays are structured)

    descr = interface.get("descr")
    if descr is None:  # Numba's arrays have it in their dtype alone
        descr = getattr(getattr(array, "dtype", None), "descr", None)
    return structured(typestr, descr)


def _wait(ready: int, pending: list[object], stream: int) -> None:
    """Note that a launch on `stream` has to wait for stream `ready`, unless they are one; 0 and 1 mean the same."""
    if ready != stream and (ready or 1) != (stream or 1):
        pending.append(ready)


def canonical(typestr: str) -> str:
    """A type string with the byte order as NumPy writes it: `|` for single bytes, `<` for little-endian."""
    if typestr[:1] not in ("<", "|", "="):
        return typestr
    bytewise = typestr[1:2] in ("S", "V") or (typestr[2:] == "1" and typestr[1:2] != "U")
    return ("|" if bytewise else "<") + typestr[1:]


def item_bytes(typestr: str) -> int:
    """Bytes of one element of a type string."""
    if typestr == "bfloat16":
        return 2
    digits = typestr[2:].partition("{")[0].partition("[")[0]  # "|V16{...}", "<M8[ns]"
    return int(digits) * (4 if typestr[1:2] == "U" else 1)  # of strings it counts the characters


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
    if typestr[1:2] in ("S", "U"):
        return f"{'UnicodeCharSeq' if typestr[1] == 'U' else 'CharSeq'}({typestr[2:]})"
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
