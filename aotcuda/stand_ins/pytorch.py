"""Let PyTorch report a GPU on a machine without a GPU: tensors on the CPU whose device is `cuda:0`.

`aotcuda record --dry` calls `install` after a program has imported PyTorch. Operators run on the CPU. A tensor counts
as on the GPU if its storage was made for `device="cuda"`, or by an operator with a tensor on the GPU. The module uses
PyTorch's dispatch modes and names of `torch.cuda`, so it works with tested releases only (`TESTED`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from types import SimpleNamespace
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTED = ("2.13",)
"""The releases of PyTorch with which this was tested."""

_MEMORY = 64 << 30
_READS = ("_local_scalar_dense", "equal", "is_nonzero")
"""Operators that return values to the host."""

_WITHOUT_RESULT = (
    "set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "init", "_lazy_init", "set_stream",
    "set_sync_debug_mode", "manual_seed", "manual_seed_all", "seed", "seed_all", "_lazy_call",
)  # fmt: skip
_ZEROS = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "current_device", "initial_seed", "utilization",
)  # fmt: skip


def install(torch: Any, facts: dict[str, Any], results: Any) -> None:
    """Replace PyTorch's functions that query a GPU, for the whole process.

    Args:
        torch: The module.
        facts: `name`, `capability` and `attributes` (by CUDA's names) of the GPU.
        results: An object that records memory which launches could have written: `is_written(start, size)`,
            `mark_written(start, size, owner)`, and `report_read(start, size, call)` for reads of the host.
    """
    tensors = _Tensors(torch, results)
    mode = _dispatch_mode(torch, tensors)
    mode().__enter__()
    _start_in_threads(mode)
    _replace_queries(torch, facts)
    _replace_methods(torch, tensors)
    _replace_factories(torch, tensors)
    _replace_autocast(torch)


class _Tensors:
    """The tensors on the GPU, by their storages."""

    def __init__(self, torch: Any, results: Any) -> None:
        self._torch = torch
        self._storages: set[int] = set()
        self._results = results
        self.cuda = torch.device("cuda", 0)

    def storage(self, tensor: Any) -> int:
        """Return a number for the storage of a tensor; 0 without storage."""
        try:
            return int(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            return 0

    def has(self, tensor: Any) -> bool:
        return self.storage(tensor) in self._storages

    def mark(self, value: Any, *, on_gpu: bool = True) -> Any:
        """Record the device of tensors, at any depth of tuples, lists and dicts; return the value."""
        change = self._storages.add if on_gpu else self._storages.discard
        for item in self._torch.utils._pytree.tree_leaves(value):
            if isinstance(item, self._torch.Tensor) and (storage := self.storage(item)):
                change(storage)
        return value

    def is_on_gpu(self, device: Any) -> bool | None:
        """Return True for a CUDA device, False for another device, None without a device."""
        if device is None or isinstance(device, bool):
            return None
        return isinstance(device, int) or str(getattr(device, "type", device)).startswith("cuda")

    def record_read(self, tensor: Any, call: str) -> None:
        """Record that the host reads a tensor."""
        if self.has(tensor):
            self._results.report_read(*self._memory(tensor), f"{call} of a tensor")

    def has_result(self, tensors: Any) -> bool:
        """Return True if launches could have written one of the tensors."""
        return any(self.has(item) and self._results.is_written(*self._memory(item)) for item in tensors)

    def add_result(self, value: Any) -> None:
        """Record that the tensors in a value were computed from memory that launches could have written."""
        for item in self._torch.utils._pytree.tree_leaves(value):
            if isinstance(item, self._torch.Tensor) and self.has(item):
                self._results.mark_written(*self._memory(item), item)

    def _memory(self, tensor: Any) -> tuple[int, int]:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


def _dispatch_mode(torch: Any, tensors: _Tensors) -> Any:
    leaves = torch.utils._pytree.tree_leaves

    class OnCpu(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """A mode that runs operators on the CPU and records the devices of their tensors."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            named = dict(kwargs or {})
            operands = [item for item in leaves((args, named)) if isinstance(item, torch.Tensor)]
            on_gpu = tensors.is_on_gpu(named.get("device"))
            if on_gpu:
                named["device"] = torch.device("cpu")
            if named.get("pin_memory"):
                named["pin_memory"] = False
            name = func.overloadpacket.__name__
            if name in _READS:
                for item in operands:
                    tensors.record_read(item, "item()" if name == "_local_scalar_dense" else name)
            if name in ("_pin_memory", "pin_memory"):
                return args[0]
            is_result = tensors.has_result(operands)
            result = func(*args, **named)
            tensors.mark(result, on_gpu=any(map(tensors.has, operands)) if on_gpu is None else on_gpu)
            if is_result:
                tensors.add_result(result)
            return result

    return OnCpu


def _start_in_threads(mode: Any) -> None:
    """Enter the mode in each thread, since a mode belongs to one thread."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(original)
    def bootstrap(self: threading.Thread) -> None:
        with mode():
            original(self)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


class _Stream:
    """A stream on which nothing runs."""

    cuda_stream = stream_id = device_index = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.device = "cuda:0"

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def wait_event(self, _: object) -> None:
        """Do nothing: nothing runs."""

    wait_stream = wait_event

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no other stream."""


class _Event:
    """An event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        self.cuda_event = 0

    def query(self) -> bool:
        return True

    def record(self, stream: object = None) -> None:
        """Do nothing: nothing runs."""

    wait = record

    def synchronize(self) -> None:
        """Do nothing: nothing runs."""

    def elapsed_time(self, _: object) -> float:
        return 1.0


@contextlib.contextmanager
def _empty_context(*_: object, **__: object) -> Iterator[None]:
    yield


def _replace_queries(torch: Any, facts: dict[str, Any]) -> None:
    cuda = torch.cuda
    attribute = facts["attributes"].get
    capability = tuple(facts["capability"])
    properties = SimpleNamespace(
        name=facts["name"],
        major=capability[0],
        minor=capability[1],
        total_memory=_MEMORY,
        multi_processor_count=attribute("MULTIPROCESSOR_COUNT", 132),
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=attribute("MAX_THREADS_PER_MULTIPROCESSOR", 2048),
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 227 << 10),
        shared_memory_per_multiprocessor=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 228 << 10),
        L2_cache_size=50 << 20,
        is_integrated=0,
        uuid="GPU-00000000-0000-0000-0000-000000000000",
    )
    stream = _Stream()
    answers: dict[str, Any] = {
        **{
            name: _constant(None) for name in _WITHOUT_RESULT
        },  # different objects, because Dynamo has a table of these functions
        **{name: _constant(0) for name in _ZEROS},
        **{name: _constant(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
        **{name: _constant(stream) for name in ("current_stream", "default_stream")},
        **dict.fromkeys(("stream", "device", "device_of", "_DeviceGuard"), _empty_context),
        "device_count": lambda: 1,
        "get_device_name": lambda *_: facts["name"],
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY),
        "is_current_stream_capturing": lambda: False,
        "Stream": _Stream,
        "ExternalStream": _Stream,
        "Event": _Event,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.compile = _compile
    torch.compiler.disable = _compile
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available = lambda: True
        accelerator.device_count = lambda: 1
        accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        accelerator.current_device_index = accelerator.current_device_idx = lambda: 0
        accelerator.current_stream = lambda *_: stream
        accelerator.synchronize = lambda *_: None


def _constant(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _compile(model: Any = None, **_: Any) -> Any:
    """Return the function itself, since Inductor would compile for the CPU."""
    return model if model is not None else lambda function: function


def _replace_methods(torch: Any, tensors: _Tensors) -> None:
    kind: Any = torch.Tensor
    original = {name: getattr(kind, name) for name in ("to", "numpy", "tolist", "__array__", "pin_memory")}
    device = torch._C.TensorBase.device

    def to(self: Any, *args: Any, **named: Any) -> Any:
        place = named.get("device", args[0] if args else None)
        is_on_gpu = tensors.has(self)
        wanted = tensors.has(place) if isinstance(place, torch.Tensor) else None
        if wanted is None and isinstance(place, str | int | torch.device):
            wanted = tensors.is_on_gpu(place)
            if "device" in named:
                named["device"] = "cpu"
            else:
                args = ("cpu", *args[1:])
        if wanted is None or wanted == is_on_gpu:
            return tensors.mark(original["to"](self, *args, **named), on_gpu=is_on_gpu)
        if is_on_gpu:
            tensors.record_read(self, "to()")
        return tensors.mark(original["to"](self, *args, **{**named, "copy": True}), on_gpu=wanted)

    def recorded(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **named: Any) -> Any:
            tensors.record_read(self, f"{name}()")
            return original[name](self, *args, **named)

        return call

    kind.to = to
    kind.cuda = lambda self, device=None, non_blocking=False, **named: to(self, "cuda", **named)
    kind.cpu = lambda self, **named: to(self, "cpu", **named)
    kind.pin_memory = lambda self, *_: self
    kind.record_stream = lambda *_: None
    kind.device = property(lambda self: tensors.cuda if tensors.has(self) else device.__get__(self))
    kind.is_cuda = property(tensors.has)
    kind.get_device = lambda self: 0 if tensors.has(self) else -1
    for name in ("numpy", "tolist", "__array__"):
        setattr(kind, name, recorded(name))


def _replace_factories(torch: Any, tensors: _Tensors) -> None:
    """Make tensors from data on the CPU: these functions use their device before operators are dispatched."""
    device: Any = importlib.import_module("torch.utils._device")
    context = device.DeviceContext
    modes = torch.overrides._get_current_function_mode_stack

    def in_context() -> bool:
        """Return True in `with torch.device("cuda")`."""
        return any(isinstance(mode, context) and bool(mode.on_gpu) for mode in modes())

    def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def make(*args: Any, **named: Any) -> Any:
            on_gpu = tensors.is_on_gpu(named.get("device"))
            source = args[0] if args and isinstance(args[0], torch.Tensor) else None
            if on_gpu is None:
                on_gpu = tensors.has(source) if source is not None else in_context()
            elif on_gpu:
                named["device"] = "cpu"
                if source is not None and not tensors.has(source):
                    named["copy"] = True
            return tensors.mark(function(*args, **named), on_gpu=on_gpu)

        return make

    torch.tensor = on_cpu(torch.tensor)
    torch.asarray = on_cpu(torch.asarray)
    torch.as_tensor = lambda data, dtype=None, device=None: torch.asarray(data, dtype=dtype, device=device)
    torch.Tensor.new_tensor = on_cpu(torch.Tensor.new_tensor)
    generator: Any = torch.Generator

    class Generator(generator):  # type: ignore[misc]
        """A generator on the CPU for any device."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, "cpu" if tensors.is_on_gpu(device) else device)

    torch.Generator = Generator
    initialize, call_function = context.__init__, context.__torch_function__

    def __init__(self: Any, device: Any) -> None:
        initialize(self, device)
        self.on_gpu = tensors.is_on_gpu(self.device)
        self.device = torch.device("cpu") if self.on_gpu else self.device

    def __torch_function__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call_function(self, func, types, args, kwargs)
        is_made_here = self.on_gpu and func in device._device_constructors() and "device" not in (kwargs or {})
        return tensors.mark(result) if is_made_here else result

    context.__init__, context.__torch_function__ = __init__, __torch_function__


def _replace_autocast(torch: Any) -> None:
    """Apply the GPU's autocast on the CPU, where operators run."""
    initialize = torch.autocast.__init__

    def __init__(self: Any, device_type: str, *args: Any, **named: Any) -> None:
        initialize(self, "cpu" if device_type == "cuda" else device_type, *args, **named)

    torch.autocast.__init__ = __init__
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        function = getattr(torch, name)
        setattr(torch, name, lambda kind="cuda", function=function: function("cpu" if kind == "cuda" else kind))
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("cpu")
