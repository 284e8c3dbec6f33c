"""Reading device arrays of every library, with none of them imported.

A reader takes an array and gives its view: `(typestr, address, shape, strides, readonly)`, with NumPy's type string and
strides in bytes, or None for an array that is C-contiguous. It gives None for an array that is not on a GPU. What must
happen before or be kept alive until the launch goes into `pending`: the handle of a stream that the data is on, or a
DLPack capsule.

`view` says what any array may say of itself, whatever its library; the fast paths hold themselves to it, or decline:

1. The address is an int of 64 bits. Extents are ints and not negative, at most 64 of them; all but those that are zero
   multiplied with each other and the size of an element stay below 2**63, as in NumPy. So a stride that is computed,
   and the number of elements, always fit.
2. Strides, if there are any, are as many as extents, and ints of 64 bits.
3. To tell whether an array is contiguous, the stride of a dimension of one element is not looked at, and neither are
   those of an array without elements. One that is has the strides that follow from its shape, whatever it says.

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
_families: dict[type, str] = {}  # likewise; "" for types that are no arrays
_MOST_FAMILIES = 256  # programs that make classes as they go must not fill the memory
_MOST_DIMENSIONS = 64  # NumPy's and PyTorch's
_BEYOND = 1 << 63


class UnreadableError(Exception):
    """An argument cannot be read: what it says of itself is impossible, or asking it raised.

    The text goes on from the argument's name: "has a mask". `aotcuda.runtime.arguments.overloads` makes an
    ArgumentError of it, which names the kernel and the argument.
    """

    @classmethod
    def of(cls, error: Exception) -> UnreadableError:
        """That asking an argument raised `error`."""
        text = str(error).partition("\n")[0]
        return cls(f"cannot be read: {type(error).__name__}{f': {text}' if text else ''}")


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
    return found or None


def is_open(kind: type) -> bool:
    """Whether an object of this type decides for itself if it is an array: by an attribute that others may lack."""
    return kind not in _families and _family_of(kind) is None


def _family_of(kind: type) -> str | None:
    """The family of a type's objects, "" if they are no arrays, None if each decides for itself."""
    numpy: Any = sys.modules.get("numpy")
    if issubclass(kind, (int, float, complex, tuple)) or (numpy is not None and issubclass(kind, numpy.generic)):
        return ""
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
    return _READERS[found] if found else None


def inherits(array: object, base: str, *names: str) -> bool:
    """Whether an array's class has these of its library's class `base`: a subclass may have made others of them."""
    bases = type(array).__mro__
    own = next((kind for kind in bases if kind.__name__ == base and kind.__module__ in ("cupy", "torch")), None)
    return own is not None and all(_attribute(bases, name) is _attribute(own.__mro__, name) for name in names)


def _attribute(bases: tuple[type, ...], name: str) -> object:
    return next((kind.__dict__[name] for kind in bases if name in kind.__dict__), None)


def form(identified: tuple[object, int] | None) -> tuple[str, int] | None:
    """The type string and number of dimensions of what `identity` gives; None for what has no name."""
    try:
        return None if identified is None else (element(identified[0]), identified[1])
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (as there)
        return None


def identity(array: Any) -> tuple[object, int] | None:
    """An array's element type, as its library names it, and its number of dimensions; None where asking costs more.

    `element` gives the type string of the first. What it says is a guess: the array may be another one when it is read.
    """
    try:
        found = family(array)
        if found in ("cupy", "torch", "numba"):
            return array.dtype, array.ndim
        if found == "interface":
            interface = array.__cuda_array_interface__
            return _typestr(array, interface), len(interface["shape"])
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (an array that cannot be read; who reads it will say so)
        return None
    return None


def element(name: Any) -> str:
    """The type string, byte order as NumPy writes it, of what `identity` gives; or of DLPack's code and bits."""
    if isinstance(name, str):
        return canonical(name)
    if isinstance(name, tuple):
        text: str = _dlpack().typestr(*name)
        return text
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
        return hasattr(type(array), "__setitem__") and hasattr(array, "__array_interface__")
    return found(array, [], 0) is None


