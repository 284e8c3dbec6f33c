"""Record the launches of Numba-CUDA.

Every kernel, whether compiled or read from Numba's cache, goes through `add_overload`, and every launch through
`_Kernel.launch`, which calls `cuda.core.launch`.
"""

from __future__ import annotations

import functools
import sys
import threading

from aotcuda_recorder import dry, functions, log, types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from types import CodeType, FrameType, FunctionType, ModuleType
    from typing import Any

    from aotcuda_recorder.log import Entry, Facts

FRONT_END = "numba-cuda"
_ENTRY = "_aotcuda_recorder_entry"
_DEFAULTS = {"opt": (None, True), "opt_level": (None, 3), "inline": (None, False, "never")}
"""Default values of options; None, False and () are the defaults of the other options."""

_RECORDED_OPTIONS = (
    "fastmath", "debug", "lineinfo", "opt", "opt_level", "max_registers", "launch_bounds", "shared_memory_carveout",
    "inline", "forceinline", "cooperative",
)  # fmt: skip
"""The options of `@cuda.jit` that change the code."""


def patch(module: ModuleType) -> None:
    """Patch `numba.cuda.dispatcher`."""
    kernel: Any = module.__dict__["_Kernel"]
    dispatcher: Any = module.__dict__["CUDADispatcher"]
    launches = _Launches(Gpus("numba.cuda.cudadrv.devices"))
    kernel.launch = launches.wrap_kernel_launch(kernel.launch)
    module.__dict__["launch"] = launches.wrap_driver_launch(module.__dict__["launch"])
    if dry.target() is not None:
        dispatcher.__init__ = wrap_init(dispatcher.__init__, FRONT_END)
    lazy = {getattr(dispatcher, name).__code__ for name in ("call", "specialize")}
    lazy |= {function.__wrapped__.__code__ for function in [dispatcher.call] if hasattr(function, "__wrapped__")}
    dispatcher.add_overload = _wrap_add_overload(dispatcher.add_overload, lazy)
    dispatcher.compile_device = wrap_compile_device(dispatcher.compile_device, FRONT_END)


class Gpus:
    """The GPU of a launch.

    Args:
        devices: The name of the front end's module that lists them.
    """

    def __init__(self, devices: str) -> None:
        self._devices = devices
        self._only: bool | None = None

    def ordinal(self) -> object:
        """Return the ordinal of the current GPU. With several GPUs this calls the driver, which takes microseconds."""
        if dry.target() is not None:
            return 0
        if self._only is None:
            self._only = len(sys.modules[self._devices].gpus) == 1
        return 0 if self._only else self._context().device.id

    def _context(self) -> Any:
        return sys.modules[self._devices].get_context()

    def label(self) -> str:
        """Return name and compute capability of the current GPU."""
        if dry.target() is not None:
            return dry.LABEL
        device = self._context().device
        name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
        return f"{name} ({'.'.join(map(str, device.compute_capability))})"


def function_facts(front_end: str, kind: str, function: FunctionType, options: dict[str, Any]) -> Facts:
    """Return the facts of a function that do not depend on types; `options` are the options of `@cuda.jit`."""
    return {
        "frontend": front_end,
        "kind": kind,
        **functions.describe(function),
        "options": {
            name: options[name]
            for name in _RECORDED_OPTIONS
            if name in options
            and not callable(options[name])
            and options[name] not in _DEFAULTS.get(name, (None, False, ()))
        },
    }


def launch_facts(function: FunctionType) -> Callable[[], Facts]:
    """Return a function for the facts at a first launch, when the function's module is imported."""
    return lambda: {**functions.find_path(function), "site": functions.site()}


def wrap_init(init: Callable[..., None], front_end: str) -> Callable[..., None]:
    """Wrap `__init__` of a dispatcher to record device functions, which may be inlined before they have types."""

    @functools.wraps(init)
    def recorded(self: Any, py_func: Any, *args: Any, **more: Any) -> None:
        init(self, py_func, *args, **more)
        with log.guard("a device function cannot be recorded"):
            if self.targetoptions.get("device"):
                log.write_once(function_facts(front_end, "device", py_func, self.targetoptions))

    return recorded


def wrap_compile_device(compile_device: Callable[..., Any], front_end: str) -> Callable[..., Any]:
    """Wrap `compile_device` of a dispatcher to record the device function and its signature."""

    @functools.wraps(compile_device)
    def recorded(self: Any, args: Any, *rest: Any, **more: Any) -> Any:
        result = compile_device(self, args, *rest, **more)
        with log.guard("a device function cannot be recorded"):
            signature = result.signature
            facts = function_facts(front_end, "device", self.py_func, self.targetoptions)
            log.write_once({**facts, **types.signature(self.py_func, signature.args, signature.return_type)})
        return result

    return recorded


def declare(facts: Facts, lazy: Container[CodeType]) -> None:
    """Record a kernel that is compiled without a launch, because its signature is in the source."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in lazy:
            return
        frame = frame.f_back
    log.write_once({**facts, "declared": True})


def _wrap_add_overload(add: Callable[..., None], lazy: Container[CodeType]) -> Callable[..., None]:
    @functools.wraps(add)
    def recorded(self: Any, kernel: Any, argtypes: Any) -> None:
        add(self, kernel, argtypes)
        with log.guard("a kernel cannot be recorded"):
            entry = _entry(self.py_func, self.targetoptions, kernel, argtypes)
            setattr(kernel, _ENTRY, entry)
            declare(entry.facts, lazy)

    return recorded


def _entry(function: FunctionType, options: dict[str, Any], kernel: Any, argtypes: Any) -> Entry:
    cooperative = {"cooperative": True} if getattr(kernel, "cooperative", False) else {}
    facts = function_facts(FRONT_END, "kernel", function, options | cooperative)
    return log.entry({**facts, **types.signature(function, argtypes)}, launch_facts(function))


class _Launches:
    """Count a launch after the driver accepted it; a launch with invalid arguments does not count."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._now = threading.local()

    def wrap_kernel_launch(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Wrap `_Kernel.launch` to store the kernel."""
        now = self._now

        @functools.wraps(launch)
        def recorded(self: Any, *args: Any, **more: Any) -> None:
            now.kernel = self
            try:
                launch(self, *args, **more)
            finally:
                now.kernel = None

        return recorded

    def wrap_driver_launch(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `cuda.core.launch` in the dispatcher's module to count the stored kernel."""
        now, ordinal, label = self._now, self._gpus.ordinal, self._gpus.label

        @functools.wraps(launch)
        def recorded(*args: Any, **more: Any) -> Any:
            result = launch(*args, **more)
            with log.guard("a launch cannot be recorded"):
                _entry_of(now.kernel).count(ordinal(), label)
            return result

        return recorded


def _entry_of(kernel: Any) -> Entry:
    entry: Entry | None = getattr(kernel, _ENTRY, None)
    if entry is None:  # a dispatcher did not make it
        entry = _entry(kernel.py_func, {}, kernel, kernel.argument_types)
        setattr(kernel, _ENTRY, entry)
    return entry
