"""Replace the compiled kernels of Numba-CUDA with kernels that do nothing.

Numba's dispatcher types arguments and chooses overloads as it does on a GPU.
"""

from __future__ import annotations

import functools

import aotcuda_recorder
from aotcuda_recorder import dry, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_copy_array = aotcuda_recorder.stand_in("numba").copy_array


def patch(module: ModuleType) -> None:
    """Patch `numba.cuda.dispatcher`, before its launches are recorded."""
    names: Any = module.__dict__
    names["launch"] = lambda *_, **__: None
    names["_Kernel"] = type("_Kernel", (_Kernel,), {"module": module})
    dispatcher = names["CUDADispatcher"]
    dispatcher.enable_caching = lambda _: None  # kernels in Numba's cache are machine code
    dispatcher.call = _wrap_call(dispatcher.call)


def _wrap_call(call: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(call)
    def wrapper(self: Any, args: Any, *configuration: Any) -> None:
        if not _copy_array(self.py_func, args):  # programs read arrays that Numba's kernels copied
            with dry.report_refusals(self.py_func.__name__, args):
                call(self, args, *configuration)

    return wrapper


class _Kernel:
    """Stand for a compiled kernel."""

    module: ModuleType
    launch_config_sensitive = objectmode = False
    entry_point = None
    regs_per_thread = 32
    const_mem_size = shared_mem_per_block = local_mem_per_thread = 0
    max_threads_per_block = 1024

    def __init__(self, py_func: Any, argtypes: Any, **options: Any) -> None:
        signature = self.module.__dict__["typing"].signature
        self.py_func = py_func
        self.argument_types = tuple(argtypes)
        self.signature = signature(self.module.__dict__["types"].void, *argtypes)
        self.cooperative = bool(options.get("cooperative"))
        self.entry_name = f"{py_func.__name__}_{len(dry.kernels)}"
        dry.kernels[self.entry_name] = self
        self._codelibrary = self

    def bind(self) -> None:
        """Do nothing: there is no machine code."""

    def get_asm_str(self, cc: object = None) -> str:
        """Return PTX that names the kernel and has no code."""
        del cc
        return f".visible .entry {self.entry_name}() {{ ret; }}\n"

    def get_cufunc(self) -> None:
        """Return None; the stand-ins for occupancy queries ignore it."""

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """Return two blocks for each multiprocessor."""
        del blockdim, dynsmemsize
        return 2 * dry.require_target().attribute("MULTIPROCESSOR_COUNT")

    def launch(self, args: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> None:
        """Store the arrays that the kernel could have written; launch nothing."""
        self.module.__dict__["launch"](stream, (griddim, blockdim, sharedmem), self)
        with log.guard("the arrays of a launch cannot be read"):
            dry.mark_arrays_written(args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("inspect_"):
            return lambda *_, **__: ""
        raise AttributeError(name)
