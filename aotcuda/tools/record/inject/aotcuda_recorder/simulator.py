"""Record the kernels that Numba's simulator runs, with the types for which Numba-CUDA would compile them.

The simulator compiles nothing and drops signatures. Types are derived from the arguments, once for each combination of
Python types, dtypes and layouts. A kernel with signatures gets the signature that a dispatcher on a GPU would choose.
"""

from __future__ import annotations

import functools
import importlib
import sys

from aotcuda_recorder import log, numba_cuda, types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import CodeType, ModuleType
    from typing import Any

    from aotcuda_recorder.log import Entry

GPU = "simulator"
_STATE = "_aotcuda_recorder_state"


def patch(module: ModuleType) -> None:
    """Patch `numba.cuda.simulator.api`, `.kernel` or `.cudadrv.devices`."""
    if module.__name__.endswith(".api"):
        module.__dict__["jit"] = _wrap_jit(module.__dict__["jit"])
    elif module.__name__.endswith(".devices"):
        _add_properties(module.__dict__["FakeCUDADevice"])
    else:
        kernel: Any = module.__dict__["FakeCUDAKernel"]
        kernel.__call__ = _wrap_call(kernel.__call__, module)


_DEVICE = {
    "MAX_BLOCK_DIM_X": 1024, "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64, "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535, "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
    "MAX_THREADS_PER_BLOCK": 1024, "WARP_SIZE": 32, "MULTIPROCESSOR_COUNT": 1, "name": b"simulator",
}  # fmt: skip
"""Properties of a GPU that programs query and the simulator lacks, with the values of all current GPUs.

The limits repeat `aotcuda.gpus.EVERYWHERE`, because aotcuda may not be installed here.
"""


def _add_properties(device: Any) -> None:
    for name, value in _DEVICE.items():
        if not hasattr(device, name):
            setattr(device, name, value)


