"""Read the options of `@cuda.jit` that a build honours, and refuse all others with a remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.numba import config
from aotcuda.common import suggest
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.config import NumbaUnit

_HONOURED = (
    *("debug", "experimental_ast_transforms", "fast_math", "fastmath", "forceinline", "inline", "launch_bounds"),
    *("lineinfo", "link", "max_registers", "opt", "opt_level", "shared_memory_carveout"),
)
_WITHOUT_EFFECT = (
    *("annotations_as_signatures", "cache", "device", "no_cpython_wrapper"),
    *("nopython", "profile_jit", "signature", "print_before_all", "print_after_all"),
    *("dump", "dump_numba_ir", "dump_mlir", "dump_cubin", "dump_llvmir", "dump_ptx", "dump_ast", "dump_ast_after_all"),
)
"""Options that act when the decorator runs, or that do not change the code."""

_TABLE = "remove it, and list the targets in arch"
_REFUSED = {
    "abi": "remove it: kernels have Numba's ABI, and functions in the table the C ABI",
    "abi_info": "remove it: the key in the table is the name",
    "capi": "remove it: the key in the table is the name",
    "cc": _TABLE,
    "chip": _TABLE,
    "extensions": "remove it, and convert the arguments before the launch",
    "features": _TABLE,
    "lto": "remove it: builds link with link-time optimization",
    "ptxas_options": "remove it, and set max-registers and opt-level in options",
    "_dbg_optnone": "write opt=False",
    "_nrt": "remove it: packaged kernels cannot allocate memory on the device",
}
"""The remedy for each option that a build cannot honour. Values that switch an option off are accepted."""

_HIGHEST = 3

_OFF: tuple[object, ...] = (None, False, "", (), [], {}, "numba")
"""Values that switch an option off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JitOptions:
    """The options of `@cuda.jit` that influence code, joined with those of the configuration."""

    options: Options
    launch_bounds: tuple[int, ...]
    max_registers: int
    carveout: int | None
    link: tuple[Any, ...]
    inline: str
    forceinline: bool
    ast_transforms: bool


def read(unit: NumbaUnit, decorator: Mapping[str, Any]) -> JitOptions:
    """Return the options of a decorator, in the compiler's form, joined with the options of the unit.

    Raises:
        CompileError: A build cannot honour one of them.
    """
    _check(unit, decorator)
    bounds = unit.launch_bounds or _bounds(unit, decorator.get("launch_bounds"))
    options = replace(
        unit.options,
        fastmath=unit.options.fastmath or bool(decorator.get("fastmath")),
        debug=unit.options.debug or bool(decorator.get("debug")),
        lineinfo=unit.options.lineinfo or bool(decorator.get("lineinfo")),
    )
    options = replace(options, opt_level=0 if options.debug else options.opt_level)
    _check_level(unit, decorator, options)
    carveout = decorator.get("shared_memory_carveout")
    if isinstance(carveout, str):
        carveout = {"default": -1, "maxl1": 0, "maxshared": 100}[carveout.lower()]
    return JitOptions(
        options=options,
        launch_bounds=bounds,
        max_registers=int(decorator.get("max_registers") or 0),
        carveout=carveout,
        link=tuple(decorator.get("link") or ()),
        inline=decorator.get("inline") or "never",
        forceinline=bool(decorator.get("forceinline")),
        ast_transforms=bool(decorator.get("experimental_ast_transforms")),
    )


def _bounds(unit: NumbaUnit, value: object) -> tuple[int, ...]:
    """Return the launch bounds of a decorator, in the form of the key `launch-bounds`."""
    if value is None:
        return ()
    bounds = value if isinstance(value, tuple | list) else (value,)
    problem = config.bounds_problem(bounds)
    if problem is not None:
        message = f"{unit.key}: @cuda.jit(launch_bounds={value!r}) of {unit.python}: {problem}"
        raise CompileError(message)
    return tuple(bounds)


def _check(unit: NumbaUnit, decorator: Mapping[str, Any]) -> None:
    names = (*_HONOURED, *_WITHOUT_EFFECT, *_REFUSED)
    for name, value in decorator.items():
        if name not in names and not name.startswith("_"):
            remedy = suggest.did_you_mean(name, _HONOURED, "remove it")
            if name in ("fma", "fmad"):
                remedy = f"write fma = {str(bool(value)).lower()} at {unit.key}"
            message = f"{unit.key}: @cuda.jit has no option {name}, which {unit.python} gives it; {remedy}"
            raise CompileError(message)
        # Both compilers set `lto` themselves: Numba-CUDA to false in debug builds, Numba-CUDA-MLIR with a record of the
        # option that set it.
        is_unlinked = (
            name == "lto" and not value and not decorator.get("debug") and decorator.get("_lto_explicit", True)
        )
        if is_unlinked or (name in _REFUSED and name != "lto" and value not in _OFF):
            message = f"{unit.key}: @cuda.jit({name}={value!r}) of {unit.python} cannot be honoured; {_REFUSED[name]}"
            raise CompileError(message)


def _check_level(unit: NumbaUnit, decorator: Mapping[str, Any], options: Options) -> None:
    """Check that a kernel has the optimization level of its module, because the linker uses one level for a module."""
    level = 0 if decorator.get("opt") is False else decorator.get("opt_level", _HIGHEST)
    if level not in (_HIGHEST, options.opt_level):
        written = "opt=False" if decorator.get("opt") is False else f"opt_level={level}"
        message = (
            f"{unit.key}: @cuda.jit({written}) of {unit.python} cannot be honoured for one kernel; write "
            f"opt-level = {level} in the options of {unit.module}"
        )
        raise CompileError(message)
