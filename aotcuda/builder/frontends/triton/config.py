"""Read Triton's part of `[tool.aotcuda]`: `@triton.jit` functions and their variants.

Triton's JIT compiles a variant of a kernel for the types, hints, constants and options of a launch. A build compiles
the variants that a table or a variants file lists, and general ones, which serve launches with other integers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotcuda.builder.config import rules
from aotcuda.builder.config.model import FMA, Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Flag, Integer, ListOf, TableOf, Text
from aotcuda.builder.frontends import variants
from aotcuda.builder.frontends.protocol import Recorded
from aotcuda.builder.frontends.triton import general, type_notation, variants_file
from aotcuda.builder.frontends.triton.variants_file import RecordedKernel, Variant
from aotcuda.builder.frontends.variants import VariantUnit
from aotcuda.common import triton_files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from aotcuda.arch import Target
    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.model import Module
    from aotcuda.builder.frontends.triton.type_notation import Type, Value

OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
"""The options that a launch may name, as in Triton, with their defaults."""

_SWITCHES: dict[str, bool | None] = {
    "enable_fp_fusion": None,
    "launch_pdl": False,
    "launch_cooperative_grid": False,
}
ALL_OPTIONS: dict[str, int | bool | None] = {**OPTIONS, "maxnreg": None, **_SWITCHES}
"""All options of a variant, with their defaults."""

MOST_IN_IMAGE = 16
"""The most variants in one image. The assembler takes an image at once: 154 variants took it 5 minutes and 4.5 GB."""

_AS_VARIANTS = (
    "write a list of tables, one for each variant, or have the variants recorded: aotcuda record --write -- COMMAND"
)
_REMOVED = ("configs", "when", "specialise", "signatures")
"""Keys of tables before variants had one format."""


@dataclass(frozen=True, slots=True)
class _Constexpr:
    """The value of a constexpr."""

    expected: str = type_notation.CONSTANT

    def read(self, value: object, key: Key) -> Value:
        """Implement Shape.read."""
        if isinstance(value, list | tuple):
            problem = f"{list(value)!r} is a list of values, and a table is one variant"
            raise key.error(problem, _AS_VARIANTS)
        if not isinstance(value, int | float | str):
            raise key.mismatch(self.expected, value)
        try:
            return type_notation.table_constant(value)
        except ValueError as error:
            raise key.error(str(error), "") from None

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        return {"type": ["number", "string", "boolean"]}


_CONSTEXPRS = TableOf(name=variants.PARAMETER_NAME, value=_Constexpr(), expected="a table of constexprs")
_WARPS = (1, 2, 4, 8, 16, 32)
_FLAG = Flag()
_TARGETS = ListOf(
    item=Text("a target, such as sm_90", r"^(sm|compute)_", type_notation.code_target),
    expected="a list of targets",
    shortest=1,
)
_ARCH = "The targets of `arch` for which it is compiled."
_PDL = "Launches are programmatic dependent launches: they may begin before the previous kernel has ended."
_COOPERATIVE = "Launches are cooperative: all blocks of the grid run at the same time."


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTable:
    """A variant of a kernel in a table, or three variants if its signature has no hints."""

    key: str
    python: str = field(metadata=variants.path_setting("@triton.jit", '"add_kernel"'))
    signature: tuple[Type, ...] = field(
        metadata=setting(
            Text("the types of the arguments, in one string", r"", type_notation.parse_signature),
            "Types of the arguments that are not constexprs, in order, in Triton's notation. `:16` and `:1` are "
            "Triton's specialisations of an argument. A signature without them gives three variants: pointers and "
            "integers divisible by 16, pointers alone, and neither.",
            '"*fp32, *fp32, *fp32, i32"',
        )
    )
    constexprs: tuple[tuple[str, Value], ...] = field(
        default=(), metadata=setting(_CONSTEXPRS, "Values of constexprs.", "{ BLOCK = 1024 }")
    )
    num_warps: int = field(
        default=OPTIONS["num_warps"], metadata=setting(Integer(1, 32), "Warps of a block: a power of two.", "8")
    )
    num_stages: int = field(
        default=OPTIONS["num_stages"], metadata=setting(Integer(0, 64), "Stages of software pipelines.", "4")
    )
    num_ctas: int = field(default=OPTIONS["num_ctas"], metadata=setting(Integer(1, 16), "Blocks of a cluster.", "2"))
    maxnreg: int = field(
        default=0,
        metadata=setting(Integer(0, 255), "Registers a thread may use.", "128", default="`max-registers`"),
    )
    fma: bool | None = field(default=None, metadata=FMA)
    launch_pdl: bool = field(default=False, metadata=setting(_FLAG, _PDL, "true"))
    launch_cooperative_grid: bool = field(default=False, metadata=setting(_FLAG, _COOPERATIVE, "true"))
    arch: tuple[Target, ...] = field(default=(), metadata=setting(_TARGETS, _ARCH, '["sm_90"]', default="all of them"))

    def variants(self) -> list[Variant]:
        """Return its variants as a variants file has them."""
        options: dict[str, int | bool | None] = {name: getattr(self, name) for name in OPTIONS}
        if self.maxnreg:
            options["maxnreg"] = self.maxnreg
        if self.fma is not None:
            options["enable_fp_fusion"] = self.fma
        options |= {name: True for name in ("launch_pdl", "launch_cooperative_grid") if getattr(self, name)}
        return [
            Variant(types=types, constexprs=tuple(sorted(self.constexprs)), options=options, arch=self.arch)
            for types in _hinted(self.signature)
        ]


def _hinted(types: tuple[Type, ...]) -> list[tuple[Type, ...]]:
    """Return the specialisations of a signature without hints, the most special first; or the signature itself."""
    if any(item.hint for item in types):
        return [types]

    def with_hints(pointers: int, integers: int) -> tuple[Type, ...]:
        return tuple(
            replace(item, hint=pointers if item.pointer else integers) if item.takes_hints else item for item in types
        )

    return list(dict.fromkeys(with_hints(*each) for each in [(16, 16), (16, 0), (0, 0)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel that the module offers for launching.

    Attributes:
        python: The path of its function in the source modules.
        tables: The tables of its variants.
    """

    python: str
    tables: tuple[VariantTable, ...]


