"""Answer for `torch.cuda` and `torch.accelerator`: one GPU, on which nothing runs and no memory is in use."""

from __future__ import annotations

import collections
import contextlib
import sys

from . import gpu as gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .gpu import Gpu

_CONSTANTS: tuple[tuple[object, tuple[str, ...]], ...] = (
    (
        None,
        (
            "set_device", "set_device_index", "set_device_idx", "synchronize", "empty_cache", "empty_host_cache",
            "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
            "reset_accumulated_memory_stats", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
            "set_per_process_memory_fraction", "init", "_lazy_init", "_lazy_call", "set_stream", "set_sync_debug_mode",
            "manual_seed", "manual_seed_all", "seed", "seed_all", "check_error", "caching_allocator_delete",
            "caching_allocator_enable", "change_current_allocator", "_sleep", "set_rng_state_all",
        ),
    ),
    (
        0,
        (
            "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
            "max_memory_cached", "device_memory_used", "initial_seed", "utilization", "memory_usage", "temperature",
            "power_draw", "clock_rate", "get_sync_debug_mode", "current_blas_handle", "current_solver_handle",
            "caching_allocator_alloc", "current_device_index", "current_device_idx",
        ),
    ),
    (True, ("is_initialized", "is_tf32_supported", "_is_compiled")),
    (False, ("is_current_stream_capturing", "can_device_access_peer")),
    (1.0, ("get_per_process_memory_fraction",)),
    ((0, 0), ("graph_pool_handle",)),
    ("native", ("get_allocator_backend",)),
    ("", ("memory_summary", "list_gpu_processes")),
)  # fmt: skip
"""Answers, and the functions that give them, in `torch.cuda` and `torch.accelerator`."""

_STATISTICS = (
    *("memory_stats", "memory_stats_as_nested_dict", "host_memory_stats", "host_memory_stats_as_nested_dict"),
)
_CONTEXTS = ("stream", "device", "device_of", "device_index", "_DeviceGuard", "StreamContext", "use_mem_pool",
             "caching_allocator_disabled", "graph")  # fmt: skip

TYPES = {
    "Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64",
}  # fmt: skip
"""Data types by the names of tensor types, such as `FloatTensor`."""


class Properties:
    """Stand for PyTorch's object with the properties of a device."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._values = gpu.torch_properties()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            message = f"'torch._C._CudaDeviceProperties' object has no attribute {name!r}"
            raise AttributeError(message)
        query = f"torch.cuda.get_device_properties().{name}"
        return self._gpu.answered(query, self._values[name], depends_on_target=self._gpu.differs(name))

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return "_CudaDeviceProperties({})".format(", ".join(f"{k}={v!r}" for k, v in self._values.items()))


class Stream:
    """A stream on which nothing runs."""

    cuda_stream = stream_id = device_index = priority = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.device = sys.modules["torch"].device("cuda", 0)

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def wait_event(self, _: object) -> None:
        """Do nothing: nothing runs."""

    wait_stream = wait_event

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no other stream."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event:
    """An event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        self.cuda_event = self.event_id = 0
        self.device = sys.modules["torch"].device("cuda", 0)

    def query(self) -> bool:
        return True

    def record(self, stream: object = None) -> None:
        """Do nothing: nothing runs."""

    wait = record

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def elapsed_time(self, _: object) -> float:
        return 1.0


class Graph:
    """A CUDA graph without nodes: a capture runs the program's code, and a replay does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        """Store nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _constant(None)

    def pool(self) -> tuple[int, int]:
        return (0, 0)


class _Runtime:
    """Stand for `torch.cuda.cudart()`: each function succeeds."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _constant(0)


class _Pool(Graph):
    """A memory pool."""

    id = (0, 0)


@contextlib.contextmanager
def _context(*_: object, **__: object) -> Iterator[None]:
    yield


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value  # a new object for each name: Dynamo has a table of these functions


def install(torch: Any, gpu: Gpu) -> None:
    """Replace functions and classes of `torch.cuda` and `torch.accelerator` for the whole process."""
    stream = Stream()

    def query(name: str, answer: Callable[[], Any], **kind: bool) -> Callable[..., Any]:
        def function(*_: object, **__: object) -> Any:
            return gpu.answered(f"torch.cuda.{name}()", answer(), **kind)

        return function

    answers: dict[str, Any] = {
        **{name: _constant(value) for value, names in _CONSTANTS for name in names},
        **{name: (lambda *_, **__: collections.defaultdict(int)) for name in _STATISTICS},
        **dict.fromkeys(_CONTEXTS, _context),
        **{name: _constant(stream) for name in ("current_stream", "default_stream", "get_stream_from_external")},
        **dict.fromkeys(("Stream", "ExternalStream"), Stream),
        **dict.fromkeys(("CUDAGraph", "Graph"), Graph),
        **dict.fromkeys(("MemPool", "CUDAPluggableAllocator", "GreenContext"), _Pool),
        "Event": Event,
        "is_available": query("is_available", lambda: True, presence=True),
        "device_count": query("device_count", lambda: 1, presence=True),
        "current_device": query("current_device", lambda: 0, presence=True),
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "get_device_name": query("get_device_name", lambda: gpu.name, depends_on_target=True),
        "get_device_capability": query("get_device_capability", lambda: gpu.capability, depends_on_target=True),
        "get_device_properties": lambda *_, **__: Properties(gpu),
        "get_arch_list": query("get_arch_list", lambda: ["sm_{}{}".format(*gpu.capability)], depends_on_target=True),
        "get_gencode_flags": query("get_gencode_flags", lambda: _gencode(gpu), depends_on_target=True),
        "is_bf16_supported": query("is_bf16_supported", lambda: gpu.capability >= (8, 0), depends_on_target=True),
        "mem_get_info": query("mem_get_info", lambda: (gpu.memory, gpu.memory)),
        "get_memory_info": lambda *_, **__: (gpu.memory, gpu.memory),
        "memory_snapshot": lambda *_, **__: [],
        "cudart": _constant(_Runtime()),
        "make_graphed_callables": lambda callables, *_, **__: callables,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "default_generators": (torch.default_generator,),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    accelerator = getattr(torch, "accelerator", None)
    of_accelerators = {**answers, "get_device_capability": _constant({})}
    for name in dir(accelerator):
        if name in of_accelerators and not name.startswith("__"):
            setattr(accelerator, name, of_accelerators[name])
    for module in (torch.cuda, getattr(torch.cuda, "memory", None), getattr(torch.cuda, "graphs", None)):
        for name in set(dir(module)) & set(answers):
            setattr(module, name, answers[name])
    nvtx = getattr(torch.cuda, "nvtx", None)
    if nvtx is not None:
        nvtx._nvtx = _Runtime()
    torch._C._cuda_getCurrentRawStream = _constant(0)
    torch.version.cuda = torch.version.cuda or "{}.{}".format(*gpus.DRIVER)
    torch.Stream, torch.Event = Stream, Event


def _gencode(gpu: Gpu) -> str:
    number = "{}{}".format(*gpu.capability)
    return f"-gencode compute=compute_{number},code=sm_{number}"
