"""Stand-ins for the arrays of every library, made from descriptions, which may be wrong.

A `State` describes an array, and `make` returns an object of the library's class with these attributes. The attributes
of the classes of CuPy, PyTorch and Numba agree with each other, as in the real libraries; subclasses may lie.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aotcuda.runtime.launch.arguments import array_view, arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.stand_in import DeviceArray

LIBRARIES = ("cupy", "torch", "exchange", "numba", "interface", "instance", "dlpack", "versioned", "old")
CURRENT = {"cupy": 0, "torch": 0}  # the current streams; "torch 1" is that of GPU 1, if it differs
EXCHANGED = [0]  # the number of arrays that DLPack's exchange in C has read
_TORCH = {text: name for name, text in arrays.TORCH.items()}
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Raises(NamedTuple):
    """The value of an attribute whose reading raises an error."""

    error: type[BaseException]


class State(NamedTuple):
    """The description of an array; `changes` replace values of its protocol."""

    typestr: str = "<f4"
    shape: Any = (4,)
    strides: Any = None  # in bytes
    address: Any = 0x1000
    readonly: Any = False
    stream: Any = None
    changes: tuple[tuple[str, Any], ...] = ()


class Array(NamedTuple):
    """An array of a library; `subclass` is a key of `_LIES`."""

    library: str
    state: State
    subclass: str = ""


class _Stand:
    """An object that shows the state of an array."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _get(self, name: str, value: Any) -> Any:
        """Return the value of an attribute, or its change; raise the error if the change is one."""
        value = dict(self._state.changes).get(name, value)
        if isinstance(value, Raises):
            raise value.error
        return value


def _itemsize(typestr: str) -> int:
    return array_view.item_bytes(typestr)


def _strides(state: State) -> tuple[int, ...]:
    if state.strides is not None:
        return tuple(state.strides)
    return array_view.contiguous_strides(state.shape, _itemsize(state.typestr), "C")


def _is_contiguous(state: State) -> bool:
    return array_view.is_contiguous(state.shape, _strides(state), _itemsize(state.typestr), "C")


def _numpy(typestr: str) -> Any:
    return np.dtype(typestr) if typestr != "bfloat16" else np.dtype("V2")


class ndarray(_Stand):  # noqa: N801 (CuPy's name)
    """A stand-in for `cupy.ndarray`."""

    dtype = property(lambda self: self._get("dtype", _numpy(self._state.typestr)))
    ndim = property(lambda self: self._get("ndim", len(self.shape)))
    shape = property(lambda self: self._get("shape", self._state.shape))
    strides = property(lambda self: self._get("strides", _strides(self._state)))
    _c_contiguous = property(lambda self: self._get("_c_contiguous", _is_contiguous(self._state)))

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self._get("ptr", self._state.address), device_id=self._get("gpu", 0))

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]


ndarray.__module__ = "cupy"