@dataclass(frozen=True, slots=True)
class _KernelShape:
    """The value of a kernel's key: a signature, a table, or a list of these."""

    expected: str = "a signature or a table, or a list of these, one for each variant"
    table: Record = field(
        default_factory=lambda: Record(cls=VariantTable, expected="a signature or a table", short="signature")
    )

    def read(self, value: object, key: Key) -> Kernel:
        """Implement Shape.read."""
        is_list = isinstance(value, list | tuple)
        items = list(cast("Sequence[object]", value)) if is_list else [value]
        if not items or not all(isinstance(item, str | Mapping) for item in items):
            raise key.mismatch(self.expected, value)
        tables = []
        for number, item in enumerate(items):
            place = key.item(number) if is_list else key
            if isinstance(item, Mapping):
                _refuse_several(item, place)
            tables.append(self.table.read(item, place))
        for table in tables[1:]:
            if table.python != tables[0].python:
                message = (
                    f"{table.key}.python: {table.python} is another function than {tables[0].python} of "
                    f"{tables[0].key}; give it a kernel of its own"
                )
                raise ConfigError(message)
        return Kernel(key=str(key), name=key.name, python=tables[0].python, tables=tuple(tables))

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        item = self.table.schema()
        return {"anyOf": [*item["anyOf"], {"type": "array", "items": item, "minItems": 1}]}


def _refuse_several(table: Mapping[Any, object], key: Key) -> None:
    """Refuse the keys and lists that stood for several variants before variants had one format.

    Raises:
        ConfigError: The table has one of them.
    """
    for name, value in table.items():
        if name in _REMOVED:
            problem = "tables of Triton's kernels have this key no longer"
            raise key.child(name).error(problem, _AS_VARIANTS)
        if name in ("num-warps", "num-stages") and isinstance(value, list):
            problem = f"{value} is a list of values, and a table is one variant"
            raise key.child(name).error(problem, _AS_VARIANTS)