def view(typestr: str, address: Any, shape: Any, strides: Any, *, readonly: bool) -> View:
    """The view of an array of which its library says this; the rules are at the top of this file.

    Raises:
        UnreadableError: No array can be so.
    """
    typestr, itemsize = _KNOWN.get(typestr) or (canonical(typestr), item_bytes(typestr))
    size = itemsize
    if type(shape) is not tuple:
        shape = _extents(shape)
    for extent in shape:
        if type(extent) is not int or extent < 0:
            return view(typestr, address, _extents(shape), strides, readonly=readonly)
        size *= extent or 1
    if size >= _BEYOND or len(shape) > _MOST_DIMENSIONS:
        message = f"has shape {shown(shape)}, which no memory can hold"
        raise UnreadableError(message)
    if strides is not None:
        strides = _normal(shape, _numbers(strides, "strides"), itemsize)
    if type(address) is not int:
        address = _number(address, "address")
    if not 0 <= address < 1 << 64:
        message = f"lies at {shown(address)}, which is no address"
        raise UnreadableError(message)
    return typestr, address, shape, strides, readonly


def _normal(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Strides that belong to a shape; None for those of a C-contiguous array."""
    if len(strides) != len(shape):
        message = f"has shape {shown(shape)} and strides {shown(strides)}, which are not as many"
        raise UnreadableError(message)
    if is_contiguous(shape, strides, itemsize, "C"):
        return None
    if max(strides) >= _BEYOND or min(strides) < -_BEYOND:
        message = f"has strides {shown(strides)}, which no memory can hold"
        raise UnreadableError(message)
    return strides


def _extents(shape: object) -> tuple[int, ...]:
    found = _numbers(shape, "shape")
    if any(extent < 0 for extent in found):
        message = f"has shape {shown(found)}, and no extent can be negative"
        raise UnreadableError(message)
    return found


def _numbers(items: object, what: str) -> tuple[int, ...]:
    if not isinstance(items, tuple | list):
        message = f"has a {what} that is {describe(items)}, and no tuple"
        raise UnreadableError(message)
    return tuple([item if type(item) is int else _number(item, what) for item in items])


def _number(item: object, what: str) -> int:
    index = getattr(type(item), "__index__", None)
    if index is None:
        message = f"has {describe(item)} in its {what}, where an int belongs"
        raise UnreadableError(message)
    return int.__index__(index(item))


def describe(value: object) -> str:
    """A value with its type, for a message: at most a line, whatever it is."""
    kind = type(value)
    if value is None:
        return "None"
    if kind is str:
        return f"str {value[:20]!r}"  # type: ignore[index]
    return f"{kind.__name__} {shown(value)}" if kind in (bool, int, float) else kind.__name__


def shown(value: object) -> str:
    """The `repr` of a number or of several; as a power of two what has too many digits to be read, or to be written."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, int) and int.bit_length(value) > 80:
        return f"{'-' if value < 0 else ''}2**{int.bit_length(value) - 1} and more"
    return repr(value)


def _read_interface(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        interface = array.__cuda_array_interface__
    except AttributeError:  # some libraries raise it for arrays of theirs that are on the host
        return None
    if not isinstance(interface, dict):
        message = f"has a __cuda_array_interface__ that is {describe(interface)}, and no dict"
        raise UnreadableError(message)
    data, ready = interface.get("data"), interface.get("stream")
    if not isinstance(data, tuple | list) or len(data) != 2:
        message = f"has a __cuda_array_interface__ whose data is {describe(data)}, and no pair of address and read-only"
        raise UnreadableError(message)
    if interface.get("mask") is not None:
        message = "has a mask, which no kernel sees; pass the array without it"
        raise UnreadableError(message)
    if ready is not None:
        handle = _number(ready, "stream")
        if not 0 <= handle < 1 << 64:
            message = f"is on stream {shown(handle)}, which is no handle"
            raise UnreadableError(message)
        _wait(handle, pending, stream)
    address, readonly = data
    typestr, shape, strides = _typestr(array, interface), interface.get("shape"), interface.get("strides")
    return view(typestr, address, shape, strides, readonly=bool(readonly))


def _read_cupy(array: Any, pending: list[object], stream: int) -> View | None:
    name = array.dtype
    current = cupy_stream()
    if current is not None:
        _wait(current().ptr, pending, stream)
    strides = None if array._c_contiguous else array.strides  # noqa: SLF001 (flags makes an object for each question)
    return view(element(name), array.data.ptr, array.shape, strides, readonly=False)


def _read_torch(tensor: Any, pending: list[object], stream: int) -> View | None:
    name = _torch_typestr(tensor.dtype)
    if not tensor.is_cuda:
        return None
    current = torch_stream()
    if current is not None:
        _wait(current(tensor.get_device()), pending, stream)
    if tensor.is_conj() or tensor.is_neg():  # views whose memory holds other numbers than they show
        name += " (a lazy conjugate; call resolve_conj() or resolve_neg())"
    strides = None
    if not tensor.is_contiguous():
        itemsize = tensor.element_size()
        strides = tuple([step * itemsize for step in tensor.stride()])
    return view(name, tensor.data_ptr(), tensor.shape, strides, readonly=False)


def _read_numba(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        name, ready, data = element(array.dtype), array.stream, array.gpu_data
        if ready != 0:  # as its interface has it: 0 is no stream, and there is nothing to wait for
            _wait(int(ready), pending, stream)
        # Its own strides: the interface gives none where broadcast dimensions stand beside contiguous ones.
        return view(name, int(data.device_pointer), array.shape, array.strides, readonly=False)
    except (AttributeError, TypeError):  # another version's, made otherwise
        return _read_interface(array, pending, stream)


def _dlpack() -> Any:
    from aotcuda.runtime.arguments import dlpack  # noqa: PLC0415 (most programs never meet DLPack)

    return dlpack


def _read_dlpack(array: Any, pending: list[object], stream: int) -> View | None:
    found: View | None = _dlpack().read(array, pending, stream)
    return found


_READERS: dict[str, Reader] = {
    "cupy": _read_cupy,
    "torch": _read_torch,
    "numba": _read_numba,
    "interface": _read_interface,
    "dlpack": _read_dlpack,
}


def _torch_typestr(dtype: object) -> str:
    name = _torch_types.get(dtype)
    if name is None:
        name = _torch_types[dtype] = _TORCH.get(str(dtype), str(dtype))
    return name


def _typestr(array: Any, interface: dict[str, Any]) -> str:
    """The type string of an interface; of a structured type with its fields, as `aotcuda.dtypes` writes them."""
    typestr: object = interface.get("typestr")
    if not isinstance(typestr, str):
        message = f"has a __cuda_array_interface__ whose typestr is {describe(typestr)}, and no str"
        raise UnreadableError(message)
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
    if typestr[:1] not in ("<", "|", "=") or typestr[1:2] == "V":
        return typestr
    bytewise = typestr[1:2] in ("S", "V") or (typestr[2:] == "1" and typestr[1:2] != "U")
    return ("|" if bytewise else "<") + typestr[1:]


def item_bytes(typestr: str) -> int:
    """Bytes of one element of a type string; 1 for one that NumPy has no such text for."""
    if typestr == "bfloat16":
        return 2
    digits = typestr[2:].partition("{")[0].partition("[")[0]  # "|V16{...}", "<M8[ns]"
    count = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else 1
    return count * (4 if typestr[1:2] == "U" else 1)  # of strings it counts the characters


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
    step, contiguous = itemsize, True
    pairs = zip(shape, strides, strict=True) if layout == "F" else zip(shape[::-1], strides[::-1], strict=True)
    for extent, have in pairs:
        if extent == 0:
            return True
        if extent != 1 and have != step:
            contiguous = False
        step *= extent
    return contiguous


_KNOWN = {text: (canonical(text), item_bytes(text)) for text in (*_TORCH.values(), "<b1")}  # what `view` sees most


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
        layout = next((order for order in "CF" if is_contiguous(shape, strides, item_bytes(typestr), order)), "A")
    return array_name(typestr, len(shape), layout)
