"""Find the function of a kernel in its source module, and compare it with the table."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotcuda.builder.config import keys
from aotcuda.builder.frontends import python_source
from aotcuda.builder.frontends.triton import type_notation
from aotcuda.builder.frontends.variants import stable
from aotcuda.common import kernel_digest, object_path
from aotcuda.errors import CompileError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.builder.frontends.triton.type_notation import Value
    from aotcuda.common.heuristics import Question

DIVISOR = 16
"""The divisor of Triton's specialisation of pointers and integers."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The function of a kernel in its source module.

    Attributes:
        function: The `JITFunction`.
        tuned: The constexprs that `@triton.autotune` chooses; None without an autotuner.
        computed: The arguments that `@triton.heuristics` computes, in Triton's order, each with its condition if it
            only tests another argument for None.
        digest: The digest of the kernel, for a pack.
        problem: The reason for which a pack cannot have the kernel; may be empty.
    """

    function: Any
    tuned: frozenset[str] | None
    computed: Mapping[str, Question | None]
    digest: str = ""
    problem: str = ""


def decorators_on_path(unit: TritonUnit, root: str) -> list[Any]:
    """Return the objects on the path of a kernel: `name` and `name.fn` of `name.fn.fn`."""
    names = object_path.split(unit.python)
    paths = [object_path.join(names[:at]) for at in range(1, len(names)) if names[at] == "fn"]
    return [python_source.find(replace(unit, python=path), unit.sources, root)[1] for path in paths]


def check_function(unit: TritonUnit, name: str, function: Any) -> None:
    """Check that the object inside all decorators is a function of `@triton.jit` that can be packaged.

    Raises:
        SourceError: The object cannot be packaged.
    """
    from triton.runtime import JITFunction  # noqa: PLC0415 (only workers have Triton)

    if not isinstance(function, JITFunction) or function.is_gluon():
        kind = "a kernel of Gluon" if isinstance(function, JITFunction) else f"of type {type(function).__qualname__}"
        message = (
            f"{unit.key}: {name} is {kind}, and no function with @triton.jit; decorate it, or name another function"
        )
        raise SourceError(message)
    if getattr(function, "debug", None):
        message = f"{unit.key}: {name} has debug=True, and packaged kernels have no device_assert; leave debug out"
        raise SourceError(message)


def check_hooks(unit: TritonUnit, name: str, tuners: Sequence[Any], function: Any) -> None:
    """Check that a kernel has no hooks, because only launches by Triton call hooks.

    Raises:
        SourceError: The kernel has hooks.
    """
    if getattr(function, "pre_run_hooks", None):
        message = (
            f"{unit.key}: {name} has launch hooks (add_pre_run_hook), which packaged launches do not call; remove them"
        )
        raise SourceError(message)
    hooks = [config.pre_hook for tuner in tuners for config in tuner.configs if getattr(config, "pre_hook", None)]
    if hooks or any(getattr(tuner, "user_defined_pre_hook", False) is True for tuner in tuners):
        message = (
            f"{unit.key}: {name} has a pre_hook in its configs, which Triton calls before each launch and "
            "packaged launches do not call; do its work in the program, and remove it"
        )
        raise SourceError(message)


def disabled_hints(parameter: Any) -> frozenset[int]:
    """Return the hints that the source switches off for an argument."""
    hints = {1, DIVISOR} if parameter.do_not_specialize else set()
    if parameter.do_not_specialize_on_alignment:
        hints.add(DIVISOR)
    if parameter.annotation_type:
        hints.add(1)  # the argument keeps its type
    return frozenset(hints)


def digest(function: Any, computed: Mapping[str, Question | None]) -> tuple[str, str]:
    """Return the digest of a kernel, and the reason for which it has none; one of the two is empty."""
    try:
        return kernel_digest.digest(function, computed), ""
    except kernel_digest.UndescribableError as error:
        return "", f"{function.fn.__module__}.{function.fn.__qualname__} reads {error}"


def definition(function: Any) -> str:
    """Return module, name and first line of the Python function: `mypkg.ops.norm:norm_fwd:12`."""
    python = function.fn
    return f"{python_source.home(python)}:{python.__qualname__}:{python.__code__.co_firstlineno}"


def check(unit: TritonUnit, loaded: Loaded) -> None:
    """Compare the table with the function's parameters.

    Raises:
        CompileError: A type differs from its annotation.
    """
    function = loaded.function
    names = tuple(parameter.name for parameter in function.params)
    if unit.parameters is not None and unit.parameters != names:
        message = (
            f"{unit.key}: {unit.python} has other parameters than when it was recorded: {', '.join(names)}; "
            "record it again: aotcuda record --write -- COMMAND"
        )
        raise CompileError(message)
    plain = [parameter.name for parameter in function.params if not parameter.is_constexpr]
    constexprs = [parameter.name for parameter in function.params if parameter.is_constexpr]
    values = dict(unit.constexprs)
    if len(plain) != len(unit.types):
        text = ", ".join(kind.plain for kind in unit.types) or "nothing"
        message = (
            f"{unit.key}.signature: {text!r} has {len(unit.types)} types, and "
            f"{unit.python} takes {len(plain)} arguments that are not constexprs: {', '.join(plain) or 'none'}"
        )
        without = [name for name in constexprs if name not in values]
        if without and any(kind.scalar == type_notation.NOTHING for kind in unit.types):
            message += f'; None for a constexpr is constexprs = {{ {without[0]} = "{type_notation.NONE}" }}'
        raise CompileError(message)
    _check_annotations(unit, function)
    for name in values:
        if name not in constexprs:
            near = difflib.get_close_matches(name, [item for item in constexprs if item not in values], n=1)
            hint = f"its constexprs are {', '.join(constexprs)}" if constexprs else "it has none"
            hint = f"did you mean {near[0]}?" if near and name not in plain else hint
            fact = "an argument" if name in plain else "no parameter"
            message = f"{unit.key}.constexprs.{name}: {name} is {fact} of {unit.python}, and no tl.constexpr; {hint}"
            raise CompileError(message)
    for parameter in function.params:
        if parameter.is_constexpr and parameter.name not in values and not is_constant(parameter):
            is_tuned = loaded.tuned is not None and parameter.name in loaded.tuned
            where = ", or package the kernel in place, where autotuners work" if is_tuned else ""
            message = (
                f"{unit.key}.constexprs: {parameter.name} is missing, a tl.constexpr of {unit.python}; "
                f"write for example constexprs = {{ {parameter.name} = 128 }}{where}"
            )
            raise CompileError(message)


def _check_annotations(unit: TritonUnit, function: Any) -> None:
    """Compare the types with annotations in the source, which Triton's JIT uses for all arguments.

    Raises:
        CompileError: A type differs from its annotation.
    """
    plain = [parameter for parameter in function.params if not parameter.is_constexpr]
    for kind, parameter in zip(unit.types, plain, strict=True):
        wanted = parameter.annotation_type
        if wanted and kind.plain.replace("u1", "i1") != wanted.replace("u1", "i1"):
            message = (
                f"{unit.key}.signature: {keys.string(kind.plain)} stands for {parameter.name}, which {unit.python} "
                f"annotates as {wanted}; write {wanted}, or remove the annotation"
            )
            raise CompileError(message)


def is_constant(parameter: Any) -> bool:
    """Return True if a parameter has a default that is a constant."""
    return parameter.has_default and _is_plain(default_value(parameter))


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, int | float | str | None)


def default_value(parameter: Any) -> Any:
    """Return the default in the source; types are in the table's notation."""
    import triton.language as tl  # noqa: PLC0415 (only workers have Triton)

    return _in_notation(parameter.default, tl)


def _in_notation(value: Any, tl: Any) -> Any:
    """Return a constant in the table's notation; a subclass of a number or a string is its plain value."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return next((f"tl.{name}" for name in type_notation.DTYPES if getattr(tl, name, None) == value), value)
    if isinstance(value, tuple):
        return tuple(_in_notation(item, tl) for item in value)
    if f"{type(value).__module__}.{type(value).__name__}" == "torch.dtype":
        return str(value)
    for kind in (int, float, str):
        if isinstance(value, kind) and not isinstance(value, bool):
            return stable(kind(value) if kind is not str else str.__str__(value))
    return value


def constants(unit: TritonUnit, function: Any) -> dict[str, Value]:
    """Return the value of each constexpr: the value in the table, or the default in the source."""
    values: dict[str, Value] = dict(unit.constexprs)
    for parameter in function.params:
        if parameter.is_constexpr and parameter.name not in values:
            values[parameter.name] = default_value(parameter)
    return values
