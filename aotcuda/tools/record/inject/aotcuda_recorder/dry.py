"""Record without a GPU: describe the target, and find the first result that a program reads.

`aotcuda record --dry` records launches and does not execute them. The code that executes a launch is replaced in each
front end, below the hooks of the recorder, so types, overloads and options come from the front end.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref

import aotcuda_recorder
from aotcuda_recorder import functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from aotcuda.stand_ins.gpu import Gpu

LABEL = "not executed"
"""The label for launches in place of a GPU's name."""


_text = aotcuda_recorder.environ[aotcuda_recorder.TARGET]
_target: Gpu | None = aotcuda_recorder.stand_in("gpu").Gpu.from_text(_text) if _text else None


def target() -> Gpu | None:
    """Return the target of this process; None if launches are executed."""
    return _target


def require_target() -> Gpu:
    """Return the target of a process that executes no launches."""
    gpu = target()
    assert gpu is not None  # noqa: S101 (only processes of dry runs import stand-ins)
    return gpu


kernels: dict[str, Any] = {}
"""Kernels by entry name, for programs that launch a compiler's code by another library."""

_now = threading.local()
_written: dict[int, int] = {}
"""End addresses of memory that recorded launches could have written, by start address."""


def mark_written(start: int, size: int, owner: object = None) -> None:
    """Store a memory range that a launch could have written, until its owner is freed."""
    if size and start not in _written and owner is not None:
        with contextlib.suppress(TypeError):  # an object with `__slots__` may have no weak references
            weakref.finalize(owner, _written.pop, start, None)
    if size:
        _written[start] = max(start + size, _written.get(start, 0))


def mark_arrays_written(values: tuple[object, ...]) -> None:
    """Store the memory ranges of arguments that are tensors, Triton's descriptors, or CUDA arrays."""
    for argument in values:
        value = getattr(argument, "base", argument) if type(argument).__name__ == "TensorDescriptor" else argument
        if hasattr(value, "untyped_storage"):
            storage = value.untyped_storage()
            mark_written(storage.data_ptr(), storage.nbytes(), value)
            continue
        described = getattr(value, "__cuda_array_interface__", None)
        if described is not None:
            owner = getattr(value, "gpu_data", value)
            mark_written(described["data"][0], _bytes(described), owner)


def forget(start: int) -> None:
    """Remove a memory range that was freed."""
    _written.pop(start, None)


def report_read(start: int, size: int, call: str) -> None:
    """Record the first read of memory that a recorded launch could have written."""
    if is_written(start, size) and not getattr(_now, "ignores_reads", False):
        log.write_first({"kind": "result", "call": call, "site": functions.site()})


def is_written(start: int, size: int) -> bool:
    """Return True for memory that a recorded launch could have written."""
    return any(begin < start + size and start < end for begin, end in list(_written.items()))


@contextlib.contextmanager
def ignore_reads() -> Iterator[None]:
    """Record no reads in the block, in which a front end copies arrays."""
    before = getattr(_now, "ignores_reads", False)
    _now.ignores_reads = True
    try:
        yield
    finally:
        _now.ignores_reads = before


@contextlib.contextmanager
def report_refusals(kernel: str, values: tuple[Any, ...]) -> Iterator[None]:
    """Record the first launch whose arguments Numba refuses, in the block."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("numba"):
            fact = (
                f"Numba refuses this launch of {kernel} with {', '.join(map(_describe, values))}: "
                f"{type(error).__name__}: {str(error).partition(chr(10))[0]}; pass types that Numba knows, and arrays "
                "with fields by numba.cuda.to_device"
            )
            log.write_first({"kind": "refused", "fact": fact, "site": functions.site()})
        raise


def _describe(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    name = f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}".removeprefix("builtins.")
    return name if dtype is None else f"{name} of {dtype}"


def _bytes(described: dict[str, Any]) -> int:
    size = int(described["typestr"][2:])
    shape, strides = described["shape"], described.get("strides")
    if not all(shape):
        return 0
    if not strides:
        return size * int(math.prod(shape))
    steps: int = sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides))  # noqa: B905 (equal lengths; strict= came with Python 3.10)
    return size + steps