SHAPES = {
    "source": rules.PYTHON_MODULES,
    "variants": rules.VARIANTS_PATH,
    "pack": _FLAG,
    "pack-from": Text("the path of a folder"),
    "general": _FLAG,
    "kernels": rules.kernels(_KernelShape()),
}

EXAMPLES = {
    "kernels": '{ add = { signature = "*fp32, *fp32, *fp32, i32", constexprs = { BLOCK = 256 } } }',
}

SECTIONS = (("A variant of a Triton kernel", "kernels.matmul", VariantTable),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonUnit(VariantUnit):
    """A variant of a kernel.

    Attributes:
        types: Types of the arguments that are not constexprs.
        constexprs: Values of constexprs, by name.
        num_warps, num_stages, num_ctas, maxnreg: Triton's options; with maxnreg 0 the module's `max-registers`.
        enable_fp_fusion, launch_pdl, launch_cooperative_grid: Options of the launch; enable_fp_fusion may be None.
        parameters: The function's parameters in the variants file; None for a kernel of the table.
        in_place: True if its module is packaged in place.
        pack: True if its module belongs to a pack.
        shared: In a generated module, constexprs with one value in all variants; launches may omit them.
        shared_options: In a generated module, options with one value in all variants.
        fixed: Integer constexprs whose values in the variants file are all that is packaged, and users may vary.
        earlier: The types of the variants of the kernel with the same constants and options that come before it.
    """

    types: tuple[Type, ...]
    constexprs: tuple[tuple[str, Value], ...]
    num_warps: int
    num_stages: int
    num_ctas: int
    maxnreg: int
    enable_fp_fusion: bool | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    parameters: tuple[str, ...] | None = None
    in_place: bool = False
    pack: bool = False
    shared: tuple[tuple[str, Value], ...] = ()
    shared_options: tuple[tuple[str, Value], ...] = ()
    fixed: tuple[str, ...] = ()
    earlier: tuple[tuple[Type, ...], ...] = ()

    def __hash__(self) -> int:
        """Return a hash of the symbol, which is unique in a module; hashing all fields of many units takes seconds."""
        return hash((self.module, self.symbol))

    @property
    def has_descriptors(self) -> bool:
        """Return True if an argument is a tensor descriptor."""
        return any(kind.block for kind in self.types)

    @property
    def launch_options(self) -> dict[str, int | bool | None]:
        """Return the options that a launch may name, with their values."""
        return {name: getattr(self, name) for name in ALL_OPTIONS} | {"maxnreg": self.maxnreg or None}


def check(module: Module) -> None:
    """Implement Tables.check."""
    variants.check_unsupported(module, ("fastmath", "lineinfo", "debug", "opt_level"), "Triton's kernels")
    for kernel in cast("tuple[Kernel, ...]", module.kernels):
        for table in kernel.tables:
            if table.num_warps not in _WARPS:
                message = (
                    f"{table.key}.num-warps: {table.num_warps} is not a power of two, as Triton requires; write 1, 2, "
                    "4, 8, 16 or 32"
                )
                raise ConfigError(message)


modules = variants.source_modules
target = type_notation.target


def units(module: Module) -> list[TritonUnit]:
    """Implement Tables.units."""
    listed = [
        unit
        for kernel in cast("tuple[Kernel, ...]", module.kernels)
        for unit in _units(
            module,
            RecordedKernel(
                name=kernel.name,
                python=kernel.python,
                parameters=(),
                variants=tuple(variant for table in kernel.tables for variant in table.variants()),
                left_out={},
            ),
            [
                (table.key, f"{number}_{part}")
                for number, table in enumerate(kernel.tables)
                for part in range(len(_hinted(table.signature)))
            ],
            kernel.key,
        )
    ]
    return _in_images(listed)


def _in_images(listed: Sequence[TritonUnit]) -> list[TritonUnit]:
    """Return units with the names of their images: the assembler works on several images at the same time.

    The variants of a kernel are in one image if it has few. The division depends on the table alone, and neither on the
    number of cores nor on the build cache. The units of a kernel are in a row.
    """
    sizes = Counter(unit.name for unit in listed)
    result: list[TritonUnit] = []
    number, count, kernel = 0, 0, ""
    for unit in listed:
        is_next = unit.name != kernel and count + min(sizes[unit.name], MOST_IN_IMAGE) > MOST_IN_IMAGE
        if is_next or count == MOST_IN_IMAGE:
            number, count = number + 1, 0
        count, kernel = count + 1, unit.name
        result.append(replace(unit, image=str(number) if number else ""))
    return result


def recorded(module: Module, root: str) -> Recorded:
    """Implement Tables.recorded; a kernel in the table replaces the kernel in the file."""
    path = Path(os.path.normpath(Path(root, module.variants or "")))
    tuning_file = path.with_name(triton_files.tuning_name(path.name))
    where = f"{module.key}.variants: {module.variants}"
    recorded_units: list[TritonUnit] = []
    warnings: list[str] = []
    tuning = b""
    files = [str(path), str(tuning_file)]
    try:
        tuning = variants_file.read_tuning(tuning_file, modules(module)) if tuning_file.is_file() else b""
    except variants_file.UnusableError as error:
        warnings.append(f"{module.key}.variants: {tuning_file.name}: {error}; it is ignored. {_RECORD_AGAIN}")
    try:
        kernels, release = variants_file.read(path, modules(module))
    except variants_file.UnusableError as error:
        warnings.append(f"{where}: {error}; it is ignored. {_RECORD_AGAIN}")
        return Recorded(units=[], tuning=tuning, warnings=warnings, files=files)
    warnings += _release_warnings(where, release)
    in_table = {kernel.name for kernel in module.kernels}
    for kernel in kernels:
        if kernel.name in in_table:
            continue
        key = f"{module.key}.variants: kernels.{kernel.name}"
        places = [(key, f"{number}_0") for number in range(len(kernel.variants))]
        recorded_units += _units(module, kernel, places, key, is_recorded=True)
        warnings += [
            f"{where}: {kernel.name}: {count} of its variants cannot be packaged, since {reason}; they are left out"
            for reason, count in kernel.left_out.items()
        ]
    listed = units(module)  # they come first in the images, too
    every = _in_images([*listed, *recorded_units])
    return Recorded(units=every[len(listed) :], tuning=tuning, warnings=warnings, files=files)


def _units(
    module: Module,
    kernel: RecordedKernel,
    places: Sequence[tuple[str, str]],
    key: str,
    *,
    is_recorded: bool = False,
) -> Iterator[TritonUnit]:
    """Yield the units of a kernel: its variants, then general ones.

    Args:
        module: The module.
        kernel: The kernel.
        places: For each variant the key that errors name, and the end of its symbol.
        key: The key of the kernel.
        is_recorded: True if the kernel is from a variants file.
    """
    is_generated = not is_in_place(module)
    shared = _shared([dict(variant.constexprs) for variant in kernel.variants]) if is_generated else ()
    options = _shared([ALL_OPTIONS | dict(variant.options) for variant in kernel.variants]) if is_generated else ()
    more = general.variants(kernel) if module.general else []
    earlier: dict[str, list[tuple[Type, ...]]] = {}
    for number, variant in enumerate((*kernel.variants, *more)):
        is_general = number >= len(places)
        place, suffix = (key, f"{number}_0") if is_general else places[number]
        of_group = earlier.setdefault(repr(variant.constants_and_options), [])
        unit = replace(
            _unit(module, kernel, variant, place, suffix),
            parameters=kernel.parameters if is_recorded else None,
            recorded=is_recorded,
            optional=is_general,
            shared=shared,
            shared_options=options,
            fixed=kernel.fixed,
            earlier=tuple(of_group),
        )
        yield replace(unit, signature=_signature_text(unit.types, unit))
        of_group.append(variant.types)


def _unit(module: Module, kernel: RecordedKernel, variant: Variant, key: str, suffix: str) -> TritonUnit:
    options = ALL_OPTIONS | dict(variant.options)
    source, colon, path = kernel.python.rpartition(":")
    sources = (source,) if colon else modules(module)
    fma = cast("bool | None", options["enable_fp_fusion"])
    return TritonUnit(
        key=key,
        signature_key=key,
        kind="kernel",
        module=module.name,
        name=kernel.name,
        symbol=f"{kernel.name}__{suffix}",
        options=module.options.with_fma(fma),
        origin=f"{sources[0]}:{path}",
        source=sources[0],
        python=path,
        sources=sources,
        types=variant.types,
        constexprs=variant.constexprs,
        num_warps=cast("int", options["num_warps"]),
        num_stages=cast("int", options["num_stages"]),
        num_ctas=cast("int", options["num_ctas"]),
        maxnreg=cast("int | None", options["maxnreg"]) or 0,
        enable_fp_fusion=fma,
        launch_pdl=bool(options["launch_pdl"]),
        launch_cooperative_grid=bool(options["launch_cooperative_grid"]),
        only=variant.arch,
        in_place=is_in_place(module),
        pack=module.pack,
    )


def _shared(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, Value], ...]:
    """Return the names that have one value in all rows, with their values."""
    return tuple(
        (name, cast("Value", value))
        for name, value in (rows[0].items() if rows else ())
        if all(name in row and type_notation.is_same(row[name], value) for row in rows)
    )


