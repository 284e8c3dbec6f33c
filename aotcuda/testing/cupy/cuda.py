"""CuPy's devices, streams, events and memory for one missing GPU, and libraries that compute nothing."""

from __future__ import annotations

import contextlib
import itertools
import sys
from types import ModuleType
from typing import Any

import numpy as np

from .arrays import Described, Hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    _Answer = TypeVar("_Answer")

_handles = itertools.count(256, 256)


_SPELLINGS = {
    "IsMultiGpuBoard": "MultiGpuBoard",
    "MaxThreadsPerMultiProcessor": "MaxThreadsPerMultiprocessor",
    "MultiProcessorCount": "MultiprocessorCount",
}
"""Attributes that CUDA's run time spells in another way than the driver."""


class _Chosen:
    """The GPU that programs see.

    Attributes:
        gpu: An object of `aotcuda.stand_ins.gpu.Gpu`, which the recorder sets; None for an H100.
    """

    gpu: Any = None


def _gpu() -> Any:
    if _Chosen.gpu is None:
        from aotcuda.gpus import describe
        from aotcuda.stand_ins.gpu import Gpu

        _Chosen.gpu = Gpu(describe((9, 0)))
    return _Chosen.gpu


def _answered(query: str, answer: _Answer) -> _Answer:
    _gpu().answered(f"cupy.cuda.{query}", answer, depends_on_target=True)
    return answer


def is_available() -> bool:
    return True


def get_local_runtime_version() -> int:
    return 13000


def get_device_id() -> int:
    return 0


def check_cuda_available() -> None:
    """Do nothing: CUDA counts as available."""


class Device:
    """The GPU."""

    def __init__(self, device: Any = None) -> None:
        self.id = int(getattr(device, "id", device) or 0)
        self.pci_bus_id = "0000:00:00.0"
        self.cublas_handle = self.cusolver_handle = self.cusparse_handle = 1

    @property
    def compute_capability(self) -> str:
        return _answered("Device().compute_capability", "".join(map(str, _gpu().capability)))

    @property
    def mem_info(self) -> tuple[int, int]:
        return _memory_info()

    @property
    def attributes(self) -> dict[str, int]:
        values = {"".join(map(str.capitalize, name.split("_"))): value for name, value in _gpu().attributes.items()}
        values |= {name: values[other] for name, other in _SPELLINGS.items()}
        return _answered("Device().attributes", values)

    def use(self) -> Device:
        return self

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no other device."""


class Event:
    """An event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        self.ptr = next(_handles)
        self.done = True

    def record(self, stream: Any = None) -> None:
        """Do nothing: nothing runs."""

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""


class Stream:
    """A stream on which nothing runs."""

    null: Stream
    ptds: Stream
    done = True

    def __init__(self, null: bool = False, *_: object, **options: Any) -> None:
        self.ptr = 0 if null else options.get("ptr") or next(_handles)
        self.device_id = 0

    def use(self) -> Stream:
        _current[-1] = self
        return self

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: nothing runs."""

    def record(self, event: Any = None) -> Any:
        return event or Event()

    def launch_host_func(self, callback: Callable[[Any], object], arg: Any) -> None:
        callback(arg)

    def add_callback(self, callback: Callable[..., object], arg: Any) -> None:
        callback(self, 0, arg)

    def __enter__(self) -> Any:
        _current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.pop()


class ExternalStream(Stream):
    """A stream of another library."""

    def __init__(self, ptr: int, device_id: int = 0) -> None:
        super().__init__(ptr=ptr)
        self.device_id = device_id


Stream.null = Stream(null=True)
Stream.ptds = Stream(null=True)
_current = [Stream.null]


def get_current_stream(device_id: int = 0) -> Stream:
    del device_id
    return _current[-1]


def get_elapsed_time(start: Event, end: Event) -> float:
    del start, end
    return 1.0


class Memory:
    """A block of the host's memory."""

    def __init__(self, size: int, block: Any = None) -> None:
        self.block = np.zeros(max(size, 1), np.uint8) if block is None else block
        self.size = size
        self.ptr = int(self.block.ctypes.data)
        self.device_id = 0


