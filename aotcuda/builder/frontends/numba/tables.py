"""How the front ends for Numba's compilers read their part of `[tool.aotcuda]`: Python functions and signatures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from aotcuda.builder.config import keys, rules
from aotcuda.builder.config.model import Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Flag, Integer, ListOf, TableOf
from aotcuda.builder.frontends.python_source import PythonUnit
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.config.model import Module

_BOUNDS = ListOf(
    item=Integer(1, 1024), expected="an integer or a list of 1 to 3 integers", shortest=1, longest=3, single=True
)
_SIGNATURES = ListOf(item=rules.SIGNATURE, expected="a signature or a list of signatures", shortest=1, single=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Entry):
    """A device function that the module exports under a C name."""

    python: str = field(
        metadata=setting(
            rules.PYTHON_NAME, "The Python function in `source`.", '"add"', default="the C name", from_name=True
        )
    )
    signature: str = field(
        metadata=setting(rules.SIGNATURE, "Its types, in Numba's notation.", '"int32(int32, int32)"')
    )
    short_key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel that the module offers for launching."""

    python: str = field(
        metadata=setting(
            rules.PYTHON_NAME,
            "The Python function in `source`.",
            '"matmul"',
            default="the kernel's name",
            from_name=True,
        )
    )
    signatures: tuple[str, ...] = field(
        metadata=setting(
            _SIGNATURES,
            "The types that it is compiled for: one signature or a list of them.",
            '["void(float32[:,::1], float32[:,::1], float32[:,::1])"]',
            alias="signature",
        )
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
    short_key: str = field(default="", compare=False)


SHAPES = {
    "source": rules.PYTHON_MODULE,
    "functions": TableOf(
        name=rules.C_NAME,
        value=Record(cls=Function, expected="a signature or a table", short="signature"),
        expected="a table of functions",
        named=True,
    ),
    "kernels": TableOf(
        name=rules.KERNEL_NAME,
        value=Record(cls=Kernel, expected="a signature, a list of signatures or a table", short="signatures"),
        expected="a table of kernels",
        named=True,
    ),
}

SECTIONS = (("A device function", "functions.add_i32", Function), ("A kernel", "kernels.tiled", Kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbaUnit(PythonUnit):
    """A Python function for one signature.

    Attributes:
        launch_bounds: Maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster; may be empty.
        cooperative: The kernel is to be launched cooperatively.
    """

    launch_bounds: tuple[int, ...] = ()
    cooperative: bool = False


def check(module: Module) -> None:
    """See Tables."""
    for kernel in cast("tuple[Kernel, ...]", module.kernels):
        seen: set[str] = set()
        for signature in kernel.signatures:
            text = "".join(signature.split())
            if text in seen:
                message = f"{kernel.key}: the signature {keys.string(signature)} is listed twice; remove one of them"
                raise ConfigError(message)
            seen.add(text)


def modules(module: Module) -> Sequence[str]:
    """See Tables."""
    return (module.source,)


def units(module: Module) -> list[NumbaUnit]:
    """See Tables."""
    return [
        *(unit for kernel in cast("tuple[Kernel, ...]", module.kernels) for unit in _of_kernel(module, kernel)),
        *(_of_function(module, function) for function in cast("tuple[Function, ...]", module.functions)),
    ]


def widened(kernel: Kernel, signature: str) -> Kernel:
    """See Tables."""
    return replace(kernel, signatures=(signature,))


def _of_function(module: Module, function: Function) -> NumbaUnit:
    return NumbaUnit(
        key=function.key,
        signature_key=function.short_key,
        kind="function",
        module=module.name,
        source=module.source,
        python=function.python,
        origin=f"{module.source}:{function.python}",
        name=function.name,
        symbol=function.name,
        shared_name=function.python,
        signature=function.signature,
        options=module.options,
    )


def _of_kernel(module: Module, kernel: Kernel) -> list[NumbaUnit]:
    several = len(kernel.signatures) > 1
    return [
        NumbaUnit(
            key=kernel.key,
            signature_key=f"{kernel.short_key}[{number}]" if several else kernel.short_key,
            kind="kernel",
            module=module.name,
            source=module.source,
            python=kernel.python,
            origin=f"{module.source}:{kernel.python}",
            name=kernel.name,
            symbol=f"{kernel.name}__{number}" if several else kernel.name,
            signature=signature,
            options=module.options,
            launch_bounds=kernel.launch_bounds,
            cooperative=kernel.cooperative,
        )
        for number, signature in enumerate(kernel.signatures)
    ]
