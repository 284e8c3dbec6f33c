"""Read device arrays of every library, and import none of the libraries."""

# A reader takes an array and returns its view: `(typestr, address, shape, strides, readonly)`, with NumPy's type string
# and strides in bytes. The strides of a C-contiguous array are None. For an array that is not on a GPU, a reader
# returns None. It appends to `pending` the stream that the launch has to wait for, as an
# `aotcuda.runtime.streams.Ready`, or the DLPack capsule that must stay alive until the launch.
#
# `arguments.array_view` has the rules for the description of any array. `_view` calls it unless a
# quick check shows that the array satisfies the rules.
#
# The attributes of CuPy's, PyTorch's and Numba's arrays are read, because their interfaces would cost more than the
# launch, and bfloat16 tensors and tensors that require gradients have no interface. All other arrays are read through
# `__cuda_array_interface__` or DLPack, which name the stream of the data. CuPy's and PyTorch's data are on the
# library's current stream, and Numba's data on the stream that the array is bound to, if any. The streams of CuPy,
# Numba and the interface also have to wait for the launch: version 3 of the interface demands that from work on another
# stream. DLPack and PyTorch do not demand it.
#
# `current_stream` is the stream of launches without a given stream: the library of the first PyTorch or CuPy array
# launches its own kernels there.

from __future__ import annotations

import sys
from operator import attrgetter

from ....common.scalar_types import NAMED, TYPE_STRINGS
from ... import errors, module_of
from . import array_view, foreign_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from .array_view import View

    Call = TypeVar("Call", bound=Callable[..., Any])
    Reader = Callable[[Any, list[object], int], View | None]

TORCH = {f"torch.{name}": typestr for name, typestr in TYPE_STRINGS.items()}
PLAIN = {name: (name, NAMED.get(name) or int(name[2:])) for name in TORCH.values()}
"""Type strings as they are written here, each with the bytes of an element."""

_NUMBA = ("numba.cuda.cudadrv.devicearray", "numba_cuda_mlir.numba_cuda.cudadrv.devicearray")
"""The modules of `DeviceNDArray`. The attributes of a subclass may not describe its memory."""

LEAST_ADDRESS = 1 << 40
"""On most machines the driver allocates no lower addresses."""

_CONTIGUOUS = foreign_names.CUPY_CONTIGUOUS.path
is_c_contiguous = attrgetter(_CONTIGUOUS)
"""A function that returns True if an array of CuPy is C-contiguous."""

_torch_types: dict[object, str] = {}  # from torch.dtype to the type string
_BASE_CLASSES = (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("cupy", "ndarray"))
_elements: dict[object, str] = {}  # from NumPy's dtype to the type string
_MOST_ELEMENTS = 64
_torch_stream: list[Any] = [None, None]  # the module, and its function for the current stream
_families: dict[type, str] = {}  # by type; "" for types that are no arrays
_MOST_FAMILIES = 256  # a program may make any number of classes


def family(array: object) -> str | None:
    """Return the family of an array, which decides how it is read; None if it is no array.

    The attributes of `"cupy"`, `"torch"` and `"numba"` are read; `"interface"` and `"dlpack"` name protocols.
    `"torch wrapper"` is a subclass of PyTorch's tensor that defines `__torch_dispatch__`: its attributes need not
    describe its memory.
    """
    kind = type(array)
    name = _families.get(kind)
    if name is None:
        name = _family_of(kind)
        if name is None:  # objects of this type may differ in their attributes
            return "interface" if hasattr(array, "__cuda_array_interface__") else None
        if len(_families) < _MOST_FAMILIES:
            _families[kind] = name
    return name or None


def is_open(kind: type) -> bool:
    """Return True if an object of this type is an array only by an attribute that other objects may lack."""
    return kind not in _families and _family_of(kind) is None