class UnownedMemory(Memory):
    """A block of the host's memory that belongs to another object."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = 0) -> None:
        del device_id
        super().__init__(size, np.asarray(Described({"shape": (size,), "typestr": "|u1", "data": (ptr, False)}, owner)))


class MemoryPointer:
    """A pointer into a block."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem = mem
        self.offset = offset
        self.ptr = mem.ptr + offset
        self.device = Device(0)
        self.device_id = 0

    @classmethod
    def from_array(cls, array: Any) -> MemoryPointer:
        return cls(Memory(array.nbytes, array), 0)

    def memset(self, value: int, size: int) -> None:
        self.mem.block[self.offset : self.offset + size] = value

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        del stream
        self.memset(value, size)

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.offset + offset)


def alloc(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


def alloc_pinned_memory(size: int) -> Any:
    return memoryview(bytearray(size))


class MemoryPool:
    """A memory pool without blocks."""

    def __init__(self, *_: object, **__: object) -> None:
        self.malloc = alloc

    def free_all_blocks(self, stream: Any = None) -> None:
        """Do nothing: the pool has no blocks."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Do nothing: the pool has no blocks."""

    def n_free_blocks(self) -> int:
        return 0

    def used_bytes(self) -> int:
        return 0

    free_bytes = total_bytes = get_limit = used_bytes


MemoryAsyncPool = PinnedMemoryPool = ManagedMemoryPool = MemoryPool


def set_allocator(allocator: Any = None) -> None:
    """Do nothing: memory is the host's."""


set_pinned_memory_allocator = set_allocator


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    del allocator
    yield


class Function:
    """A kernel from another compiler's code; the recorder may know its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, grid: Any, block: Any, args: Any, *_: object, **__: object) -> None:
        if Hooks.launch is not None:
            Hooks.launch(self.name, grid, block, args)

    linear_launch = __call__


class Module:
    """A module of machine code that nothing loads."""

    def load(self, code: bytes) -> None:
        """Do nothing: nothing runs."""

    load_file = load

    def get_function(self, name: str) -> Function:
        return Function(name)


class OutOfMemoryError(MemoryError):
    """The memory of the GPU is exhausted."""


class _Idle(ModuleType):
    """A library, or an object of one, that computes nothing: attributes and calls return such objects."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.isupper() or name.startswith(("CUFFT_", "CUBLAS_")) else _Idle(f"{self.__name__}.{name}")

    def __call__(self, *_: object, **__: object) -> _Idle:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: nothing runs."""

    def __int__(self) -> int:
        return 0

    __index__ = __int__


def _properties(device: int = 0) -> Any:
    del device
    return _answered("runtime.getDeviceProperties()", _gpu().cupy_properties())


def _memory_info() -> tuple[int, int]:
    return _gpu().memory, _gpu().memory


def _submodule(name: str, **content: Any) -> Any:
    module = _Idle(f"{__name__}.{name}")
    module.__dict__.update(content)
    sys.modules[module.__name__] = module
    return module


runtime = _submodule(
    "runtime",
    is_hip=False,
    getDeviceCount=lambda: 1,
    getDevice=lambda: 0,
    setDevice=lambda _: None,
    getDeviceProperties=_properties,
    deviceGetAttribute=lambda *_: 1,
    deviceSynchronize=lambda: None,
    streamSynchronize=lambda _: None,
    memGetInfo=_memory_info,
    runtimeGetVersion=get_local_runtime_version,
    driverGetVersion=get_local_runtime_version,
    CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}),
)
memory = _submodule(
    "memory",
    OutOfMemoryError=OutOfMemoryError,
    MemoryPointer=MemoryPointer,
    Memory=Memory,
    MemoryPool=MemoryPool,
    UnownedMemory=UnownedMemory,
    alloc=alloc,
    set_allocator=set_allocator,
)
stream = _submodule(
    "stream", Stream=Stream, ExternalStream=ExternalStream, Event=Event, get_current_stream=get_current_stream
)
device = _submodule("device", Device=Device, get_cublas_handle=lambda: 1, get_device_id=get_device_id)
function = _submodule("function", Function=Function, Module=Module)
pinned_memory = _submodule("pinned_memory", alloc_pinned_memory=alloc_pinned_memory)
compiler = _submodule("compiler", CompileException=type("CompileException", (Exception,), {}))
driver, nvrtc, nvtx, profiler, nccl, cublas, cufft, curand, cusolver, cusparse, thrust, cub, texture, graph = map(
    _submodule,
    ["driver", "nvrtc", "nvtx", "profiler", "nccl", "cublas", "cufft", "curand", "cusolver", "cusparse", "thrust",
     "cub", "texture", "graph"],
)  # fmt: skip
