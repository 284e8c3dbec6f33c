"""Stand-ins for the arrays of every library, made from descriptions, which may be wrong or change.

An `Array` describes an array, and `make` returns an object of the library's class with these attributes. The attributes
of the classes of CuPy, PyTorch and Numba agree with each other, as in the real libraries; subclasses may lie. If a
description has several states, each reading of the object gets the next one: a reading begins with the attribute that
all paths read first.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aotcuda.runtime.arguments import array_view, arrays

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
    """The description of an array; `odd` replaces values of its protocol."""

    typestr: str = "<f4"
    shape: Any = (4,)
    strides: Any = None  # in bytes
    address: Any = 0x1000
    readonly: Any = False
    stream: Any = None
    odd: tuple[tuple[str, Any], ...] = ()


class Array(NamedTuple):
    """An array of a library; with several states each reading gets the next one, in turn."""

    library: str
    states: tuple[State, ...]
    subclass: str = ""

    def frozen(self) -> list[Array]:
        """Return an array that does not change for each of the states."""
        return [self._replace(states=(state,)) for state in self.states]


class _States:
    """The states of a stand-in; `next` begins a reading."""

    def __init__(self, states: tuple[State, ...]) -> None:
        self._states = states
        self._count = -1

    def next(self) -> State:
        self._count += 1
        return self.now()

    def now(self) -> State:
        return self._states[max(self._count, 0) % len(self._states)]

    def odd(self, name: str, value: Any) -> Any:
        value = dict(self.now().odd).get(name, value)
        if isinstance(value, Raises):
            raise value.error
        return value


def _itemsize(typestr: str) -> int:
    return array_view.item_bytes(typestr)


def _strides(state: State) -> tuple[int, ...]:
    if state.strides is not None:
        return tuple(state.strides)
    return array_view.contiguous_strides(state.shape, _itemsize(state.typestr), "C")


def _contiguous(state: State, order: str) -> bool:
    return array_view.is_contiguous(state.shape, _strides(state), _itemsize(state.typestr), order)


def _numpy(typestr: str) -> Any:
    return np.dtype(typestr) if typestr != "bfloat16" else np.dtype("V2")


class ndarray:  # noqa: N801 (CuPy's name)
    """A stand-in for `cupy.ndarray`."""

    def __init__(self, states: _States) -> None:
        self._described = states

    @property
    def dtype(self) -> Any:
        return self._described.odd("dtype", _numpy(self._described.next().typestr))

    ndim = property(lambda self: self._described.odd("ndim", len(self.shape)))
    shape = property(lambda self: self._described.odd("shape", self._described.now().shape))
    strides = property(lambda self: self._described.odd("strides", _strides(self._described.now())))
    _c_contiguous = property(lambda self: self._described.odd("_c_contiguous", _contiguous(self._described.now(), "C")))
    _f_contiguous = property(lambda self: (self._c_contiguous, _contiguous(self._described.now(), "F"))[1])

    @property
    def data(self) -> Any:
        states = self._described
        return types.SimpleNamespace(ptr=states.odd("ptr", states.now().address), device_id=states.odd("gpu", 0))

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]


ndarray.__module__ = "cupy"


class Tensor:
    """A stand-in for `torch.Tensor`, with the attributes that launches read."""

    def __init__(self, states: _States) -> None:
        self._described = states

    @property
    def dtype(self) -> Any:
        typestr = self._described.next().typestr
        return self._described.odd("dtype", DTYPES.get(typestr) or _Dtype(f"torch.{typestr}"))

    ndim = property(lambda self: self._described.odd("ndim", len(self.shape)))
    shape = property(lambda self: self._described.odd("shape", self._described.now().shape))
    is_cuda = property(lambda self: self._described.odd("is_cuda", True))

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]

    def numel(self) -> int:
        return int(np.prod(tuple(self.shape), dtype=object))

    def stride(self) -> Any:
        itemsize = _itemsize(self._described.now().typestr)
        return self._described.odd("stride", tuple([step // itemsize for step in _strides(self._described.now())]))

    def is_contiguous(self) -> Any:
        return self._described.odd("is_contiguous", _contiguous(self._described.now(), "C"))

    def element_size(self) -> int:
        return _itemsize(self._described.now().typestr)

    def data_ptr(self) -> Any:
        return self._described.odd("data_ptr", self._described.now().address)

    def storage_offset(self) -> int:
        return int(self._described.odd("storage_offset", 0))

    def is_conj(self) -> Any:
        return "c" in self._described.now().typestr and self._described.odd("is_conj", False)

    def get_device(self) -> int:
        return int(self._described.odd("gpu", 0))


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


def _fill(tensor: _Tensor, state: State, odd: Any) -> object:
    """Write a state in the form of DLPack; return the objects to keep alive."""
    typestr, ndim = state.typestr, len(state.shape)
    itemsize = _itemsize(typestr)
    shape = (ctypes.c_int64 * max(ndim, 1))(*state.shape)
    steps = [step // itemsize if itemsize else 0 for step in _strides(state)]
    strides = (ctypes.c_int64 * max(ndim, 1))(*steps)
    tensor.data, tensor.offset = state.address - 8 if state.address else None, 8
    tensor.device[:] = odd("device", (2, odd("gpu", 0)))
    tensor.ndim = odd("ndim", ndim)
    tensor.code = odd("code", 4 if typestr == "bfloat16" else _CODES.get(typestr[1:2], 0))
    tensor.bits, tensor.lanes = odd("bits", 8 * itemsize), odd("lanes", 1)
    tensor.shape = ctypes.cast(None if odd("no shape", False) else shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(
        None if state.strides is None and odd("no strides", True) else strides, ctypes.POINTER(ctypes.c_int64)
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
    states = tensor._described
    state = states.next()
    try:
        if not states.odd("is_cuda", True):
            out.contents.device[:] = (1, 0)
        tensor._kept = _fill(out.contents, state, states.odd)
        if not states.odd("is_cuda", True):
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


class _ExchangeTensor(Tensor):
    """A tensor that DLPack's exchange in C reads as well."""

    __dlpack_c_exchange_api__ = _capsule(ctypes.addressof(_API), _EXCHANGE_NAME, None)


