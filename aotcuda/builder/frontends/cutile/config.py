"""Read the tables of the front end for cuTile: `@ct.kernel` functions and their variants.

cuTile's JIT compiles a kernel for properties of its arguments: dtype and number of dimensions of an array, divisibility
by 16 of its address, strides and extents, and values of constants. A build compiles all variants, and a launch selects
the most special one that its arguments fit.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from aotcuda.arch import Target
from aotcuda.builder.config import keys, rules
from aotcuda.builder.config.model import Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Choice, ListOf, TableOf, Text
from aotcuda.builder.frontends import variants
from aotcuda.builder.frontends.variants import Constant, VariantUnit
from aotcuda.common import scalar_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.model import Module

DIVISOR = 16
"""The divisor of cuTile's specialisation: bytes for addresses and strides, elements for extents."""

_NAMES = {name: "bool_" if name == "bool" else name for name in (*scalar_types.FORMATS, "bfloat16")}

ELEMENTS = {own: scalar_types.TYPE_STRINGS[name] for name, own in _NAMES.items()}
"""cuTile's names of numbers that arrays hold, with NumPy's type strings."""

SCALARS = {_NAMES[name]: form for name, form in scalar_types.FORMATS.items()}
"""cuTile's names of numbers that are passed by value, with their `struct` characters."""

_TYPE = re.compile(r"([a-z]\w*)(?:\[([:1, ]*)\])?(?::(16:16|16|any))?")
_SEPARATOR = re.compile(r",(?![^\[]*\])")
_MOST_DIMENSIONS = 5
"""The most dimensions of arrays with alignment: tensor maps of GPUs have no more."""

_OLDEST = (8, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of one argument.

    Attributes:
        scalar: cuTile's name of the number, or of an array's elements: `float32`.
        ndim: Number of dimensions of an array, 0 for a number.
        layout: Layout of an array: C or F for contiguous arrays, A for any strides.
        aligned: True if the address, and all strides but that of the contiguous dimension, are divisible by 16 bytes.
        even: True if also all extents are divisible by 16.
        open: True if the table has no hint, so that `specialise` decides.
    """

    scalar: str
    ndim: int = 0
    layout: str = "C"
    aligned: bool = False
    even: bool = False
    open: bool = True

    def __str__(self) -> str:
        if not self.ndim:
            return self.scalar
        axes = [":"] * self.ndim
        if self.layout != "A":
            axes[-1 if self.layout == "C" else 0] = "::1"
        hint = ":16:16" if self.even else ":16" if self.aligned else ""
        return f"{self.scalar}[{', '.join(axes)}]{hint}"

    @property
    def takes_hints(self) -> bool:
        """Return True if arguments of this type may have hints."""
        return 0 < self.ndim <= _MOST_DIMENSIONS and self.layout != "A"


def parse_signature(text: str) -> tuple[Type, ...]:
    """Return the types in a signature, `float32[:, ::1], float32[::1]:16, int32`.

    Raises:
        ValueError: A type in the signature is invalid; the text has the fact and the remedy.
    """
    return tuple(_type(part.strip()) for part in _SEPARATOR.split(text)) if text.strip() else ()


def _type(text: str) -> Type:
    match = _TYPE.fullmatch(text)
    name = match[1] if match else ""
    axes = [axis.strip() for axis in match[2].split(",")] if match and match[2] is not None else []
    names = ELEMENTS if axes else SCALARS
    if name == "bool":
        name = "bool_"
    if match is None or name not in names:
        message = (
            f"{keys.string(text)} is not a type; write {', '.join(SCALARS)}, or an array of these or of bfloat16, "
            "float32[:, ::1] or float32[::1], and, where its address, its strides (and its extents) are always "
            "divisible by 16, :16 (or :16:16) after it"
        )
        raise ValueError(message)
    units = [at for at, axis in enumerate(axes) if axis == "::1"]
    if any(axis not in (":", "::1") for axis in axes) or units not in ([], [0], [len(axes) - 1]):
        message = (
            f"{keys.string(text)} is not an array; write one colon for each dimension, and ::1 for the contiguous one"
        )
        raise ValueError(message)
    layout = "A" if axes and not units else "C" if units == [len(axes) - 1] or not axes else "F"
    hint = match[3] or ""
    result = Type(
        scalar=name,
        ndim=len(axes),
        layout=layout,
        aligned=hint.startswith("16"),
        even=hint == "16:16",
        open=not hint,
    )
    if hint and not result.takes_hints:
        message = (
            f"{keys.string(text)} has a hint, which only contiguous arrays of up to {_MOST_DIMENSIONS} dimensions can "
            f"have; leave :{hint} out"
        )
        raise ValueError(message)
    return result


Constants = tuple[tuple[str, tuple[Constant, ...]], ...]
"""The names of constants, each with the values that the build compiles variants for."""


@dataclass(frozen=True, slots=True)
class _ConstantShape:
    """The values of a constant: one, or a list."""

    expected: str = "a number, true or false, or a list of these"

    def read(self, value: object, key: Key) -> tuple[Constant, ...]:
        """Implement Shape.read."""
        values = value if isinstance(value, list | tuple) and value else [value]
        if not all(isinstance(item, int | float) for item in values):
            raise key.mismatch(self.expected, value)
        return tuple(map(variants.stable, values))

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        item = {"type": ["number", "boolean"]}
        return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel that the module offers for launching."""

    python: str = field(metadata=variants.path_setting("@ct.kernel", '"vector_add"'))
    signatures: tuple[tuple[Type, ...], ...] = field(
        metadata=setting(
            ListOf(
                item=Text("the types of the arguments, in one string", r"", parse_signature),
                expected="a signature or a list of signatures",
                shortest=1,
                single=True,
            ),
            "Types of the parameters that are not `ct.Constant`, in order: one signature or a list. `:16` says that an "
            "array's address and strides are divisible by 16 bytes, `:16:16` also its extents by 16, `:any` neither.",
            '"float32[:, ::1], float32[::1], int32"',
            alias="signature",
        )
    )
    specialise: str = field(
        default="auto",
        metadata=setting(
            Choice(("auto", "exact")),
            "`auto` makes three variants of an array without these: contiguous arrays as with `:16:16`, with `:16`, "
            "and with `:any`. `exact` compiles the signatures as they are.",
            '"exact"',
        ),
    )
    constants: Constants = field(
        default=(),
        metadata=setting(
            TableOf(
                name=variants.PARAMETER_NAME,
                value=_ConstantShape(),
                expected="a table of constants",
            ),
            "Values of `ct.Constant` parameters; with lists, a variant for each combination.",
            "{ TILE = [128, 1024] }",
        ),
    )
    overlap: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            ListOf(item=variants.PARAMETER_NAME, expected="a list of names of parameters"),
            "Parameters whose arrays may overlap each other, or be the same. The compiler assumes that all other "
            "arrays do not overlap, and launches check it.",
            '["x", "out"]',
        ),
    )


