"""Kernels that are made in variants beforehand: what the tables of front ends for such have in common.

Triton's JIT and cuTile's compile a kernel for what they see at its launches: types, values of constants, what is
divisible. Their front ends here make a unit for each of the signatures and sets of constants that the table has, and of
each unit one for every specialisation.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import Entry, Options
from aotcuda.builder.config.settings import setting
from aotcuda.builder.config.shapes import Choice, ListOf, Text
from aotcuda.builder.frontends.protocol import LeftOut
from aotcuda.builder.frontends.python_source import PythonUnit
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.model import Module
    from aotcuda.builder.frontends.protocol import LinkInput

T = TypeVar("T")

Constant = int | float | bool | str
"""The value of a constant, as TOML can write it."""

Constants = tuple[tuple[str, tuple[Constant, ...]], ...]
"""By name of a constant, the values that variants are made for."""

PARAMETER_NAME = Text("the name of a parameter", r"^[^\W\d]\w*$", rules.python_name)


@dataclass(frozen=True, slots=True)
class ConstantShape:
    """The value of a constant, or a list of them: numbers, and of strings what `strings` lets pass.

    Attributes:
        expected: See Shape.
        strings: Whether a string can be a constant's value; None where no string can.
    """

    expected: str
    strings: Callable[[str], object] | None = None

    def read(self, value: object, key: Key) -> tuple[Constant, ...]:
        """Implement Shape.read."""
        values = value if isinstance(value, list | tuple) and value else [value]
        if not all(isinstance(item, int | float) or self._takes(item) for item in values):
            raise key.mismatch(self.expected, value)
        return tuple(values)

    def _takes(self, text: object) -> bool:
        return self.strings is not None and isinstance(text, str) and bool(self.strings(text))

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        one = {"type": ["number", *(["string"] if self.strings else []), "boolean"]}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def path_setting(decorator: str, example: str) -> Mapping[str, Any]:
    """Return the settings of the key `python`, a kernel's path in the sources."""
    return setting(
        rules.PYTHON_PATH,
        f"The `{decorator}` function in `source`; `package.module:object.attribute` for one that objects hold.",
        example,
        default="the kernel's name",
        from_name=True,
    )


def signatures_setting(
    parse: Callable[[str], object], meaning: str, example: str, *, default: str = ""
) -> Mapping[str, Any]:
    """Return the settings of the key `signatures`; `parse` reads one of them."""
    return setting(
        ListOf(
            item=Text("the types of the arguments, in one string", r"", parse),
            expected="a signature or a list of signatures",
            shortest=1,
            single=True,
        ),
        meaning,
        example,
        alias="signature",
        default=default,
    )


def specialise_setting(meaning: str) -> Mapping[str, Any]:
    """Return the settings of the key `specialise`."""
    return setting(Choice(("auto", "exact")), meaning, '"exact"')


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantUnit(PythonUnit):
    """A kernel for one signature and one set of constants; when it is completed, for one specialisation.

    Attributes:
        sources: The modules to look for it in.
        chosen: Names of constants that a launch need not give.
        specialise: As the table has it.
    """

    sources: tuple[str, ...]
    chosen: frozenset[str]
    specialise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantKernel(Entry):
    """A kernel with variants, as the table has it; a front end's subclass adds the notation."""

    python: str
    signatures: tuple[Any, ...]
    specialise: str


def common(module: Module, kernel: VariantKernel, number: int) -> dict[str, Any]:
    """Return the arguments that all classes of units take, for the variant `number` of a kernel."""
    holder, colon, path = kernel.python.rpartition(":")
    sources = (holder,) if colon else modules(module)
    return {
        "key": kernel.key,
        "signature_key": kernel.key,
        "kind": "kernel",
        "module": module.name,
        "name": kernel.name,
        "symbol": f"{kernel.name}__{number}",
        "options": module.options.with_fma(getattr(kernel, "fma", None)),
        "origin": f"{sources[0]}:{path}",
        "source": sources[0],
        "python": path,
        "sources": sources,
        "specialise": kernel.specialise,
    }


def modules(module: Module) -> tuple[str, ...]:
    """Return a module's sources, which are all Python modules."""
    return cast("tuple[str, ...]", module.source)


def combinations(constants: Constants) -> list[tuple[tuple[str, Constant], ...]]:
    """Each choice of one value for every constant; by name, since the JIT fallback gets the table sorted."""
    given = sorted(constants)
    names = [name for name, _ in given]
    return [tuple(zip(names, values, strict=True)) for values in itertools.product(*[values for _, values in given])]


def of_one_value(constants: Constants) -> frozenset[str]:
    """Return the constants that have one value alone, which a launch need not give."""
    return frozenset(name for name, values in constants if len(values) == 1)


def check(module: Module, absent: tuple[str, ...], kernels: str, besides: str = "") -> None:
    """Refuse what cannot be had of a module's kernels: the options `absent`, and whatever is linked.

    Args:
        module: The module.
        absent: Names of the options.
        kernels: What errors call its kernels.
        besides: The text of errors about other options.

    Raises:
        ConfigError: The table sets it.
    """
    plain = Options()
    for name in absent:
        default = getattr(plain, name)
        default = True if default is None else default
        if getattr(module.options, name) not in (default, None):
            key = name.replace("_", "-")
            message = (
                f"{module.key}.options.{key}: {kernels} have no such option here{besides}; set it back for this "
                f"module: options = {{ {key} = {json.dumps(default)} }}"
            )
            raise ConfigError(message)
    if module.link:
        message = f"{module.link[0].key}: nothing can be linked into {kernels}; remove it"
        raise ConfigError(message)


_LONGEST_REASON = 500
"""Characters of the reason for which a target lacks a kernel; compilers print what they compile."""


def left_out(unit: VariantUnit, error: CompileError) -> LeftOut:
    """Return the note of a kernel that its compiler refuses for a target."""
    lines = [line.strip() for line in str(error).removeprefix(f"{unit.head}: ").splitlines()]
    return LeftOut(error=error, reason="; ".join(filter(None, lines))[:_LONGEST_REASON])


def assembled(
    module: str, inputs: Sequence[LinkInput], assemble: Callable[[Sequence[LinkInput]], T]
) -> tuple[T, tuple[tuple[str, str], ...]]:
    """Return the image of a module's kernels, and the kernels that the assembler refuses by themselves, with reasons.

    Raises:
        CompileError: The assembler refuses all kernels, or none by itself.
    """
    try:
        return assemble(inputs), ()
    except CompileError:
        refused = {}
        for item in inputs:
            try:
                assemble([item])
            except CompileError as error:
                refused[item.name] = str(error).removeprefix(f"{module}: ").partition("\n")[0]
        kept = [item for item in inputs if item.name not in refused]
        if not refused or not kept:
            raise
    return assemble(kept), tuple(refused.items())