def _release_warnings(where: str, release: str) -> list[str]:
    """Return a warning if another release of Triton is installed than the one by which variants were recorded."""
    try:
        installed = metadata.version("triton")
    except metadata.PackageNotFoundError:  # the worker raises an error
        return []
    if not release or installed.partition("+")[0] == release.partition("+")[0]:
        return []
    warning = (
        f"{where}: it was recorded by Triton {release}, and this build compiles it by Triton {installed}, whose JIT "
        f"may choose other variants; write triton=={release} into build-system.requires, or record it again"
    )
    return [warning]


def divided(unit: TritonUnit, targets: Sequence[Target]) -> list[TritonUnit]:
    """Implement Tables.divided: with tensor descriptors the parameters of a kernel depend on the target."""
    if not unit.has_descriptors:
        return [unit]
    parts = [
        replace(unit, only=(target,), part_of=unit.symbol, symbol=f"{unit.symbol}_{target}")
        for target in unit.only or targets
    ]
    return [replace(part, signature=_signature_text(part.types, part)) for part in parts]


_RECORD_AGAIN = "Record it again: aotcuda record --write -- COMMAND"


def is_in_place(module: Module) -> bool:
    """Return True if a module is its own source, or belongs to a pack."""
    return module.pack or modules(module) == (module.name,)