SHAPES = {
    "source": rules.PYTHON_MODULES,
    "kernels": rules.kernels(
        Record(cls=Kernel, expected="a signature, a list of signatures or a table", short="signatures")
    ),
}

EXAMPLES = {
    "kernels": '{ add = { signature = "float32[::1], float32[::1], float32[::1]", constants = { TILE = 256 } } }',
}

SECTIONS = (("A cuTile kernel", "kernels.vector_add", Kernel),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutileUnit(VariantUnit):
    """A kernel for one signature and one set of constants; a completed unit is for one specialisation.

    Attributes:
        types: Types of the parameters that are not constants.
        constants: Values of the constants, by name.
        overlap: Names of parameters whose arrays may overlap each other.
        chosen: The names of constants that a launch may omit.
        specialise: The value of the key `specialise`.
    """

    types: tuple[Type, ...]
    constants: tuple[tuple[str, Constant], ...]
    overlap: tuple[str, ...]
    chosen: frozenset[str]
    specialise: str


def check(module: Module) -> None:
    unsupported = ("fastmath", "fma", "lineinfo", "debug", "opt_level", "max_registers")
    variants.check_unsupported(module, unsupported, "cuTile's kernels", ", only those of @ct.kernel(...)")


modules = variants.source_modules


def target(wanted: Target) -> Target:
    """Implement Tables.target: from compute capability 9.0 on, tileiras makes code for one GPU architecture only.

    Raises:
        ValueError: tileiras has no code for the target; the text names another target.
    """
    if wanted.kind == "ptx":
        message = "cuTile's compiler makes machine code only; list sm_* targets"
        raise ValueError(message)
    if wanted.suffix == "f":
        message = f"cuTile's compiler makes no code for a family of GPUs; write sm_{wanted.major}{wanted.minor}"
        raise ValueError(message)
    if wanted.capability < _OLDEST:
        message = "cuTile's kernels run on GPUs of compute capability 8.0 and later; remove it"
        raise ValueError(message)
    return wanted if wanted.capability < (9, 0) else Target("sass", wanted.major, wanted.minor, "a")


def units(module: Module) -> list[CutileUnit]:
    return [unit for kernel in cast("tuple[Kernel, ...]", module.kernels) for unit in _kernel_units(module, kernel)]


def _kernel_units(module: Module, kernel: Kernel) -> list[CutileUnit]:
    # Sorted by name, because the JIT fallback reads a sorted table and must number variants alike.
    by_name = sorted(kernel.constants)
    names = [name for name, _ in by_name]
    sets = [tuple(zip(names, of_set, strict=True)) for of_set in itertools.product(*[values for _, values in by_name])]
    source, colon, path = kernel.python.rpartition(":")
    sources = (source,) if colon else modules(module)
    return [
        CutileUnit(
            key=kernel.key,
            signature_key=kernel.key,
            kind="kernel",
            module=module.name,
            name=kernel.name,
            symbol=f"{kernel.name}__{number}",
            options=module.options,
            origin=f"{sources[0]}:{path}",
            source=sources[0],
            python=path,
            sources=sources,
            specialise=kernel.specialise,
            signature=_signature_text(types, constants),
            chosen=frozenset(name for name, values in by_name if len(values) == 1),
            types=types,
            constants=constants,
            overlap=kernel.overlap,
        )
        for number, (types, constants) in enumerate(itertools.product(kernel.signatures, sets))
    ]


def _signature_text(types: Sequence[Type], constants: Sequence[tuple[str, Constant]]) -> str:
    """Return the signature of a variant for reports and errors: `void(float32[::1]:16, int32; TILE=256)`."""
    values = ", ".join(f"{name}={value!r}" for name, value in constants)
    return f"void({', '.join(map(str, types))}{'; ' if values else ''}{values})"


def specialize(unit: CutileUnit) -> list[CutileUnit]:
    """Return a unit for each specialisation, the most special first."""

    def with_hints(aligned: bool, even: bool) -> tuple[Type, ...]:
        return tuple(
            replace(item, aligned=aligned, even=even) if item.open and item.takes_hints else item for item in unit.types
        )

    hints = [(True, True), (True, False), (False, False)] if unit.specialise == "auto" else [(False, False)]
    specializations = list(dict.fromkeys(with_hints(*each) for each in hints))
    return [
        replace(unit, types=types, symbol=f"{unit.symbol}_{number}", signature=_signature_text(types, unit.constants))
        for number, types in enumerate(specializations)
    ]