class _Kernel:
    """The recorder's state of one kernel of the simulator.

    Attributes:
        options: The options of `@cuda.jit`.
        signatures: The types of each signature of `@cuda.jit`.
    """

    def __init__(self, kernel: Any, options: dict[str, Any], signatures: list[Any]) -> None:
        self.function = kernel.fn
        self.device = bool(kernel._device)
        self.options = options
        self.signatures = [_normalize(signature) for signature in signatures]
        self._entries: dict[Hashable, Entry] = {}
        kind = "device" if self.device else "kernel"
        for arguments, result in self.signatures:
            log.write_once({**self._entry(kind, arguments, result).facts, "declared": True})

    def entry(self, kind: str, args: tuple[Any, ...]) -> Entry:
        """Return the entry for a call with these arguments, of kind `kernel` or `device`."""
        key = (kind, *map(_key, args))
        entry = self._entries.get(key)
        if entry is None:
            arguments, result = self._types(args)
            entry = self._entry(kind, arguments, result)
            if kind == "device":
                log.write_once(entry.facts)
            if _UNIQUE not in key:
                self._entries[key] = entry
        return entry

    def _types(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        types = tuple(map(_typeof, args))
        return _choose(types, self.signatures) if self.signatures else (types, None)

    def _entry(self, kind: str, arguments: tuple[Any, ...], result: Any) -> Entry:
        facts = numba_cuda.function_facts(numba_cuda.FRONT_END, kind, self.function, self.options)
        facts |= types.signature(self.function, arguments, result)
        return log.entry(facts, numba_cuda.launch_facts(self.function))


def _wrap_jit(jit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(jit)
    def recorded(func_or_sig: Any = None, *args: Any, **options: Any) -> Any:
        result = jit(func_or_sig, *args, **options)
        signatures = func_or_sig if isinstance(func_or_sig, list) else [func_or_sig]
        if hasattr(result, "fn"):
            return _add_state(result, options, [])

        @functools.wraps(result)
        def decorate(function: Any) -> Any:
            return _add_state(result(function), options, [] if func_or_sig is None else signatures)

        return decorate

    return recorded


def _add_state(kernel: Any, options: dict[str, Any], signatures: list[Any]) -> Any:
    with log.guard("a kernel cannot be recorded"):
        setattr(kernel, _STATE, _Kernel(kernel, options, signatures))
    return kernel


def _wrap_call(call: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    run_code = module.__dict__["BlockManager"].run.__code__

    @functools.wraps(call)
    def recorded(self: Any, *args: Any) -> Any:
        entry = _entry(self, args, inside=module.__dict__["_kernel_context"] is not None)
        try:
            result = call(self, *args)
        except Exception as error:
            if entry is not None and _was_started(error, run_code):
                _count(entry)
            raise
        if entry is not None:
            _count(entry)
        return result

    return recorded


def _entry(kernel: Any, args: tuple[Any, ...], *, inside: bool) -> Entry | None:
    """Return the entry to count for a call; None for a call from inside a kernel."""
    with log.guard("a launch cannot be recorded"):
        state = kernel.__dict__.get(_STATE)
        if state is None:
            state = _Kernel(kernel, {}, [])
            setattr(kernel, _STATE, state)
        device = inside or state.device
        entry: Entry = state.entry("device" if device else "kernel", args)
        return None if device else entry
    return None


def _count(entry: Entry) -> None:
    with log.guard("a launch cannot be recorded"):
        entry.count(GPU, GPU.__str__)


def _was_started(error: BaseException, code: CodeType) -> bool:
    """Return True if the kernel had started before the error: `code`, which runs kernels, is in the traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    return trace is not None


_ndarray = sys.modules["numpy"].ndarray  # Numba has imported it
_PLAIN = frozenset((float, bool, complex))
_UNIQUE = object()
"""The mark in a key for an argument whose type must be derived at each call."""


def _key(value: Any) -> Any:
    """Return a key of a value's type that is fast to compute."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return kind
    if kind is _ndarray:
        return (value.dtype, value.ndim, value.flags.num)
    if kind is int:
        return kind if -(2**63) <= value < 2**63 else (kind, "wide")
    if kind is tuple:
        keys = tuple(map(_key, value))
        return _UNIQUE if _UNIQUE in keys else keys
    array = getattr(value, "_ary", value)
    dtype = getattr(array, "dtype", None)
    if type(array).__module__ != "numpy" or dtype is None:
        return _UNIQUE
    return (kind, dtype, array.ndim, array.flags.num)


def _typeof(value: Any) -> Any:
    typeof = _module("typing.typeof")
    inner = value
    while type(inner).__module__.endswith("simulator.cudadrv.devicearray") and hasattr(inner, "_ary"):
        inner = inner._ary
    if hasattr(inner, "_item") and type(inner).__module__.endswith("simulator.args"):
        inner = inner._item
    return typeof.typeof(inner, typeof.Purpose.argument)


def _normalize(signature: Any) -> tuple[tuple[Any, ...], Any]:
    arguments, result = _module("core.sigutils").normalize_signature(signature)
    return tuple(arguments), result


def _choose(types: tuple[Any, ...], signatures: list[tuple[tuple[Any, ...], Any]]) -> tuple[tuple[Any, ...], Any]:
    """Return the signature that a dispatcher chooses: the only one, or the one with the fewest conversions."""
    if len(signatures) == 1:
        return signatures[0]
    return min(signatures, key=lambda signature: _cost(types, signature[0]))


_IMPOSSIBLE = 99
"""The rank of an impossible conversion; Numba's ranks go from 0 (the same type) to 4 (unsafe)."""


def _cost(types: tuple[Any, ...], signature: tuple[Any, ...]) -> tuple[int, ...]:
    if len(types) != len(signature):
        return (len(types) + 1,)
    ranks = [_rank(argument, parameter) for argument, parameter in zip(types, signature)]  # noqa: B905 (strict= came with Python 3.10)
    return tuple(ranks.count(rank) for rank in (_IMPOSSIBLE, 4, 3, 2, 1))


def _rank(argument: Any, parameter: Any) -> int:
    """Return Numba's rank of the conversion from an argument's type to a parameter's type."""
    if argument == parameter:
        return 0
    conversion = _module("typeconv.rules").default_type_manager.check_compatible(argument, parameter)
    if conversion is None:
        conversion = argument.can_convert_to(None, parameter)
    return _IMPOSSIBLE if conversion is None else int(conversion)


def _module(name: str) -> Any:
    """Return a module of Numba-CUDA by one of its two possible names."""
    try:
        return importlib.import_module(f"numba.cuda.{name}")
    except ImportError:
        return importlib.import_module(f"numba.{name if '.' in name else f'cuda.{name}'}")
