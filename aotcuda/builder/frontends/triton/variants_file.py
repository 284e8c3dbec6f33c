"""Read a variants file: the variants of a module's kernels that a run launched, or that a user wrote.

The file is JSON; docs/files.md describes it. `aotcuda record --write` writes it. A file for another module, and a
variant that cannot be packaged, are ignored with a warning: Triton's JIT compiles missing variants.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, cast

from aotcuda.builder.frontends.triton import type_notation
from aotcuda.builder.frontends.variants import stable
from aotcuda.common import declared, foreign, object_path, triton_files
from aotcuda.common.declared import Integer, ListOf, Named, OneOf, Text
from aotcuda.manifest import constants

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from aotcuda import arch
    from aotcuda.builder.frontends.triton.type_notation import Type, Value

LARGEST = 256 << 20
"""The most bytes of a file: ten thousand variants take 5 MB."""

_OPTION = "an option with a possible value"
_Flag = Annotated[bool, OneOf(False, True, name=_OPTION)]


def _is_target(text: object) -> bool:
    try:
        return bool(type_notation.code_target(text))  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        return False


class _Variant(TypedDict):
    """A variant in the file; its options have Triton's names."""

    types: Annotated[list[str], ListOf(lambda item: type(item) is str, "a list of types")]
    constexprs: dict[str, object]
    arch: NotRequired[Annotated[list[str], ListOf(_is_target, "a list of targets")]]
    num_warps: NotRequired[Annotated[int, OneOf(1, 2, 4, 8, 16, 32, name=_OPTION)]]
    num_stages: NotRequired[Annotated[int, Integer(65, name=_OPTION)]]
    num_ctas: NotRequired[Annotated[int, Integer(17, start=1, name=_OPTION)]]
    maxnreg: NotRequired[Annotated[int, Integer(256, start=1, name=_OPTION)] | None]
    enable_fp_fusion: NotRequired[_Flag | None]
    launch_pdl: NotRequired[_Flag]
    launch_cooperative_grid: NotRequired[_Flag]


class _Kernel(TypedDict):
    """A kernel in the file."""

    python: NotRequired[Annotated[str, Text(object_path.PATTERN, "a path of a function")]]
    parameters: Annotated[list[str], ListOf(lambda item: type(item) is str and item.isidentifier(), "a list of names")]
    variants: list[_Variant]
    sizes: NotRequired[list[list[str]]]
    fixed: NotRequired[list[str]]


class _Tuning(TypedDict):
    """A tuning file, which the run time reads."""

    kernels: dict[str, object]


