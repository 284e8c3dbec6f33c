"""Let PyTorch report a GPU on a machine without a GPU: tensors on the CPU whose device is `cuda:0`.

Dry runs and builds call `install` after PyTorch was imported. Operators run on the CPU. A tensor counts as on the GPU
if its storage was made for `device="cuda"`, or by an operator with a tensor on the GPU. An operator whose Python
function a package registers for CUDA calls that function. The module uses PyTorch's dispatch modes and names of
`torch.cuda`, so it works with tested releases only (`TESTED`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import weakref

from . import torch_cuda

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .gpu import Gpu

TESTED = ("2.13", "2.14")
"""The releases of PyTorch with which this was tested."""

_READS = ("_local_scalar_dense", "equal", "is_nonzero")
"""Operators that return values to the host."""

_EMPTY = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_")
_FRESH = 32 << 20
"""The size in bytes above which glibc takes memory for an allocation from the system, which clears it."""

_HOST_KEYS = {"CUDA": "", "AutogradCUDA": "AutogradCPU", "AutocastCUDA": "AutocastCPU"}
"""Dispatch keys for tensors on the GPU, and the keys of these tensors here, which are on the CPU."""


class NoResults:
    """Know no memory that launches could have written, for processes that record no launches."""

    def is_written(self, _start: int, _size: int) -> bool:
        return False

    def mark_written(self, _start: int, _size: int, _owner: object) -> None:
        """Do nothing."""

    def report_read(self, _start: int, _size: int, _call: str) -> None:
        """Do nothing."""


def install(torch: Any, gpu: Gpu, results: Any) -> None:
    """Replace PyTorch's functions that need a GPU, for the whole process.

    Args:
        torch: The module.
        gpu: The GPU that programs see.
        results: An object that records memory which launches could have written: `is_written(start, size)`,
            `mark_written(start, size, owner)`, and `report_read(start, size, call)` for reads of the host.
    """
    torch_cuda.install(torch, gpu)
    tensors = _Tensors(torch, results)
    kernels: dict[str, _Kernel] = {}
    mode = _dispatch_mode(torch, tensors, kernels)
    mode().__enter__()
    _start_in_threads(mode)
    _replace_registration(torch, mode, kernels)
    _replace_methods(torch, tensors)
    _replace_factories(torch, tensors)
    _replace_types(torch, tensors)
    _replace_autocast(torch)
    _replace_groups(torch)
    torch.compile = torch.compiler.disable = _compile
    torch.nn.Module.compile = lambda *_, **__: None


def install_once(torch: Any, gpu: Gpu) -> None:
    """Replace PyTorch's functions that need a GPU, in a process that records no launches.

    A release of PyTorch that was not tested may lack a private part; then only `torch.cuda` and `torch.accelerator`
    answer.
    """
    if getattr(torch.cuda, "aotcuda_gpu", None) is gpu:
        return
    torch_cuda.install(torch, gpu)
    torch.cuda.aotcuda_gpu = gpu
    with contextlib.suppress(AttributeError, ImportError):
        install(torch, gpu, NoResults())


class _Tensors:
    """The tensors on the GPU, by an attribute of their storages."""

    def __init__(self, torch: Any, results: Any) -> None:
        self._torch = torch
        self._results = results
        self.cuda = torch.device("cuda", 0)

    def storage(self, tensor: Any) -> Any:
        """Return the storage of a tensor, whose Python object lives as long as the memory; None without storage."""
        try:
            return tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None

    def has(self, tensor: Any) -> bool:
        return getattr(self.storage(tensor), "aotcuda_gpu", False)

    def leaves(self, value: Any) -> list[Any]:
        """Return the tensors in a value, at any depth of tuples, lists and dicts."""
        return [item for item in self._torch.utils._pytree.tree_leaves(value) if isinstance(item, self._torch.Tensor)]

    def mark(self, value: Any, *, on_gpu: bool = True) -> Any:
        """Set the device of the tensors in a value; return the value."""
        for item in self.leaves(value):
            storage = self.storage(item)
            if storage is not None and getattr(storage, "aotcuda_gpu", False) != on_gpu:
                storage.aotcuda_gpu = on_gpu
        return value

    def mark_new(self, value: Any, operands: list[Any]) -> None:
        """Mark the tensors of an operator's result as on the GPU; an operand that was written stays where it is."""
        known = {storage._cdata for item in operands if (storage := self.storage(item)) is not None}
        for item in self.leaves(value):
            storage = self.storage(item)
            if storage is not None and storage._cdata not in known:
                storage.aotcuda_gpu = True

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
        for item in self.leaves(value):
            if self.has(item):
                self._results.mark_written(*self._memory(item), item)

    def _memory(self, tensor: Any) -> tuple[int, int]:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


class _Kernel:
    """A Python function of an operator for tensors on the GPU."""

    def __init__(self, library: Any, function: Callable[..., Any], *, with_keyset: bool) -> None:
        self._library = weakref.ref(library)
        self._function = function
        self._with_keyset = with_keyset

    def is_registered(self) -> bool:
        """Return True unless the library of the registration was deleted."""
        library = self._library()
        return library is not None and library.m is not None

    def run(self, torch: Any, args: Any, named: Any) -> Any:
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        return self._function(*((key,) if self._with_keyset else ()), *args, **named)


