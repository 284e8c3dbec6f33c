"""Patch both of Numba's compilers to compile ahead of time, and not for the GPU of the build machine.

The modules `numba_cuda.patches` and `numba_cuda_mlir.patches` have the patches for one compiler. The worker process of
the build applies all patches once.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder.plan import toolchain

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE_ARRAY = (
    "it uses an array on the GPU that is a global or belongs to a closure; other processes do not have its address, so "
    "pass it as an argument"
)
"""The error for an array whose address a compiler would write into the code."""


def pin_settings(config: Any) -> None:
    """Set the settings that influence code, which a .numba_config.yaml of the user may change."""
    config.OPT = type(config.OPT)(3)
    config.CUDA_DEBUGINFO_DEFAULT = 0
    config.FORCE_CUDA_CC = None
    config.DUMP_ASSEMBLY = False
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # builds launch nothing


def allow_disable_compile(dispatcher: Any) -> None:
    """Remove an assertion from `disable_compile`, so that `@cuda.jit("...")` compiles nothing during an import."""

    def disable_compile(self: Any, val: bool = True) -> None:
        self._can_compile = not val

    dispatcher.disable_compile = disable_compile


def plain_helper(value: object) -> types.FunctionType | None:
    """Return a function, or the function that `@njit` decorates; None for other values."""
    if type(value).__module__ == "numba.core.registry":
        value = getattr(value, "py_func", value)
    return value if isinstance(value, types.FunctionType) else None


def accept_plain_helpers(
    context: Any, jit: Callable[..., Any], options: Callable[[], dict[str, Any] | None]
) -> dict[types.FunctionType, Any]:
    """Compile plain functions that compiled code calls as device functions.

    The compilers accept a helper only with the decorator `@cuda.jit`; sources for builds need no decorators.

    Args:
        context: The compiler's class of typing contexts.
        jit: The compiler's `cuda.jit`.
        options: Returns the options of `cuda.jit` for helpers, or None while nothing is compiled.

    Returns:
        The decorated function of each plain function; the dictionary grows while units are compiled.
    """
    original = context.resolve_value_type
    wrapped: dict[types.FunctionType, Any] = {}

    def resolve_value_type(self: Any, val: Any) -> Any:
        try:
            return original(self, val)
        except (ValueError, TypeError):
            chosen, plain = options(), plain_helper(val)
            if plain is None or chosen is None:
                raise
        if plain not in wrapped:
            wrapped[plain] = jit(device=True, **chosen)(plain)
        return original(self, wrapped[plain])

    context.resolve_value_type = resolve_value_type
    return wrapped


def find_toolkit(cuda_paths: Any) -> None:
    """Make a compiler's module `cuda_paths` return the paths of the loaded toolkit.

    The search of the compiler prefers installed packages of CUDA 12, and misses packages in pip's overlay for an
    isolated build. The module `cuda_paths` caches its first result.
    """
    toolkit = toolchain.loaded()
    if toolkit is None:
        return
    folder = str(Path(toolkit.libraries["nvrtc"]).parent)
    paths = {
        "nvrtc": toolkit.libraries["nvrtc"],
        "nvvm": toolkit.libraries["nvvm"],
        "libdevice": toolkit.libdevice,
        "cudalib_dir": folder,
        "static_cudalib_dir": folder,
        "include_dir": toolkit.include_dirs[0],
    }
    tuples = {name: cuda_paths._env_path_tuple("aotcuda", path) for name, path in paths.items()}  # noqa: SLF001 (both compilers have it)
    cuda_paths.get_cuda_paths._cached_result = tuples  # noqa: SLF001 (both compilers have it)
