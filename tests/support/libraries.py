"""Stand-ins for the arrays of every library, made from a description, true or not, and of changing ones.

An `Array` says what is to be told; `make` gives an object of a library's class that tells it. The attributes of CuPy's,
PyTorch's and Numba's own classes agree with each other, as they do in truth; subclasses tell what they like. Where a
description has
several states, each reading of the object gets the next one: a reading begins with the attribute that all paths ask for
first.
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
CURRENT = {"cupy": 0, "torch": 0}  # their current streams; by "torch 1" that of one GPU, if it has another one
EXCHANGED = [0]  # how many arrays DLPack's exchange in C was asked for
_TORCH = {text: name for name, text in arrays.TORCH.items()}
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Raises(NamedTuple):
    """In place of something that is told: asking for it raises."""

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
    """An array of a library; with several states it has another one at each reading, round and round."""

    library: str
    states: tuple[State, ...]
    subclass: str = ""

    def frozen(self) -> list[Array]:
        """Return the same as arrays that do not change."""
        return [self._replace(states=(state,)) for state in self.states]


class _Told:
    """The state of a fake, which goes on at each reading."""

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

    def __init__(self, told: _Told) -> None:
        self._told = told

    @property
    def dtype(self) -> Any:
        return self._told.odd("dtype", _numpy(self._told.next().typestr))

    ndim = property(lambda self: self._told.odd("ndim", len(self.shape)))
    shape = property(lambda self: self._told.odd("shape", self._told.now().shape))
    strides = property(lambda self: self._told.odd("strides", _strides(self._told.now())))
    _c_contiguous = property(lambda self: self._told.odd("_c_contiguous", _contiguous(self._told.now(), "C")))
    _f_contiguous = property(lambda self: (self._c_contiguous, _contiguous(self._told.now(), "F"))[1])

    @property
    def data(self) -> Any:
        told = self._told
        return types.SimpleNamespace(ptr=told.odd("ptr", told.now().address), device_id=told.odd("gpu", 0))

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]


ndarray.__module__ = "cupy"


class Tensor:
    """A stand-in for `torch.Tensor`, with the attributes that are read."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    @property
    def dtype(self) -> Any:
        typestr = self._told.next().typestr
        return self._told.odd("dtype", DTYPES.get(typestr) or _Dtype(f"torch.{typestr}"))

    ndim = property(lambda self: self._told.odd("ndim", len(self.shape)))
    shape = property(lambda self: self._told.odd("shape", self._told.now().shape))
    is_cuda = property(lambda self: self._told.odd("is_cuda", True))

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]

    def numel(self) -> int:
        return int(np.prod(tuple(self.shape), dtype=object))

    def stride(self) -> Any:
        itemsize = _itemsize(self._told.now().typestr)
        return self._told.odd("stride", tuple([step // itemsize for step in _strides(self._told.now())]))

    def is_contiguous(self) -> Any:
        return self._told.odd("is_contiguous", _contiguous(self._told.now(), "C"))

    def element_size(self) -> int:
        return _itemsize(self._told.now().typestr)

    def data_ptr(self) -> Any:
        return self._told.odd("data_ptr", self._told.now().address)

    def storage_offset(self) -> int:
        return int(self._told.odd("storage_offset", 0))

    def is_conj(self) -> Any:
        return "c" in self._told.now().typestr and self._told.odd("is_conj", False)

    def get_device(self) -> int:
        return int(self._told.odd("gpu", 0))


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
    """Write a state as DLPack has it; gives what has to be kept alive."""
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
    told = tensor._told
    state = told.next()
    try:
        if not told.odd("is_cuda", True):
            out.contents.device[:] = (1, 0)
        tensor._kept = _fill(out.contents, state, told.odd)
        if not told.odd("is_cuda", True):
            out.contents.device[:] = (1, 0)
    except Exception:  # noqa: BLE001 (C has no other way to say it)
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


# A class of its own by the name of the library's, as it is known by name.
ExchangeTensor = type(
    "Tensor", (), {**vars(Tensor), **{k: v for k, v in vars(_ExchangeTensor).items() if "dlpack" in k}}
)
ExchangeTensor.__module__ = "torch"


class DeviceNDArray:
    """A stand-in for Numba's device array."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    @property
    def dtype(self) -> Any:
        return self._told.odd("dtype", _numpy(self._told.next().typestr))

    ndim = property(lambda self: self._told.odd("ndim", len(self._told.now().shape)))
    shape = property(lambda self: self._told.odd("shape", self._told.now().shape))
    strides = property(lambda self: self._told.odd("strides", _strides(self._told.now())))
    stream = property(lambda self: self._told.odd("stream", self._told.now().stream or 0))
    device_ctypes_pointer = property(lambda self: ctypes.c_void_p(self._told.now().address))

    @property
    def gpu_data(self) -> Any:
        return types.SimpleNamespace(device_pointer=self._told.odd("device_pointer", self._told.now().address))

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._told)


DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"


def _interface(told: _Told) -> Any:
    state = told.next()
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
    """An array that offers `__cuda_array_interface__` and nothing else."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    @property
    def __cuda_array_interface__(self) -> Any:
        return _interface(self._told)


class Instance:
    """An object that may offer it, or not: it is no attribute of its class."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    def __getattr__(self, name: str) -> Any:
        if name == "__cuda_array_interface__":
            return _interface(self._told)
        raise AttributeError(name)


class Dlpack:
    """An array that offers DLPack alone, in a capsule of its first version.

    Attributes:
        asked: The stream and the version of each request.
        capsules: What it gave.
    """

    versioned = False

    def __init__(self, told: _Told) -> None:
        self._told = told
        self._kept: list[object] = []
        self.asked: list[tuple[int | None, tuple[int, int] | None]] = []
        self.capsules: list[object] = []

    def __dlpack_device__(self) -> Any:
        self._told.next()
        return self._told.odd("device", (2, 0))

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        state = self._told.now()
        managed = _Versioned()
        managed.version[:] = self._told.odd("version", (1, 0))
        managed.flags = int(bool(state.readonly))
        self._kept.append((managed, _fill(managed.tensor, state, self._told.odd)))
        offset, name = (0, b"dltensor_versioned") if self.versioned else (_Versioned.tensor.offset, b"dltensor")
        self.asked.append((stream, max_version))
        self.capsules.append(_capsule(ctypes.addressof(managed) + offset, name, None))
        return self._told.odd("capsule", self.capsules[-1])


class VersionedDlpack(Dlpack):
    """In a capsule of its second version, which says what is read-only."""

    versioned = True


class OldDlpack(Dlpack):
    """A library that knows no other version than the first."""

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
    return int(self._told.now().shape[0]) + 1


def _more_numel(self: Any) -> int:
    return int(np.prod(self._told.now().shape, dtype=object)) + 1


_LIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "len": {"__len__": _longer},
    "numel": {"numel": _more_numel},
    "shape": {"shape": property(lambda self: (3, *self._told.now().shape[1:]))},
    "contiguous": {"is_contiguous": lambda _self: True, "_c_contiguous": True},
}
SUBCLASSES = tuple(_LIES)
_subclasses: dict[tuple[str, str], type] = {}


def make(array: Array) -> Any:
    """Return an object that tells what is described."""
    kind = _CLASSES[array.library]
    if array.subclass:
        key = (array.library, array.subclass)
        if key not in _subclasses:
            _subclasses[key] = type(f"My{kind.__name__}", (kind,), _LIES[array.subclass])
        kind = _subclasses[key]
    return kind(_Told(array.states))


def of(library: str, array: DeviceArray, **odd: Any) -> Any:
    """Return an array of a library in memory that the stand-in driver gave; `odd` as in `State`."""
    told = array.interface
    return make(
        Array(library, (State(told["typestr"], told["shape"], told["strides"], array.address, odd=(*odd.items(),)),))
    )


@contextlib.contextmanager
def installed() -> Iterator[dict[str, int]]:
    """Put stand-ins for CuPy and PyTorch into `sys.modules`; give their current streams, which a test may change."""
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