def _family_of(kind: type) -> str | None:
    """Return the family of a type's objects, "" if they are no arrays, None if their own attributes decide."""
    numpy: Any = sys.modules.get("numpy")
    if issubclass(kind, (int, float, complex, tuple)) or is_descriptor(kind):
        return ""
    if numpy is not None and issubclass(kind, numpy.generic):
        return ""
    if kind.__name__ == "DeviceNDArray" and module_of(kind) in _NUMBA and hasattr(kind, "device_ctypes_pointer"):
        return "numba"
    for base in kind.__mro__:
        if base.__name__ == "Tensor" and module_of(base) == "torch":
            return "torch" if _dispatch(kind) is _dispatch(base) else "torch wrapper"
        if base.__name__ == "ndarray" and module_of(base) == "cupy" and hasattr(kind, _CONTIGUOUS):
            return "cupy"
    if hasattr(kind, "__cuda_array_interface__"):
        return "interface"
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return "dlpack"
    return None


def is_descriptor(kind: type) -> bool:
    """Return True if objects of a type are Triton's tensor descriptors, whose array is their `base`."""
    return kind.__name__ == "TensorDescriptor" and module_of(kind) == "triton.tools.tensor_descriptor"


def _dispatch(kind: type) -> object:
    return getattr(kind, "__torch_dispatch__", None)


def reader(array: object) -> Reader | None:
    """Return the reader for the type of an array; None if the object is no array."""
    name = family(array)
    return _READERS[name] if name else None


def is_base_class(kind: type) -> bool:
    """Return True for an array class of CuPy or PyTorch; their subclasses may have other attributes."""
    return (module_of(kind), kind.__name__) in _BASE_CLASSES


def element(dtype: Any) -> str:
    """Return the type string, in NumPy's byte order, of a library's dtype, a type string, or DLPack's code and bits."""
    known_typestr = _elements.get(dtype)
    if known_typestr is not None:
        return known_typestr
    numpy_typestr = getattr(dtype, "str", None)  # CuPy uses NumPy's dtypes
    if numpy_typestr is None:
        if isinstance(dtype, str):
            plain = PLAIN.get(dtype)
            return plain[0] if plain is not None else array_view.canonical(dtype)
        if isinstance(dtype, tuple):
            from . import dlpack  # noqa: PLC0415 (few programs use DLPack)

            return dlpack.typestr(*dtype)
        return _torch_typestr(dtype)
    typestr: str = numpy_typestr
    if typestr[1:] in ("V1", "V2", "f1") and dtype.name in NAMED:
        typestr = dtype.name
    if "V" not in typestr:
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and len(_elements) < _MOST_ELEMENTS and isinstance(dtype, numpy.dtype):
            _elements[dtype] = typestr
        return typestr
    from ....manifest.dtypes import structured  # noqa: PLC0415 (few arrays are structured)

    return structured(typestr, dtype.descr)


def current_stream(args: Iterable[object], device: int | None) -> int:
    """Return the handle of the stream of a launch that names no stream.

    It is the current stream of PyTorch or CuPy, whichever library has the first array on a GPU among the arguments, the
    items of tuples and the bases of tensor descriptors. Without such an array it is 0, the default stream.

    Args:
        args: The arguments.
        device: The ordinal of the GPU of the launch; None for the array's own GPU.
    """
    leading = find_leading(args)
    if leading is None:
        return 0
    library, array = leading
    if library == "cupy":
        return int(cupy_stream()())
    current = torch_stream()
    assert current is not None  # noqa: S101 (otherwise `find_leading` returns no tensor)
    return int(current(array.get_device() if device is None else device))


def find_leading(args: Iterable[object]) -> tuple[str, Any] | None:
    """Return family and array of the first PyTorch or CuPy array on a GPU, also among the items of tuples."""
    for arg in args:
        name = family(arg)
        if name == "cupy":
            return name, arg
        if name == "torch":
            tensor: Any = arg
            if torch_stream() is not None and tensor.is_cuda:
                return name, arg
        elif isinstance(arg, tuple) or is_descriptor(type(arg)):
            inner = find_leading(arg if isinstance(arg, tuple) else (arg.base,))  # type: ignore[attr-defined]
            if inner is not None:
                return inner
    return None