class _File(TypedDict):
    """A variants file."""

    triton: NotRequired[str]
    kernels: Annotated[dict[str, _Kernel], Named(Text(r"(?!__)[A-Za-z_]\w*", "a name of a kernel"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant of a kernel in the file.

    Attributes:
        types: Types of the arguments that are not constexprs.
        constexprs: Values of constexprs.
        options: Triton's options in the file, by name.
        arch: Its targets; empty for all.
    """

    types: tuple[Type, ...]
    constexprs: tuple[tuple[str, Value], ...]
    options: Mapping[str, Any]
    arch: tuple[arch.Target, ...]

    @property
    def constants_and_options(self) -> tuple[object, ...]:
        """Return all that variants have in common that differ in types alone."""
        return (self.constexprs, sorted(self.options.items()), self.arch)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel:
    """One kernel of the file.

    Attributes:
        name: Its name.
        python: The path of the `@triton.jit` function, or of a decorator's object around it.
        parameters: All parameters of the function when the file was written.
        variants: Its variants.
        left_out: Reasons for which variants cannot be packaged, each with the number of variants.
        sizes: Sets of integer parameters whose values varied together in the recorded launches, those with the most
            values first; None if the file does not have them.
        fixed: Integer constexprs whose recorded values alone are packaged, although users may launch with others.
    """

    name: str
    python: str
    parameters: tuple[str, ...]
    variants: tuple[Variant, ...]
    left_out: Mapping[str, int]
    sizes: tuple[tuple[str, ...], ...] | None = None
    fixed: tuple[str, ...] = ()


class UnusableError(Exception):
    """A file that is damaged or for another module; the text is the fact, with its place in the file."""


def read(path: Path, sources: tuple[str, ...]) -> tuple[list[RecordedKernel], str]:
    """Return the kernels of a file, and the release of Triton by which they were recorded; it may be empty.

    Args:
        path: The file.
        sources: The modules that the file may be for.

    Raises:
        UnusableError: The file cannot be read, is damaged, or has another version or module.
    """
    value, _ = _read_json(path, triton_files.VARIANTS, sources)
    if (problem := next(declared.problems(value, _File), None)) is not None:
        raise UnusableError(problem)
    return [_kernel(name, kernel) for name, kernel in value["kernels"].items()], foreign.escape(value.get("triton", ""))


def read_tuning(path: Path, sources: tuple[str, ...]) -> bytes:
    """Return the content of a tuning file, which the run time reads.

    Raises:
        UnusableError: As for `read`.
    """
    _, data = _read_json(path, triton_files.TUNING, sources)
    return data


def _read_json(path: Path, form: str, sources: tuple[str, ...]) -> tuple[Any, bytes]:
    """Return the JSON value of a file, and its content.

    Raises:
        UnusableError: The file cannot be read, is damaged, or has another form, version or module.
    """
    try:
        data = foreign.content(path, LARGEST)
        value = json.loads(data)
    except foreign.UnreadableError as error:
        raise UnusableError(str(error)) from None
    except (ValueError, RecursionError) as error:
        message = f"it is not JSON ({str(error)[:100]})"
        raise UnusableError(message) from None
    problem = triton_files.mismatch(value, form, sources)
    if problem is not None:
        raise UnusableError(problem)
    if (problem := next(declared.problems(value, _Tuning), None)) is not None:
        raise UnusableError(problem)
    return value, data


def _kernel(name: str, value: _Kernel) -> RecordedKernel:
    where = f"kernels.{name}"
    parameters = value["parameters"]
    left_out: dict[str, int] = {}
    variants: dict[str, Variant] = {}
    for at, item in enumerate(value["variants"]):
        try:
            variant = _variant(item, f"{where}.variants[{at}]", parameters)
        except ValueError as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
        else:
            variants.setdefault(repr(variant), variant)
    sizes = value.get("sizes")
    for at, size in enumerate(sizes or ()):
        _check_names(size, f"{where}.sizes[{at}]", parameters)
    _check_names(value.get("fixed", ()), f"{where}.fixed", parameters)
    return RecordedKernel(
        name=name,
        python=value.get("python", name),
        parameters=tuple(parameters),
        variants=tuple(variants.values()),
        left_out=left_out,
        sizes=None if sizes is None else tuple(map(tuple, sizes)),
        fixed=tuple(value.get("fixed", ())),
    )


def _check_names(names: Iterable[str], where: str, parameters: list[str]) -> None:
    if not {*parameters}.issuperset(names):
        message = f"{where} is not a list of the kernel's parameters"
        raise UnusableError(message)


def _variant(value: _Variant, where: str, parameters: list[str]) -> Variant:
    """Return a variant.

    Raises:
        UnusableError: The variant has an unknown key, or a constexpr that is no parameter.
        ValueError: A type or a constant cannot be packaged.
    """
    if not {*parameters}.issuperset(value["constexprs"]):
        message = f"{where}.constexprs has a name that the kernel's parameters lack"
        raise UnusableError(message)
    if unknown := min(value.keys() - _Variant.__annotations__.keys(), default=None):
        message = f"{where}.{foreign.escape(unknown)} is not {_OPTION}"
        raise UnusableError(message)
    return Variant(
        types=tuple(type_notation.parse_signature(", ".join(value["types"]))),
        constexprs=tuple(sorted((name, constant(item)) for name, item in value["constexprs"].items())),
        options={name: item for name, item in value.items() if name not in ("types", "constexprs", "arch")},
        arch=tuple(map(type_notation.code_target, value.get("arch", ()))),
    )


def constant(value: Any) -> Value:
    """Return a constexpr of a unit from JSON.

    A type is `{"dtype": "float16"}` or `{"torch": "float16"}`, a float that JSON lacks is `{"float": "inf"}`, and a
    tuple is a list.

    Raises:
        ValueError: The value cannot be packaged.
    """
    if isinstance(value, list):
        return tuple(map(constant, value))
    if isinstance(value, dict) and len(value) == 1:
        ((kind, name),) = value.items()
        if kind == "dtype" and name in type_notation.DTYPES:
            return f"tl.{name}"
        if kind == "torch" and isinstance(name, str) and type_notation.is_torch_dtype(f"torch.{name}"):
            return f"torch.{name}"
    fact = ""
    if isinstance(value, dict):
        number = constants.decode(value)
        fact = foreign.escape(json.dumps(value))[:80] if isinstance(number, dict) else ""
        value = number
    elif isinstance(value, str) and value.startswith(type_notation.TYPE_PREFIXES):
        fact = f"the string {foreign.escape(repr(value))[:80]}, which stands for a type"
    if fact:
        message = f"a constexpr is {fact}"
        raise ValueError(message)
    return cast("Value", stable(value))
