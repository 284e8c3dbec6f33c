"""Stand in for Triton's driver and compiler: `JITFunction.run` specialises as on a GPU, and launches nothing."""

from __future__ import annotations

import collections
import functools
import sys

from aotcuda_recorder import dry

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
        names["driver"].set_active(_Driver())
        names["driver"].reset_active = lambda: names["driver"].set_active(_Driver())
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
    def get_device_properties(self, _device: object = 0) -> dict[str, int]:
        attribute = dry.require_target().attribute
        return {
            "max_shared_mem": attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            "max_num_regs": attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            "multiprocessor_count": attribute("MULTIPROCESSOR_COUNT"),
            "warpSize": attribute("WARP_SIZE"),
            "sm_clock_rate": attribute("CLOCK_RATE"),
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


class _Driver:
    """Stand for `triton.runtime.driver.active`."""

    utils = _Utilities()

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        del device

    def get_current_stream(self, _device: object = 0) -> int:
        return 0

    def get_device_capability(self, _device: object = 0) -> tuple[int, int]:
        return dry.require_target().capability

    def get_current_target(self) -> Any:
        major, minor = dry.require_target().capability
        return sys.modules["triton.backends.compiler"].__dict__["GPUTarget"]("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cuda", 0)

    def get_device_interface(self) -> Any:
        return sys.modules["torch"].__dict__["cuda"]

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _run

    def get_empty_cache_for_benchmark(self) -> Any:
        return sys.modules["torch"].__dict__["empty"](1)

    def clear_cache(self, cache: object) -> None:
        del cache

    def is_active(self) -> bool:
        return True
