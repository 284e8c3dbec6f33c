"""Read a variants file: the variants of a module's kernels that a run launched, or that a user wrote.

The file is JSON; docs/files.md describes it. `aotcuda record --write` writes it. A file for another module, and a
variant that cannot be packaged, are ignored with a warning: Triton's JIT compiles missing variants.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

from aotcuda.builder.frontends.triton import type_notation
from aotcuda.builder.frontends.variants import stable
from aotcuda.common import foreign, triton_files
from aotcuda.manifest import constants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aotcuda import arch
    from aotcuda.builder.frontends.triton.type_notation import Type, Value

LARGEST = 256 << 20
"""The most bytes of a file: ten thousand variants take 5 MB."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


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
    release = value.get("triton", "")
    if not isinstance(release, str):
        _refuse("triton", "is not a string")
    return [_kernel(name, kernel) for name, kernel in value["kernels"].items()], foreign.escape(release)


def tuning_name(name: str) -> str:
    """Return the name of the tuning file of a variants file."""
    return f"{name.removesuffix('.json').removesuffix('.variants')}.tuning.json"


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
    _item(value, "kernels", dict, "")
    return value, data


def _kernel(name: str, value: Any) -> RecordedKernel:
    where = f"kernels.{foreign.escape(name)}"
    if not _NAME.fullmatch(name) or name.startswith("__"):
        _refuse(where, "is not a name of a kernel")
    python = _item(value, "python", str, where) if isinstance(value, dict) and "python" in value else name
    if not _PATH.fullmatch(python):
        _refuse(f"{where}.python", "is not a path of a function")
    parameters = _item(value, "parameters", list, where)
    if not all(isinstance(item, str) and item.isidentifier() for item in parameters):
        _refuse(f"{where}.parameters", "is not a list of names")
    left_out: dict[str, int] = {}
    variants: dict[str, Variant] = {}
    for at, item in enumerate(_item(value, "variants", list, where)):
        try:
            variant = _variant(item, f"{where}.variants[{at}]", parameters)
        except ValueError as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
        else:
            variants.setdefault(repr(variant), variant)
    return RecordedKernel(
        name=name,
        python=python,
        parameters=tuple(parameters),
        variants=tuple(variants.values()),
        left_out=left_out,
        sizes=_sizes(value, where, parameters),
        fixed=_names(value.get("fixed", []), f"{where}.fixed", parameters),
    )


def _sizes(kernel: dict[str, Any], where: str, parameters: list[str]) -> tuple[tuple[str, ...], ...] | None:
    """Return the sizes of a kernel, or None."""
    if "sizes" not in kernel:
        return None
    sizes = _item(kernel, "sizes", list, where)
    return tuple(_names(size, f"{where}.sizes[{at}]", parameters) for at, size in enumerate(sizes))


def _names(value: Any, where: str, parameters: list[str]) -> tuple[str, ...]:
    """Return a list of parameters of a kernel."""
    if not isinstance(value, list) or not all(name in parameters for name in value):
        _refuse(where, "is not a list of the kernel's parameters")
    return tuple(value)


def _variant(value: Any, where: str, parameters: list[str]) -> Variant:
    """Return a variant.

    Raises:
        ValueError: A type or a constant cannot be packaged.
    """
    types = _item(value, "types", list, where)
    constexprs = _item(value, "constexprs", dict, where)
    if not all(isinstance(item, str) for item in types):
        _refuse(f"{where}.types", "is not a list of types")
    if not constexprs.keys() <= {*parameters}:
        _refuse(f"{where}.constexprs", "has a name that the kernel's parameters lack")
    options = {}
    for name in value.keys() - {"types", "constexprs", "arch"}:
        is_valid = _OPTIONS.get(name)
        if is_valid is None or not is_valid(value[name]):
            _refuse(f"{where}.{foreign.escape(name)}", "is not an option with a possible value")
        options[name] = value[name]
    targets = _item(value, "arch", list, where) if "arch" in value else []
    try:
        arch = tuple(map(type_notation.code_target, targets))
    except (ValueError, TypeError, AttributeError):
        _refuse(f"{where}.arch", "is not a list of targets")
    return Variant(
        types=tuple(type_notation.parse_signature(", ".join(types))),
        constexprs=tuple(sorted((name, constant(item)) for name, item in constexprs.items())),
        options=options,
        arch=arch,
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


def _is_number(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= highest


_OPTIONS: Mapping[str, Callable[[Any], bool]] = {
    "num_warps": lambda value: type(value) is int and value in (1, 2, 4, 8, 16, 32),
    "num_stages": _is_number(0, 64),
    "num_ctas": _is_number(1, 16),
    "maxnreg": lambda value: value is None or (type(value) is int and 1 <= value <= 255),
    "enable_fp_fusion": lambda value: value is None or isinstance(value, bool),
    "launch_pdl": lambda value: isinstance(value, bool),
    "launch_cooperative_grid": lambda value: isinstance(value, bool),
}
"""Functions that test the value of a variant's option, by name of the option."""

_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string"}


def _item(table: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(table, dict) or not isinstance(table.get(key), kind):
        _refuse(f"{where}.{key}".lstrip("."), f"is not {_KINDS[kind]}")
    return table[key]


def _refuse(where: str, fact: str) -> NoReturn:
    message = f"{where} {fact}"
    raise UnusableError(message) from None