class Tensor(_Stand):
    """A stand-in for `torch.Tensor`, with the attributes that launches read."""

    shape = property(lambda self: self._get("shape", self._state.shape))
    is_cuda = property(lambda self: self._get("is_cuda", True))

    @property
    def dtype(self) -> Any:
        typestr = self._state.typestr
        return self._get("dtype", DTYPES.get(typestr) or _Dtype(f"torch.{typestr}"))

    def stride(self) -> Any:
        itemsize = _itemsize(self._state.typestr)
        return self._get("stride", tuple([step // itemsize for step in _strides(self._state)]))

    def is_contiguous(self) -> Any:
        return self._get("is_contiguous", _is_contiguous(self._state))

    def element_size(self) -> int:
        return _itemsize(self._state.typestr)

    def data_ptr(self) -> Any:
        return self._get("data_ptr", self._state.address)

    def storage_offset(self) -> int:
        return int(self._get("storage_offset", 0))

    def is_conj(self) -> Any:
        return "c" in self._state.typestr and self._get("is_conj", False)

    def get_device(self) -> int:
        return int(self._get("gpu", 0))


Tensor.__module__ = "torch"


class _Dtype:
    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name


DTYPES = {text: _Dtype(name) for text, name in _TORCH.items()}


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _fill(tensor: _Tensor, array: _Stand) -> object:
    """Describe an array in the form of DLPack; return the objects to keep alive."""
    state, get = array._state, array._get
    typestr, ndim = state.typestr, len(state.shape)
    itemsize = _itemsize(typestr)
    shape = (ctypes.c_int64 * max(ndim, 1))(*state.shape)
    steps = [step // itemsize if itemsize else 0 for step in _strides(state)]
    strides = (ctypes.c_int64 * max(ndim, 1))(*steps)
    tensor.data, tensor.offset = state.address - 8 if state.address else None, 8
    tensor.device[:] = get("device", (2, get("gpu", 0)))
    tensor.ndim = get("ndim", ndim)
    tensor.code = get("code", 4 if typestr == "bfloat16" else _CODES.get(typestr[1:2], 0))
    tensor.bits, tensor.lanes = get("bits", 8 * itemsize), get("lanes", 1)
    tensor.shape = ctypes.cast(None if get("no shape", False) else shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(
        None if state.strides is None and get("no strides", True) else strides, ctypes.POINTER(ctypes.c_int64)
    )
    return shape, strides


_Read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
_CurrentStream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("previous", ctypes.c_void_p),
        ("unused", ctypes.c_void_p * 3),
        ("read", _Read),
        ("stream", _CurrentStream),
    )


@_Read
def _read(tensor: Any, out: Any) -> int:
    EXCHANGED[0] += 1
    try:
        tensor._references = _fill(out.contents, tensor)
        if not tensor._get("is_cuda", True):
            out.contents.device[:] = (1, 0)
    except Exception:  # noqa: BLE001 (C gets a code)
        return -1
    return 0


def _torch_stream(device: int) -> int:
    return CURRENT.get(f"torch {device}", CURRENT["torch"])


@_CurrentStream
def _current_stream(_type: int, device: int, out: Any) -> int:
    out[0] = _torch_stream(device)
    return 0


_API = _Exchange((1, 3), None, (None,) * 3, _read, _current_stream)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_EXCHANGE_NAME = b"dlpack_exchange_api"  # a capsule does not copy its name


# No subclass of Tensor, since launches recognize `torch.Tensor` by its name and search base classes, too.
ExchangeTensor = type(
    "Tensor",
    (_Stand,),
    {
        **{name: value for name, value in vars(Tensor).items() if name not in ("__dict__", "__weakref__")},
        "__dlpack_c_exchange_api__": _capsule(ctypes.addressof(_API), _EXCHANGE_NAME, None),
    },
)


class DeviceNDArray(_Stand):
    """A stand-in for Numba's device array."""

    dtype = property(lambda self: self._get("dtype", _numpy(self._state.typestr)))
    shape = property(lambda self: self._get("shape", self._state.shape))
    strides = property(lambda self: self._get("strides", _strides(self._state)))
    stream = property(lambda self: self._get("stream", self._state.stream or 0))
    device_ctypes_pointer = property(lambda self: ctypes.c_void_p(self._state.address))

    @property
    def gpu_data(self) -> Any:
        return types.SimpleNamespace(device_pointer=self._get("device_pointer", self._state.address))

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._state)


DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"


def _interface(state: State) -> Any:
    interface = {
        "version": 3,
        "typestr": state.typestr,
        "shape": state.shape,
        "strides": state.strides,
        "data": (state.address, state.readonly),
        "stream": state.stream,
    }
    for name, value in state.changes:
        if isinstance(value, Raises):
            raise value.error
        if name == "interface":
            return value
        if value is KeyError:
            interface.pop(name, None)
        else:
            interface[name] = value
    return interface


class Interface(_Stand):
    """An array that offers only `__cuda_array_interface__`."""

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._state)


class Instance(_Stand):
    """An object whose `__cuda_array_interface__` is no attribute of its class."""

    def __getattr__(self, name: str) -> Any:
        if name == "__cuda_array_interface__":
            return _interface(self._state)
        raise AttributeError(name)


class Dlpack(_Stand):
    """An array that offers only DLPack, in a capsule of its first version.

    Attributes:
        requests: The stream and the version of each request.
        capsules: The capsules that it has returned.
    """

    versioned = False

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._references: list[object] = []
        self.requests: list[tuple[int | None, tuple[int, int] | None]] = []
        self.capsules: list[object] = []

    def __dlpack_device__(self) -> Any:
        return self._get("device", (2, 0))

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        managed = _Versioned()
        managed.version[:] = self._get("version", (1, 0))
        managed.flags = int(bool(self._state.readonly))
        self._references.append((managed, _fill(managed.tensor, self)))
        offset, name = (0, b"dltensor_versioned") if self.versioned else (_Versioned.tensor.offset, b"dltensor")
        self.requests.append((stream, max_version))
        self.capsules.append(_capsule(ctypes.addressof(managed) + offset, name, None))
        return self._get("capsule", self.capsules[-1])


class VersionedDlpack(Dlpack):
    """An array that offers DLPack in a capsule of its second version, which has a flag for read-only arrays."""

    versioned = True


class OldDlpack(Dlpack):
    """An array of a library that knows only the first version of DLPack."""

    def __dlpack__(self, stream: int | None = None) -> Any:  # type: ignore[override]
        return super().__dlpack__(stream=stream)


_CLASSES: dict[str, type] = {
    "cupy": ndarray,
    "torch": Tensor,
    "exchange": ExchangeTensor,
    "numba": DeviceNDArray,
    "interface": Interface,
    "instance": Instance,
    "dlpack": Dlpack,
    "versioned": VersionedDlpack,
    "old": OldDlpack,
}


_LIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "len": {"__len__": lambda self: int(self._state.shape[0]) + 1},
    "shape": {"shape": property(lambda self: (3, *self._state.shape[1:]))},
    "contiguous": {"is_contiguous": lambda _self: True, "_c_contiguous": True},
}
"""The members of subclasses that do not describe the memory."""

SUBCLASSES = tuple(_LIES)
_subclasses: dict[tuple[str, str], type] = {}


def make(array: Array) -> Any:
    """Return an object that matches a description."""
    kind = _CLASSES[array.library]
    if array.subclass:
        key = (array.library, array.subclass)
        if key not in _subclasses:
            _subclasses[key] = type(f"My{kind.__name__}", (kind,), _LIES[array.subclass])
        kind = _subclasses[key]
    return kind(array.state)


def of(library: str, array: DeviceArray, **changes: Any) -> Any:
    """Return an array of a library in memory of the stand-in driver; `changes` as in `State`."""
    interface = array.interface
    shape, strides = interface["shape"], interface["strides"]
    state = State(interface["typestr"], shape, strides, array.address, changes=(*changes.items(),))
    return make(Array(library, state))


@contextlib.contextmanager
def installed() -> Iterator[dict[str, int]]:
    """Put stand-ins for CuPy and PyTorch into `sys.modules`; yield their current streams, which a test may change."""
    replaced = ("cupy", "torch", "cupy_backends.cuda.stream")
    before = {name: sys.modules.get(name) for name in replaced}
    cupy, torch = types.ModuleType("cupy"), types.ModuleType("torch")
    cupy._util = types.SimpleNamespace(CUDA_ARRAY_INTERFACE_EXPORT_VERSION=3)  # type: ignore[attr-defined]
    cupy.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        get_current_stream=lambda: types.SimpleNamespace(ptr=CURRENT["cupy"])
    )
    torch._C = types.SimpleNamespace(  # type: ignore[attr-defined]
        _cuda_getCurrentRawStream=_torch_stream, _disabled_torch_function_impl=object()
    )
    sys.modules["cupy"], sys.modules["torch"] = cupy, torch
    sys.modules.pop("cupy_backends.cuda.stream", None)
    try:
        yield CURRENT
    finally:
        CURRENT.clear()
        CURRENT.update(cupy=0, torch=0)
        EXCHANGED[0] = 0
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
