"""Stand in for Triton's driver and compiler: `JITFunction.run` specialises as on a GPU, and launches nothing."""

from __future__ import annotations

import collections
import functools
import sys

import aotcuda_recorder
from aotcuda_recorder import dry, dry_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_QUANTILES = 3


def patch(module: ModuleType) -> None:
    """Patch `triton.runtime.driver`, `triton.runtime.jit` or `triton.runtime.autotuner`."""
    names: Any = module.__dict__
    name = module.__name__.rpartition(".")[2]
    if name == "driver":
        names["driver"].set_active(_driver())
        names["driver"].reset_active = lambda: names["driver"].set_active(_driver())
    elif name == "jit":
        names["JITFunction"]._do_compile = _compile
    else:
        names["Autotuner"]._bench = _wrap_bench(names["Autotuner"]._bench)


def _compile(
    self: Any, key: Any, signature: Any, device: int, constants: Any, options: Any, attrs: Any, warmup: bool
) -> _Kernel:
    del warmup
    kernels, _, target, *_ = self.device_caches[device]
    kernel = kernels[key] = _Kernel(self.ASTSource(self, signature, constants, attrs), target, options)
    return kernel


def _wrap_bench(bench: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the timing of a config to launch it once, so that each config after pruning is recorded."""

    @functools.wraps(bench)
    def wrapper(self: Any, *args: Any, config: Any, **named: Any) -> Any:
        self.best_config = config
        dry_files.watch()
        before = self.__dict__.get("do_bench")
        self.__dict__["do_bench"] = _run
        try:
            return bench(self, *args, config=config, **named)
        finally:
            self.__dict__["do_bench"] = before
            if before is None:
                del self.__dict__["do_bench"]

    return wrapper


def _run(call: Callable[[], object], *_: object, **__: object) -> list[float]:
    call()
    return [0.0] * _QUANTILES


class _Metadata:
    """Stand for the metadata of a compiled kernel: its options, and no shared memory."""

    def __init__(self, target: Any, options: Any) -> None:
        self.__dict__.update(getattr(options, "__dict__", {}))
        self.target = target
        self.shared = 0


class _Kernel:
    """Stand for a compiled kernel."""

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024
    function = 1
    packed_metadata = None
    module = None

    def __init__(self, source: Any, target: Any, options: Any) -> None:
        self.src = source
        self.name = source.fn.__name__
        self.metadata = _Metadata(target, options)
        self.asm: dict[str, str] = collections.defaultdict(str)

    def run(self, *_: object) -> None:
        """Launch nothing."""

    def launch_metadata(self, *_: object) -> None:
        """Return nothing; only profilers use the result."""

    def _init_handles(self) -> None:
        """Do nothing: there is no machine code."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        del grid
        return self.run


class _Utilities:
    """Stand for `driver.utils`, which also loads kernels."""

    def __init__(self, utilities: Any) -> None:
        self.get_device_properties = utilities.get_device_properties

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


def _driver() -> Any:
    """Return a stand-in for `triton.runtime.driver.active` on which launches and timings do nothing."""
    driver = aotcuda_recorder.stand_in("triton").Driver(dry.require_target())
    driver.utils = _Utilities(driver.utils)
    driver.get_current_stream = lambda _device=0: 0
    driver.get_device_interface = lambda: sys.modules["torch"].__dict__["cuda"]
    driver.get_benchmarker = lambda: _run
    driver.get_empty_cache_for_benchmark = lambda: sys.modules["torch"].__dict__["empty"](1)
    driver.clear_cache = lambda _cache: None
    return driver
