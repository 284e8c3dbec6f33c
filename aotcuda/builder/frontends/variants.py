"""Read and compile kernels with variants: the code that the front ends of Triton and cuTile share.

The JIT compilers of Triton and cuTile compile a kernel for the arguments of its launches: their types, the values of
constants, and the divisibility of addresses and integers. A build does not see launches. Its front ends make a unit for
each signature and set of constants in the table, and complete each unit to one unit for each specialisation.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import Options
from aotcuda.builder.config.settings import setting
from aotcuda.builder.config.shapes import Text
from aotcuda.builder.frontends.protocol import LeftOut
from aotcuda.builder.frontends.python_source import PythonUnit
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Module
    from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput

T = TypeVar("T")

Constant = int | float | bool | str
"""The value of a constant, as TOML can write it."""


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


def path_setting(decorator: str, example: str) -> Mapping[str, Any]:
    """Return the settings of the key `python`: the path of a kernel in the source modules."""
    return setting(
        rules.PYTHON_PATH,
        f"The `{decorator}` function in `source`; `package.module:object.attribute` for one that objects hold.",
        example,
        default="the kernel's name",
        from_name=True,
    )


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
