"""Read `[tool.aotcuda]` for the front end: the file of formulas, and the types of each kernel."""

import re
from dataclasses import dataclass, field, replace

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Choice, ListOf, TableOf, Text
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.errors import CompileError

TYPES = {"int32": ("int", "i", "<i4"), "float32": ("float", "f", "<f4"), "float64": ("double", "d", "<f8")}
"""The types that kernels compute in: the type in C++, its `struct` character, and NumPy's type string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel: a formula of the file, with its types."""

    types: tuple[str, ...] = field(
        metadata=setting(
            ListOf(item=Choice(tuple(TYPES)), expected="a type or a list of types", shortest=1, single=True),
            "The types that the kernel computes in.",
            '["float32", "float64"]',
        )
    )


SHAPES = {
    "source": Text("the path of a .formulas file", r"\.formulas$"),
    "kernels": TableOf(
        name=rules.KERNEL_NAME,
        value=Record(cls=Kernel, expected="a type, a list of types or a table", short="types"),
        expected="a table of kernels",
        named=True,
    ),
}
SECTIONS = (("A kernel", "kernels.axpy", Kernel),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula(Unit):
    """A formula for one type: the unit that is compiled."""

    path: str
    type: str


def check(module):
    """Accept every table: the keys cannot contradict each other."""


def modules(module):
    """Return no modules: the source is not Python."""
    return ()


def units(module):
    """Return a unit for each kernel and type."""
    return [
        Formula(
            key=kernel.key,
            kind="kernel",
            module=module.name,
            name=kernel.name,
            symbol=f"{kernel.name}_{type_}",
            options=module.options,
            origin=f"{module.source}:{kernel.name}",
            signature=type_,
            signature_key=kernel.key,
            path=module.source,
            type=type_,
        )
        for kernel in module.kernels
        for type_ in kernel.types
    ]


def widened(kernel, signature):
    """Return the kernel for the type of the arrays that the JIT fallback got."""
    types = [name for name in TYPES if re.search(rf"\b{name}\[", signature)]
    if len(types) != 1:
        message = f"{kernel.key}: arrays must have one type, {' or '.join(TYPES)}, not {signature}; convert them"
        raise CompileError(message)
    return replace(kernel, types=tuple(types))
