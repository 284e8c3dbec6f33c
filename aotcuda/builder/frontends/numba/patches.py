"""Patch both of Numba's compilers, so that they compile ahead of time.

Each is written for the machine that it runs on. What only one of them needs is in its own `patches`; all of it is made
once, in the worker process that only the build uses.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder import toolchain

if TYPE_CHECKING:
    from collections.abc import Callable


def pin_settings(config: Any) -> None:
    """Set what a .numba_config.yaml in the user's folder or home would change of the code that is built."""
    config.OPT = type(config.OPT)(3)
    config.CUDA_DEBUGINFO_DEFAULT = 0
    config.FORCE_CUDA_CC = None
    config.DUMP_ASSEMBLY = False
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # of launches that sources configure; none is made


def disable_compile_unasked(dispatcher: Any) -> None:
    """Let `@cuda.jit("...")` end its eager compilation with nothing compiled, which the compilers assert against."""

    def disable_compile(self: Any, val: bool = True) -> None:
        self._can_compile = not val

    dispatcher.disable_compile = disable_compile


def plain_helper(value: object) -> types.FunctionType | None:
    """Return a function, or the function that Numba's `@njit` was given; None for other values."""
    if type(value).__module__ == "numba.core.registry":
        value = getattr(value, "py_func", value)
    return value if isinstance(value, types.FunctionType) else None


def take_plain_helpers(
    context: Any, jit: Callable[..., Any], options: Callable[[], dict[str, Any] | None]
) -> dict[types.FunctionType, Any]:
    """Let a plain function that is met in compiled code become a device function.

    The compilers know a helper only when it is wrapped in `@cuda.jit`; in a source for ahead-of-time builds nothing has
    to be wrapped.

    `options` returns the options of `cuda.jit` for helpers; None while nothing is compiled.

    Returns:
        The wrapped functions, by those that were met; it grows.
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
    """Have a compiler's module `cuda_paths` name the loaded toolkit; it keeps its first answer.

    It would search the installed packages, where those of CUDA 12 come first, and miss those that pip has put into an
    overlay for an isolated build.
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
    answer = {name: cuda_paths._env_path_tuple("aotcuda", path) for name, path in paths.items()}  # noqa: SLF001 (both have it)
    cuda_paths.get_cuda_paths._cached_result = answer  # noqa: SLF001 (as above)
