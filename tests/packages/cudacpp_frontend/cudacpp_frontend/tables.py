"""How the tables of its modules are read: a file, and kernels with the C types of their parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import ListOf, TableOf, Text
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.errors import CompileError

SCALARS = {
    "char": ("b", "int8", "|i1"),
    "short": ("h", "int16", "<i2"),
    "int": ("i", "int32", "<i4"),
    "long long": ("q", "int64", "<i8"),
    "float": ("f", "float32", "<f4"),
    "double": ("d", "float64", "<f8"),
}
"""By C type: `struct` character, the name in Numba's notation, and NumPy's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: a number, or a pointer to the first of many."""

    name: str
    scalar: str
    pointer: bool
    const: bool

    @property
    def notation(self) -> str:
        """As launches write the type of what they are given."""
        name = SCALARS[self.scalar][1]
        if not self.pointer:
            return name
        return f"Array({name}, 1, 'C', readonly=True)" if self.const else f"{name}[::1]"

    @property
    def spelling(self) -> str:
        """In C++."""
        return f"{'const ' if self.const else ''}{self.scalar}{' *' if self.pointer else ''}"


def _parameter(text: str) -> Parameter:
    found = re.fullmatch(r"(const )?([a-z]+(?: long)?) ?(\*)? ?\b([A-Za-z_]\w*)", text)
    if found is None or found[2] not in SCALARS:
        message = f'"{text}" is no parameter; write one of {", ".join(SCALARS)}, or a pointer to one, and a name'
        raise ValueError(message)
    return Parameter(name=found[4], scalar=found[2], pointer=bool(found[3]), const=bool(found[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel of the file."""

    # A list: tables come to the JIT fallback with their keys sorted.
    parameters: tuple[Parameter, ...] = field(
        metadata=setting(
            ListOf(item=Text("a parameter as C declares it", r"\S", _parameter), expected="a list of parameters"),
            "Its parameters, as it declares them.",
            '["float a", "float *x", "int n"]',
        )
    )


SHAPES = {
    "source": Text("the path of a .cu file", r"\.cu$"),
    "kernels": TableOf(
        name=rules.KERNEL_NAME,
        value=Record(cls=Kernel, expected="a table"),
        expected="a table of kernels",
        named=True,
    ),
}
SECTIONS = (("A kernel", "kernels.scale", Kernel),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CppUnit(Unit):
    """A kernel in a file."""

    path: str
    parameters: tuple[Parameter, ...]


def check(module):
    """Nothing can be wrong between keys."""


def modules(module):
    """The source is no Python module."""
    return ()


def units(module):
    """One for each kernel."""
    return [
        CppUnit(
            key=kernel.key,
            kind="kernel",
            module=module.name,
            name=kernel.name,
            symbol=kernel.name,
            options=module.options,
            origin=f"{module.source}:{kernel.name}",
            path=module.source,
            parameters=kernel.parameters,
        )
        for kernel in module.kernels
    ]


def widened(kernel, signature):
    """C++ has said what the parameters are."""
    message = f"{kernel.key}: a kernel in CUDA C++ takes what it declares, and not {signature}"
    raise CompileError(message)