def _signature_text(types: Sequence[Type], unit: TritonUnit) -> str:
    """Return a variant's signature for reports: `void(*fp32:16, i32; BLOCK=256, num_warps=4, num_stages=3)`."""
    constants = [f"{name}={value!r}" for name, value in unit.constexprs]
    constants += [f"num_warps={unit.num_warps}", f"num_stages={unit.num_stages}"]
    constants += [f"num_ctas={unit.num_ctas}"] if unit.num_ctas > 1 else []
    options = {"maxnreg": unit.maxnreg or None, **{name: getattr(unit, name) for name in _SWITCHES}}
    constants += [f"{name}={value}" for name, value in options.items() if value is not ALL_OPTIONS[name]]
    is_shown = unit.only and (not unit.recorded or unit.has_descriptors)
    targets = f" on {', '.join(map(str, unit.only))}" if is_shown else ""
    return f"void({', '.join(map(str, types))}; {', '.join(constants)}){targets}"


def completed(unit: TritonUnit, unhinted: Mapping[int, AbstractSet[int]]) -> list[TritonUnit]:
    """Return the unit without the hints that its source switches off; nothing if an earlier variant equals it then.

    Args:
        unit: The unit.
        unhinted: The hints that the source switches off, by number of the argument.
    """
    types = _without(unit.types, unhinted)
    if any(unhinted.values()) and any(_without(other, unhinted) == types for other in unit.earlier):
        return []
    return [replace(unit, types=types, earlier=(), signature=_signature_text(types, unit))]


def _without(types: tuple[Type, ...], unhinted: Mapping[int, AbstractSet[int]]) -> tuple[Type, ...]:
    return tuple(
        replace(item, hint=0) if item.hint in unhinted.get(number, ()) else item for number, item in enumerate(types)
    )