def cupy_stream() -> Callable[[], int]:
    """Return the function that returns the handle of CuPy's current stream."""
    cuda: Any = sys.modules["cupy"].cuda
    return lambda: cuda.get_current_stream().ptr


def orders_cupy_stream() -> bool:
    """Return True if launches have to wait for the streams of CuPy's arrays.

    With `CUPY_CUDA_ARRAY_INTERFACE_EXPORT_VERSION=2`, arrays name no stream, and the program synchronises.
    """
    version: int | None = foreign_names.CUPY_INTERFACE_VERSION.find()
    return version is None or version >= 3


def torch_stream() -> Callable[[int], int] | None:
    """Return PyTorch's function from a GPU's ordinal to the handle of its current stream; None without CUDA."""
    torch = sys.modules.get("torch")
    module, current = _torch_stream
    if module is not torch:
        current = foreign_names.TORCH_STREAM.find()
        _torch_stream[:] = [torch, current]
    return current  # type: ignore[no-any-return]


def _read_interface(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        interface = array.__cuda_array_interface__
    except AttributeError:  # some libraries raise it for arrays in the host's memory
        return None
    if not isinstance(interface, dict):
        message = f"has a __cuda_array_interface__ that is {errors.describe(interface)}, and no dict"
        raise errors.UnreadableError(message)
    data, ready = interface.get("data"), interface.get("stream")
    if not isinstance(data, tuple | list) or len(data) != 2:
        text = errors.describe(data)
        message = f"has a __cuda_array_interface__ whose data is {text}, and no pair of address and read-only"
        raise errors.UnreadableError(message)
    if interface.get("mask") is not None:
        message = "has a mask, which no kernel sees; pass the array without it"
        raise errors.UnreadableError(message)
    if ready is not None:
        handle: int = ready if type(ready) is int else array_view.number(ready, "stream")
        if not 0 <= handle < 1 << 64:
            message = f"is on stream {errors.short_repr(handle)}, which is no handle"
            raise errors.UnreadableError(message)
        wait(handle, pending, stream, mutual=True)
    address, readonly = data
    typestr, shape, strides = _typestr(array, interface), interface.get("shape"), interface.get("strides")
    return _view(typestr, address, shape, strides, bool(readonly))


def _read_cupy(array: Any, _pending: list[object], _stream: int) -> View | None:
    dtype = array.dtype
    strides = None if is_c_contiguous(array) else array.strides
    return _view(element(dtype), array.data.ptr, array.shape, strides, False)


def _read_torch(tensor: Any, pending: list[object], stream: int) -> View | None:
    try:
        return _torch_view(tensor, pending, stream)
    except (errors.UnreadableError, MemoryError, RecursionError):
        raise
    except Exception as error:
        layout = "nested" if getattr(tensor, "is_nested", False) else str(getattr(tensor, "layout", "torch.strided"))
        if layout == "torch.strided":
            raise
        message = f"is a tensor with no strides ({layout}); pass the tensors with its elements"
        raise errors.UnreadableError(message) from error


def _torch_view(tensor: Any, pending: list[object], stream: int) -> View | None:
    typestr = _torch_typestr(tensor.dtype)
    if not tensor.is_cuda:
        return None
    current = torch_stream()
    if current is not None:
        wait(current(tensor.get_device()), pending, stream, mutual=False)
    # PyTorch's own exports refuse a lazy conjugate. They ignore lazy negation, and so does this reader.
    if typestr[1:2] == "c" and tensor.is_conj():
        typestr += " (a lazy conjugate; call resolve_conj())"
    strides = None
    if not tensor.is_contiguous():
        itemsize = tensor.element_size()
        strides = tuple([step * itemsize for step in tensor.stride()])
    address = tensor.data_ptr()
    if type(address) is int and 0 < address < LEAST_ADDRESS:
        begin: int = tensor.storage_offset() * tensor.element_size()
        address -= begin if begin == address else 0  # the storage was resized to 0 bytes
    return _view(typestr, address, tuple(tensor.shape), strides, False)


def _read_torch_wrapper(tensor: Any, _pending: list[object], _stream: int) -> View | None:
    message = (
        f"is a {type(tensor).__name__}, a subclass of torch.Tensor with __torch_dispatch__: its memory is not "
        "the data that it shows; pass the tensor that it wraps"
    )
    raise errors.UnreadableError(message)


def _read_numba(array: Any, pending: list[object], stream: int) -> View | None:
    try:
        typestr, ready, address = element(array.dtype), array.stream, array.gpu_data.device_pointer
        if ready != 0:  # 0 means that the array is bound to no stream
            wait(to_int(ready), pending, stream, mutual=True)
        # The interface lacks the strides of some arrays with broadcast dimensions.
        return _view(typestr, to_int(address), array.shape, array.strides, False)
    except (AttributeError, TypeError):  # an array of another release, with other attributes
        return _read_interface(array, pending, stream)


def to_int(number: Any) -> int:
    """Return a number as an int; ignore methods of subclasses of int."""
    return int.__index__(number) if isinstance(number, int) else int(number)


def _view(typestr: str, address: Any, shape: Any, strides: Any, readonly: bool) -> View:
    """Return the result of `array_view.view`; call it only if a quick check of its rules fails."""
    plain = PLAIN.get(typestr)
    if plain is not None and type(shape) is tuple and (strides is None or _is_one_step(shape, strides, plain[1])):
        items = array_view.count_items(shape, plain[1])
        if items is not None and type(address) is int and 0 < address < 1 << 64:
            return plain[0], address, shape, None, readonly
    return array_view.view(typestr, address, shape, strides, readonly=readonly)


def _is_one_step(shape: tuple[object, ...], strides: Any, itemsize: int) -> bool:
    return len(shape) == 1 and strides == (itemsize,) and type(strides[0]) is int  # 4.0 equals 4, and is refused


def _read_dlpack(array: Any, pending: list[object], stream: int) -> View | None:
    from . import dlpack  # noqa: PLC0415 (few programs use DLPack)

    return dlpack.read(array, pending, stream)


_READERS: dict[str, Reader] = {
    "cupy": _read_cupy,
    "torch": _read_torch,
    "torch wrapper": _read_torch_wrapper,
    "numba": _read_numba,
    "interface": _read_interface,
    "dlpack": _read_dlpack,
}


def _torch_typestr(dtype: object) -> str:
    typestr = _torch_types.get(dtype)
    if typestr is None:
        typestr = _torch_types[dtype] = TORCH.get(str(dtype), str(dtype))
    return typestr


def _typestr(array: Any, interface: dict[str, Any]) -> str:
    """Return the type string of an interface, with the fields of a structured type as in `manifest.dtypes`."""
    typestr: object = interface.get("typestr")
    if not isinstance(typestr, str):
        message = f"has a __cuda_array_interface__ whose typestr is {errors.describe(typestr)}, and no str"
        raise errors.UnreadableError(message)
    if typestr[1:2] != "V":
        return typestr
    if (name := getattr(getattr(array, "dtype", None), "name", None)) in NAMED:
        return str(name)
    from ....manifest.dtypes import structured  # noqa: PLC0415 (few arrays are structured)

    descr = interface.get("descr")
    if descr is None:  # only the dtype of Numba's arrays has it
        descr = getattr(getattr(array, "dtype", None), "descr", None)
    return structured(typestr, descr)


def wait(ready: int, pending: list[object], stream: int, *, mutual: bool) -> None:
    """Record that a launch on `stream` has to wait for `ready`, unless both are one stream; 0 and 1 are one."""
    if ready != stream and (ready or 1) != (stream or 1):
        from ... import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

        pending.append(streams.MutuallyReady(ready) if mutual else streams.Ready(ready))


def waiting(function: Call, current: Callable[[], int], *, mutual: bool) -> Call:
    """Return a reader, or a step of `packing`, that first lets the launch wait for a library's current stream."""

    def wait_and_call(array: object, *others: Any) -> Any:
        wait(int(current()), others[-2], others[-1], mutual=mutual)  # `pending` and the launch's stream
        return function(array, *others)

    return wait_and_call  # type: ignore[return-value]  # with the parameters of `function`