# A class with the library's name, because launches recognize it by name.
ExchangeTensor = type(
    "Tensor", (), {**vars(Tensor), **{k: v for k, v in vars(_ExchangeTensor).items() if "dlpack" in k}}
)
ExchangeTensor.__module__ = "torch"


class DeviceNDArray:
    """A stand-in for Numba's device array."""

    def __init__(self, states: _States) -> None:
        self._described = states

    @property
    def dtype(self) -> Any:
        return self._described.odd("dtype", _numpy(self._described.next().typestr))

    ndim = property(lambda self: self._described.odd("ndim", len(self._described.now().shape)))
    shape = property(lambda self: self._described.odd("shape", self._described.now().shape))
    strides = property(lambda self: self._described.odd("strides", _strides(self._described.now())))
    stream = property(lambda self: self._described.odd("stream", self._described.now().stream or 0))
    device_ctypes_pointer = property(lambda self: ctypes.c_void_p(self._described.now().address))

    @property
    def gpu_data(self) -> Any:
        return types.SimpleNamespace(
            device_pointer=self._described.odd("device_pointer", self._described.now().address)
        )

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._described)


DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"


def _interface(states: _States) -> Any:
    state = states.next()
    found = {
        "version": 3,
        "typestr": state.typestr,
        "shape": state.shape,
        "strides": state.strides,
        "data": (state.address, state.readonly),
        "stream": state.stream,
    }
    for name, value in state.odd:
        if isinstance(value, Raises):
            raise value.error
        if name == "interface":
            return value
        if value is KeyError:
            found.pop(name, None)
        else:
            found[name] = value
    return found


class Interface:
    """An array that offers `__cuda_array_interface__` alone."""

    def __init__(self, states: _States) -> None:
        self._described = states

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._described)


class Instance:
    """An object whose `__cuda_array_interface__` is no attribute of its class."""

    def __init__(self, states: _States) -> None:
        self._described = states

    def __getattr__(self, name: str) -> Any:
        if name == "__cuda_array_interface__":
            return _interface(self._described)
        raise AttributeError(name)


class Dlpack:
    """An array that offers DLPack alone, in a capsule of its first version.

    Attributes:
        asked: The stream and the version of each request.
        capsules: The capsules that it has returned.
    """

    versioned = False

    def __init__(self, states: _States) -> None:
        self._described = states
        self._kept: list[object] = []
        self.asked: list[tuple[int | None, tuple[int, int] | None]] = []
        self.capsules: list[object] = []

    def __dlpack_device__(self) -> Any:
        self._described.next()
        return self._described.odd("device", (2, 0))

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        state = self._described.now()
        managed = _Versioned()
        managed.version[:] = self._described.odd("version", (1, 0))
        managed.flags = int(bool(state.readonly))
        self._kept.append((managed, _fill(managed.tensor, state, self._described.odd)))
        offset, name = (0, b"dltensor_versioned") if self.versioned else (_Versioned.tensor.offset, b"dltensor")
        self.asked.append((stream, max_version))
        self.capsules.append(_capsule(ctypes.addressof(managed) + offset, name, None))
        return self._described.odd("capsule", self.capsules[-1])


class VersionedDlpack(Dlpack):
    """An array that offers DLPack in a capsule of its second version, which has a flag for read-only arrays."""

    versioned = True


class OldDlpack(Dlpack):
    """An array of a library that knows the first version of DLPack alone."""

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


def _longer(self: Any) -> int:
    return int(self._described.now().shape[0]) + 1


def _more_numel(self: Any) -> int:
    return int(np.prod(self._described.now().shape, dtype=object)) + 1


_LIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "len": {"__len__": _longer},
    "numel": {"numel": _more_numel},
    "shape": {"shape": property(lambda self: (3, *self._described.now().shape[1:]))},
    "contiguous": {"is_contiguous": lambda _self: True, "_c_contiguous": True},
}
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
    return kind(_States(array.states))


def of(library: str, array: DeviceArray, **odd: Any) -> Any:
    """Return an array of a library in memory of the stand-in driver; `odd` as in `State`."""
    interface = array.interface
    shape, strides = interface["shape"], interface["strides"]
    return make(Array(library, (State(interface["typestr"], shape, strides, array.address, odd=(*odd.items(),)),)))


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
