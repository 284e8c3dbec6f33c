"""Read the tables of kernels with variants: the code that the front ends of Triton and cuTile share.

The JIT compilers of Triton and cuTile compile a kernel for the arguments of its launches: their types, the values of
constants, and the divisibility of addresses and integers. A build does not see launches. Its front ends make a unit for
each signature and set of constants in the table, and complete each unit to one unit for each specialisation.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import Options
from aotcuda.builder.config.settings import setting
from aotcuda.builder.config.shapes import Choice, ListOf, Text
from aotcuda.builder.frontends.protocol import LeftOut
from aotcuda.builder.frontends.python_source import PythonUnit
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from aotcuda.arch import Target
    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.model import Module
    from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput

T = TypeVar("T")

Constant = int | float | bool | str
"""The value of a constant, as TOML can write it."""

Constants = tuple[tuple[str, tuple[Constant, ...]], ...]
"""The names of constants, each with the values that the build compiles variants for."""


class Nan(float):
    """Not a number. It equals itself, so that units that have it as a constant can be compared and be keys."""

    __slots__ = ()

    def __new__(cls) -> Self:
        """Return the number."""
        return super().__new__(cls, "nan")

    def __reduce__(self) -> tuple[type[Nan], tuple[()]]:
        return Nan, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nan)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Nan)

    def __hash__(self) -> int:
        return hash(Nan)


def stable(value: T) -> T:
    """Return a constant that equals itself: `Nan` for a float that is not a number."""
    return cast("T", Nan()) if isinstance(value, float) and math.isnan(value) else value


def plain_number(value: float) -> int | float:
    """Return the number of an object of a subclass of int or float, such as `Nan` or a member of an enumeration."""
    return int(value) if isinstance(value, int) else float("nan") if math.isnan(value) else float(value)


PARAMETER_NAME = Text("the name of a parameter", r"^[^\W\d]\w*$", rules.python_name)


@dataclass(frozen=True, slots=True)
class ConstantShape:
    """The value of a constant, or a list of values: numbers, and the strings that `accepts_string` accepts.

    Attributes:
        expected: See Shape.
        accepts_string: A function that returns a true value for a valid string; None if strings are invalid.
    """

    expected: str
    accepts_string: Callable[[str], object] | None = None

    def read(self, value: object, key: Key) -> tuple[Constant, ...]:
        """Implement Shape.read."""
        values = value if isinstance(value, list | tuple) and value else [value]
        if not all(isinstance(item, int | float) or self._is_valid_string(item) for item in values):
            raise key.mismatch(self.expected, value)
        return tuple(map(stable, values))

    def _is_valid_string(self, value: object) -> bool:
        return self.accepts_string is not None and isinstance(value, str) and bool(self.accepts_string(value))

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        item = {"type": ["number", *(["string"] if self.accepts_string else []), "boolean"]}
        return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def path_setting(decorator: str, example: str) -> Mapping[str, Any]:
    """Return the settings of the key `python`: the path of a kernel in the source modules."""
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
    """Return the settings of the key `signatures`; `parse` reads one signature."""
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
    """A kernel for one signature and one set of constants; a completed unit is for one specialisation.

    Attributes:
        sources: The source modules that may define the kernel.
    """

    sources: tuple[str, ...]


def source_modules(module: Module) -> tuple[str, ...]:
    """Return the source modules of a module; all of them are Python modules."""
    return cast("tuple[str, ...]", module.source)


def combinations(constants: Constants) -> list[tuple[tuple[str, Constant], ...]]:
    """Return all combinations of one value for each constant.

    The constants are sorted by name, because the JIT fallback reads a sorted table and must number variants alike.
    """
    by_name = sorted(constants)
    names = [name for name, _ in by_name]
    return [tuple(zip(names, values, strict=True)) for values in itertools.product(*[values for _, values in by_name])]


def single_valued(constants: Constants) -> frozenset[str]:
    """Return the names of the constants that have only one value. A launch may omit them."""
    return frozenset(name for name, values in constants if len(values) == 1)


def check_unsupported(module: Module, options: tuple[str, ...], kernels: str, exception: str = "") -> None:
    """Check that a module sets none of the unsupported `options`, and that it links nothing.

    Args:
        module: The module.
        options: The names of the options that the front end does not support.
        kernels: The name of the module's kernels in errors, such as "Triton's kernels".
        exception: The end of an error's fact that says where options can be set instead; may be empty.

    Raises:
        ConfigError: The module sets an unsupported option, or links something.
    """
    plain = Options()
    for name in options:
        default = getattr(plain, name)
        default = True if default is None else default
        if getattr(module.options, name) not in (default, None):
            key = name.replace("_", "-")
            message = (
                f"{module.key}.options.{key}: {kernels} do not have this option{exception}; restore its "
                f"default: options = {{ {key} = {json.dumps(default)} }}"
            )
            raise ConfigError(message)
    if module.link:
        message = f"{module.link[0].key}: nothing can be linked into {kernels}; remove it"
        raise ConfigError(message)


_LONGEST_REASON = 500
"""The most characters of the reason for which a target lacks a kernel; compilers print whole programs."""


def compile_each(
    unit: VariantUnit, targets: Iterable[Target], compile_for: Callable[[Target], CompiledKernel]
) -> dict[Target, CompiledKernel | LeftOut]:
    """Compile a kernel for each target; the result has stand-ins for targets for which it cannot be compiled."""
    compiled: dict[Target, CompiledKernel | LeftOut] = {}
    for target in targets:
        try:
            compiled[target] = compile_for(target)
        except CompileError as error:
            lines = [line.strip() for line in str(error).removeprefix(f"{unit.head}: ").splitlines()]
            compiled[target] = LeftOut(error=error, reason="; ".join(filter(None, lines))[:_LONGEST_REASON])
    return compiled


def assemble_kernels(
    module: str, inputs: Sequence[LinkInput], assemble: Callable[[Sequence[LinkInput]], T]
) -> tuple[T, tuple[tuple[str, str], ...]]:
    """Assemble the kernels of a module to one image, without kernels that the assembler cannot assemble.

    Returns:
        The image, and the names of the kernels that it lacks, each with the assembler's reason.

    Raises:
        CompileError: The assembler fails for each single kernel, or only for all kernels together.
    """
    try:
        return assemble(inputs), ()
    except CompileError:
        failures = {}
        for item in inputs:
            try:
                assemble([item])
            except CompileError as error:
                failures[item.name] = str(error).removeprefix(f"{module}: ").partition("\n")[0]
        assembled = [item for item in inputs if item.name not in failures]
        if not failures or not assembled:
            raise
    return assemble(assembled), tuple(failures.items())