def _dispatch_mode(torch: Any, tensors: _Tensors, kernels: dict[str, _Kernel]) -> Any:
    class OnCpu(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """A mode that runs operators on the CPU and records the devices of their tensors."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            named = dict(kwargs or {})
            operands = tensors.leaves((args, named))
            on_gpu = tensors.is_on_gpu(named.get("device"))
            has_gpu = any(map(tensors.has, operands)) if on_gpu is None else on_gpu
            kernel = kernels.get(func.name()) if has_gpu and kernels else None
            if kernel is not None and kernel.is_registered():
                with self:
                    return kernel.run(torch, args, named)
            if on_gpu:
                named["device"] = torch.device("cpu")
            if named.get("pin_memory"):
                named["pin_memory"] = False
            name = getattr(func, "overloadpacket", func).__name__
            if name in _READS:
                for item in operands:
                    tensors.record_read(item, "item()" if name == "_local_scalar_dense" else name)
            if name in ("_pin_memory", "pin_memory"):
                return args[0]
            is_result = tensors.has_result(operands)
            if is_result:
                _record_reads(func, args, operands, tensors)
            if has_gpu and _has_gpu_code_alone(torch, func):
                result, written = _without_gpu(torch, func, args, named)
                tensors.add_result([tensors.mark(result), written])
                return result
            before = args[0].untyped_storage().nbytes() if name == "resize_" and has_gpu else 0
            result = func(*args, **named)
            if has_gpu:
                tensors.mark_new(result, operands)
                if name in _EMPTY:
                    _clear(result, before)
            if is_result:
                tensors.add_result(result)
            return result

    return OnCpu


_FOR_CPU = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_gpu_code: dict[str, bool] = {}


def _has_gpu_code_alone(torch: Any, func: Any) -> bool:
    """Return True for an operator that is compiled for GPUs, such as one of a package's extension module."""
    name = func.name()
    if name not in _gpu_code:
        if not hasattr(func, "_schema"):
            return False
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        _gpu_code[name] = has(name, "CUDA") and not any(has(name, key) for key in _FOR_CPU)
    return _gpu_code[name]


def _without_gpu(torch: Any, func: Any, args: Any, named: Any) -> tuple[Any, list[Any]]:
    """Return what an operator returns, with zeros of the shapes of its meta function, and the arguments that it writes.

    Raises:
        NotImplementedError: The operator has no such function.
    """
    values = {**{item.name: value for item, value in zip(func._schema.arguments, args)}, **named}  # noqa: B905 (strict= came with Python 3.10)
    written = [
        values[item.name]
        for item in func._schema.arguments
        if item.name in values and item.alias_info is not None and item.alias_info.is_write
    ]
    returned = func._schema.returns
    if not returned:
        return None, written
    if len(returned) == 1 and returned[0].alias_info is not None and returned[0].alias_info.is_write:
        return written[0], written
    if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "Meta"):
        message = f"{func.name()} has only code for GPUs, and no function for shapes: torch.library.register_fake"
        raise NotImplementedError(message)

    def to_meta(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    def to_zeros(value: Any) -> Any:
        return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value

    tree_map = torch.utils._pytree.tree_map
    device = {"device": torch.device("meta")} if "device" in named else {}
    return tree_map(to_zeros, func(*tree_map(to_meta, args), **{**tree_map(to_meta, named), **device})), written


def _record_reads(func: Any, args: Any, operands: list[Any], tensors: _Tensors) -> None:
    """Record that an operator copies a result to a tensor on the CPU, which it writes."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable or not args or tensors.has(args[0]):
        return
    first = schema.arguments[0].alias_info
    if first is not None and first.is_write:
        for item in operands:
            tensors.record_read(item, f"{schema.name.rpartition('::')[2]}()")


def _clear(tensor: Any, start: int) -> None:
    """Write zeros to memory that may have old content, from a byte of its storage on: it may be used as indices."""
    storage = tensor.untyped_storage()
    if start < storage.nbytes() <= _FRESH:
        tensor.new_empty(0, dtype=_BYTES[0]).set_(storage)[start:].zero_()


_BYTES: list[Any] = []
"""PyTorch's type of bytes."""


def _start_in_threads(mode: Any) -> None:
    """Enter the mode in each thread, since a mode belongs to one thread."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(original)
    def bootstrap(self: threading.Thread) -> None:
        with mode():
            original(self)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


def _replace_registration(torch: Any, mode: Any, kernels: dict[str, _Kernel]) -> None:
    """Run Python functions of operators in the mode, and those for CUDA with tensors that count as on the GPU.

    PyTorch calls the functions of `torch.library.custom_op`, `triton_op` and `Library.impl` without dispatch modes.
    """
    original = torch.library.Library.impl
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack

    def within(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            is_active = any(isinstance(item, mode) for item in stack())
            with contextlib.nullcontext() if is_active else mode():
                return function(*args, **named)

        return call

    def impl(
        self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False, **named: Any
    ) -> Any:
        key = dispatch_key or self.dispatch_key
        is_python = callable(fn) and fn is not torch.library.fallthrough_kernel
        if is_python and key == "CUDA":
            name = op_name if isinstance(op_name, str) else op_name.name()
            full = (name if "::" in name else f"{self.ns}::{name}").removesuffix(".default")
            kernels[full] = _Kernel(self, fn, with_keyset=with_keyset)
        elif is_python and _HOST_KEYS.get(key):
            with contextlib.suppress(RuntimeError):  # the program registered a function for the CPU, too
                original(self, op_name, fn, _HOST_KEYS[key], with_keyset=with_keyset, **named)
        elif is_python and key != "Meta":
            fn = within(fn)
        return original(self, op_name, fn, dispatch_key, with_keyset=with_keyset, **named)

    torch.library.Library.impl = impl
    _BYTES[:] = [torch.uint8]


def _compile(model: Any = None, *_: Any, **__: Any) -> Any:
    """Return the function itself, since Inductor would compile for the CPU."""
    return model if model is not None else lambda function: function


def _replace_methods(torch: Any, tensors: _Tensors) -> None:
    kind: Any = torch.Tensor
    original = {name: getattr(kind, name) for name in ("to", "numpy", "tolist", "__array__", "type")}
    device = torch._C.TensorBase.device

    def to(self: Any, *args: Any, **named: Any) -> Any:
        place = named.get("device", args[0] if args else None)
        is_on_gpu = tensors.has(self)
        wanted = tensors.has(place) if isinstance(place, torch.Tensor) else None
        if wanted is None and isinstance(place, str | int | torch.device) and not isinstance(place, bool):
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

    def type_(self: Any, dtype: Any = None, non_blocking: bool = False, **named: Any) -> Any:
        if dtype is None:
            name: str = original["type"](self)
            return name.replace("torch.", "torch.cuda.", 1) if tensors.has(self) else name
        if isinstance(dtype, torch.dtype):
            return to(self, dtype, non_blocking, **named)
        text = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        found = torch_cuda.TYPES[text.rpartition(".")[2].removesuffix("Tensor")]
        return to(self, "cuda" if ".cuda." in text else "cpu", getattr(torch, found), non_blocking)

    kind.to = to
    kind.type = type_
    kind.cuda = lambda self, *_, **named: to(self, "cuda", **{k: v for k, v in named.items() if k == "memory_format"})
    kind.cpu = lambda self, **named: to(self, "cpu", **named)
    kind.pin_memory = lambda self, *_, **__: self
    kind.record_stream = lambda *_: None
    kind.device = property(lambda self: tensors.cuda if tensors.has(self) else device.__get__(self))
    kind.is_cuda = property(tensors.has)
    kind.get_device = lambda self: 0 if tensors.has(self) else -1
    for name in ("numpy", "tolist", "__array__"):
        setattr(kind, name, recorded(name))
    storage_device = torch.UntypedStorage.device
    of_cuda = property(lambda self: getattr(self, "aotcuda_gpu", False))
    torch.UntypedStorage.is_cuda = of_cuda
    torch.UntypedStorage.device = property(
        lambda self: tensors.cuda if self.is_cuda else storage_device.__get__(self, type(self))
    )


def _replace_types(torch: Any, tensors: _Tensors) -> None:
    """Make `torch.cuda.FloatTensor` and the other types of tensors on the GPU."""

    class Kind(type):
        dtype: Any
        on_cpu: Any

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, torch.Tensor) and value.dtype == cls.dtype and tensors.has(value)

        def __call__(cls, *args: Any, **named: Any) -> Any:
            return tensors.mark(cls.on_cpu(*args, **named).clone())

    for name, dtype in torch_cuda.TYPES.items():
        type_name = f"{name}Tensor"
        members = {
            "dtype": getattr(torch, dtype),
            "on_cpu": getattr(torch, type_name),
            "__module__": "torch.cuda",
            "is_cuda": True,
        }
        setattr(torch.cuda, type_name, Kind(type_name, (), members))


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
            named.pop("pin_memory", None)
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
        is_factory = func in device._device_constructors() and (kwargs or {}).get("device") is None
        result = call_function(self, func, types, args, kwargs)  # it adds the device to the arguments
        return tensors.mark(result) if self.on_gpu and is_factory else result

    context.__init__, context.__torch_function__ = __init__, __torch_function__


def _replace_groups(torch: Any) -> None:
    """Let groups of processes that ask for NCCL communicate by Gloo, since their tensors are in the host's memory."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return
    module = importlib.import_module("torch.distributed.distributed_c10d")

    def replace(name: str, position: int) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            options.pop("device_id", None)
            options.pop("pg_options", None)
            if len(args) > position:
                args = (*args[:position], "gloo", *args[position + 1 :])
            else:
                options["backend"] = "gloo"
            return original(*args, **options)

        for owner in (module, distributed):
            setattr(owner, name, call)

    replace("init_process_group", 0)
    replace("new_group", 2)
    for owner in (module, distributed):
        owner.__dict__["is_nccl_available"] = lambda: True


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
