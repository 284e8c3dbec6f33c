"""Read the tables of the front ends for Numba's compilers: Python functions and signatures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from aotcuda.builder.config import keys, rules
from aotcuda.builder.config.model import FMA, Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Flag, Integer, ListOf
from aotcuda.builder.frontends.python_source import PythonUnit
from aotcuda.common import suggest
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.config.model import Module

_BOUNDS = ListOf(
    item=Integer(1, 1024), expected="an integer or a list of 1 to 3 integers", shortest=1, longest=3, single=True
)
_PATHS = "; `package.module:object.attribute` for one that decorators or objects hold"
_DECLARED = "those in its `@cuda.jit(...)`"
_SIGNATURES = ListOf(item=rules.SIGNATURE, expected="a signature or a list of signatures", shortest=1, single=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Entry):
    """A device function that the module exports under a C name."""

    python: str = field(
        metadata=setting(
            rules.PYTHON_PATH,
            f"The Python function in `source`{_PATHS}.",
            '"add"',
            default="the C name",
            from_name=True,
        )
    )
    signature: str = field(
        default="",
        metadata=setting(
            rules.SIGNATURE, "Its types, in Numba's notation.", '"int32(int32, int32)"', default=_DECLARED
        ),
    )
    fma: bool | None = field(default=None, metadata=FMA)
    short_key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel that the module offers for launching."""

    python: str = field(
        metadata=setting(
            rules.PYTHON_PATH,
            f"The Python function in `source`{_PATHS}.",
            '"matmul"',
            default="the kernel's name",
            from_name=True,
        )
    )
    signatures: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            _SIGNATURES,
            "The types that it is compiled for: one signature or a list of them.",
            '["void(float32[:,::1], float32[:,::1], float32[:,::1])"]',
            alias="signature",
            default=_DECLARED,
        ),
    )
    launch_bounds: tuple[int, ...] = field(
        default=(),
        metadata=setting(
            _BOUNDS,
            "Most threads a block, then fewest blocks a multiprocessor, then most blocks a cluster.",
            "256",
            default="none",
        ),
    )
    cooperative: bool = field(
        default=False,
        metadata=setting(Flag(), "Launch so that the whole grid can synchronise.", "true"),
    )
    fma: bool | None = field(default=None, metadata=FMA)
    short_key: str = field(default="", compare=False)


SHAPES = {
    "source": rules.PYTHON_MODULES,
    "functions": rules.functions(Record(cls=Function, expected="a signature or a table", short="signature")),
    "kernels": rules.kernels(
        Record(cls=Kernel, expected="a signature, a list of signatures or a table", short="signatures")
    ),
}

SECTIONS = (("A device function", "functions.add_i32", Function), ("A kernel", "kernels.tiled", Kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbaUnit(PythonUnit):
    """A Python function for one signature.

    Attributes:
        sources: The modules that may define the function; `in_module` sets `source` to the module that does.
        types: The names of `tool.aotcuda.types`, each with its type.
        declared: The number of the signature in the function's `@cuda.jit(...)`; -1 for a signature of the table.
        launch_bounds: Maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster; may be empty.
        cooperative: True if launches must be cooperative.
    """

    sources: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    declared: int = -1
    launch_bounds: tuple[int, ...] = ()
    cooperative: bool = False
    alike: bool = True

    @property
    def loading(self) -> str:
        return f"importing {', '.join(self.sources)}"

    def in_module(self, source: str) -> NumbaUnit:
        """Return the unit with the module that defines its function."""
        return replace(self, source=source, origin=f"{source}:{self.python}")

    def with_declared_signature(self, number: int, signature: str, symbol: str) -> NumbaUnit:
        """Return the unit for one of the signatures of `@cuda.jit(...)`."""
        return replace(self, declared=number, signature=signature, signature_key=self.key, symbol=symbol)


def check(module: Module) -> None:
    for kernel in cast("tuple[Kernel, ...]", module.kernels):
        if kernel.launch_bounds and (problem := bounds_problem(kernel.launch_bounds)) is not None:
            message = f"{kernel.key}.launch-bounds: {problem}"
            raise ConfigError(message)
        seen: set[str] = set()
        for signature in kernel.signatures:
            text = "".join(signature.split())
            if text in seen:
                message = f"{kernel.key}: the signature {keys.string(signature)} is listed twice; remove one of them"
                raise ConfigError(message)
            seen.add(text)
    for index, name in enumerate(module.source):
        if name in module.source[:index]:
            message = f"{module.key}.source[{index}]: {keys.string(name)} is listed twice; remove one of them"
            raise ConfigError(message)
    for entry in cast("tuple[Kernel | Function, ...]", (*module.kernels, *module.functions)):
        holder, colon, _ = entry.python.rpartition(":")
        if colon and holder not in module.source:
            hint = suggest.did_you_mean(holder, module.source, f"add it to {module.key}.source")
            message = f"{entry.key}.python: {holder} is none of the modules in {module.key}.source; {hint}"
            raise ConfigError(message)


def bounds_problem(bounds: Sequence[object]) -> str | None:
    """Return the problem with launch bounds, or None; ptxas ignores bounds that exceed every GPU."""
    if not 1 <= len(bounds) <= 3 or not all(type(item) is int and item > 0 for item in bounds):
        return "expected one to three positive integers: threads a block, blocks a multiprocessor, blocks a cluster"
    threads, blocks, cluster = (*cast("Sequence[int]", bounds), 1, 1)[:3]
    for name, value, most in (
        ("threads of a block", threads, 1024),
        ("blocks of a multiprocessor", blocks, 32),
        ("threads of a multiprocessor", threads * blocks, 2048),
        ("blocks of a cluster", cluster, 16),
    ):
        if value > most:
            return f"{value} {name} are more than any GPU has ({most}); write fewer"
    return None


def modules(module: Module) -> Sequence[str]:
    return cast("tuple[str, ...]", module.source)


def units(module: Module) -> list[NumbaUnit]:
    return [
        *(unit for kernel in cast("tuple[Kernel, ...]", module.kernels) for unit in _kernel_units(module, kernel)),
        *(_function_unit(module, function) for function in cast("tuple[Function, ...]", module.functions)),
    ]


def widened(kernel: Kernel, signature: str) -> Kernel:
    return replace(kernel, signatures=(signature,))


def symbol(kernel: str, number: int, count: int) -> str:
    """Return the symbol for one of a kernel's `count` signatures."""
    return f"{kernel}__{number}" if count > 1 else kernel


def _function_fields(module: Module, entry: Kernel | Function) -> dict[str, Any]:
    """Return the fields of a unit that name its function."""
    holder, colon, path = entry.python.rpartition(":")
    sources = (holder,) if colon else module.source
    return {
        "sources": sources,
        "source": sources[0],
        "python": path,
        "origin": f"{sources[0]}:{path}",
        "types": module.types,
    }


def _function_unit(module: Module, function: Function) -> NumbaUnit:
    path = function.python.rpartition(":")[2]
    return NumbaUnit(
        key=function.key,
        signature_key=function.short_key,
        kind="function",
        module=module.name,
        **_function_fields(module, function),
        name=function.name,
        symbol=function.name,
        shared_name="" if "." in path else path,
        signature=function.signature,
        options=module.options.with_fma(function.fma),
    )


def _kernel_units(module: Module, kernel: Kernel) -> list[NumbaUnit]:
    several = len(kernel.signatures) > 1
    return [
        NumbaUnit(
            key=kernel.key,
            signature_key=f"{kernel.short_key}[{number}]" if several else kernel.short_key,
            kind="kernel",
            module=module.name,
            **_function_fields(module, kernel),
            name=kernel.name,
            symbol=symbol(kernel.name, number, len(kernel.signatures)),
            signature=signature,
            options=module.options.with_fma(kernel.fma),
            launch_bounds=kernel.launch_bounds,
            cooperative=kernel.cooperative,
        )
        for number, signature in enumerate(kernel.signatures or ("",))
    ]
