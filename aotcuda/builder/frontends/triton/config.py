"""Read Triton's part of `[tool.aotcuda]`: `@triton.jit` functions and their variants.

A kernel has one variant for each of its signatures, sets of constants (`constexprs` and options, `configs`) and
specialisations. Triton's JIT compiles a variant when it first sees arguments that are divisible by 16 or equal to 1.
A build compiles all variants, and a launch selects the most special one that its arguments fit.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from aotcuda.builder.config import keys, rules
from aotcuda.builder.config.model import FMA, FMA_MEANING
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Flag, Integer, ListOf, TableOf, Text
from aotcuda.builder.frontends import variants
from aotcuda.builder.frontends.protocol import Recorded
from aotcuda.builder.frontends.triton import type_notation, variants_file
from aotcuda.builder.frontends.variants import VariantKernel, VariantUnit
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Module
    from aotcuda.builder.frontends.triton.type_notation import Type, Value
    from aotcuda.builder.frontends.triton.variants_file import RecordedKernel, Variant
    from aotcuda.builder.frontends.variants import Constant, Constants

T = TypeVar("T")

OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
"""The options that a launch may name, as in Triton, with their defaults."""

_SWITCHES: dict[str, bool | None] = {
    "enable_fp_fusion": None,
    "launch_pdl": False,
    "launch_cooperative_grid": False,
}
ALL_OPTIONS: dict[str, int | bool | None] = {**OPTIONS, "maxnreg": None, **_SWITCHES}
"""The options that a launch of an exact kernel may name, with their defaults."""

_CONSTEXPR = variants.ConstantShape(
    type_notation.CONSTANT,
    type_notation.PLAIN.fullmatch,
)
_CONSTEXPRS = TableOf(
    name=variants.PARAMETER_NAME,
    value=_CONSTEXPR,
    expected="a table of constexprs",
)
_BOUNDS = ListOf(
    item=Integer(-(2**63), 2**63 - 1),
    expected="an integer, or a list of the lowest and the highest",
    shortest=1,
    longest=2,
    single=True,
)
_WHEN = TableOf(name=variants.PARAMETER_NAME, value=_BOUNDS, expected="a table of integers or of pairs of them")
_WARPS = Integer(1, 32)
_REGISTERS = Integer(0, 255)
_FLAG = Flag()
_KERNELS_VALUE = "the kernel's"
"""The default of a config's options."""

_TARGETS = ListOf(
    item=Text("a target, such as sm_90", r"^(sm|compute)_", type_notation.code_target),
    expected="a list of targets",
    shortest=1,
)
_ARCH = "The targets of `arch` for which it is compiled."
_PDL = "Launches are programmatic dependent launches: they may begin before the previous kernel has ended."
_COOPERATIVE = "Launches are cooperative: all blocks of the grid run at the same time."


def _one_or_several(shape: Integer) -> ListOf:
    expected = f"{shape.expected}, or a list of these (variants)"
    return ListOf(item=shape, expected=expected, shortest=1, single=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A config of a kernel, as `triton.Config`: constants that a launch may omit."""

    constexprs: Constants = field(
        default=(),
        metadata=setting(_CONSTEXPRS, "Values of constexprs.", "{ BLOCK_M = 128, BLOCK_N = 64 }"),
    )
    num_warps: int | None = field(
        default=None,
        metadata=setting(_WARPS, "Warps of a block: a power of two.", "8", default=_KERNELS_VALUE),
    )
    num_stages: int | None = field(
        default=None,
        metadata=setting(Integer(0, 64), "Stages of software pipelines.", "4", default=_KERNELS_VALUE),
    )
    num_ctas: int | None = field(
        default=None,
        metadata=setting(Integer(1, 16), "Blocks of a cluster.", "1", default=_KERNELS_VALUE),
    )
    maxnreg: int | None = field(
        default=None, metadata=setting(_REGISTERS, "Registers a thread may use.", "128", default=_KERNELS_VALUE)
    )
    fma: bool | None = field(default=None, metadata=setting(_FLAG, FMA_MEANING, "false", default=_KERNELS_VALUE))
    launch_pdl: bool | None = field(default=None, metadata=setting(_FLAG, _PDL, "true", default=_KERNELS_VALUE))
    launch_cooperative_grid: bool | None = field(
        default=None, metadata=setting(_FLAG, _COOPERATIVE, "true", default=_KERNELS_VALUE)
    )
    arch: tuple[Target, ...] = field(default=(), metadata=setting(_TARGETS, _ARCH, '["sm_90"]', default=_KERNELS_VALUE))
    when: tuple[tuple[str, tuple[int, ...]], ...] = field(
        default=(),
        metadata=setting(
            _WHEN,
            (
                "Values of integer arguments for which the config applies: one value, or the lowest and the "
                "highest. Launches use the first config that applies."
            ),
            "{ M = 4096, N = [1, 1024] }",
        ),
    )
    signatures: tuple[tuple[Type, ...], ...] = field(
        default=(),
        metadata=variants.signatures_setting(
            type_notation.parse_signature,
            "The signatures of the kernel for which the config applies, written as in the kernel's table.",
            '"*fp16, *fp16, i32"',
            default="all of them",
        ),
    )
    key: str = ""

    def may_be_for(self, other: Settings) -> bool:
        """Return True if some arguments fit both configs, so that only constants distinguish the configs."""
        first, second = ({tuple(item.plain for item in types) for types in each.signatures} for each in (self, other))
        is_disjoint = first and second and not first & second
        return sorted(self.when) == sorted(other.when) and not is_disjoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(VariantKernel):
    """A kernel that the module offers for launching."""

    python: str = field(metadata=variants.path_setting("@triton.jit", '"add_kernel"'))
    signatures: tuple[tuple[Type, ...], ...] = field(
        metadata=variants.signatures_setting(
            type_notation.parse_signature,
            (
                "Types of the arguments that are not constexprs, in order, in Triton's notation: one signature or "
                "a list. `:16` and `:1` are Triton's specialisations of an argument."
            ),
            '"*fp32, *fp32, *fp32, i32"',
        )
    )
    specialise: str = field(
        default="auto",
        metadata=variants.specialise_setting(
            "`auto` makes three variants of a signature without `:16` and `:1`: pointers and integers divisible "
            "by 16, pointers "
            "alone, and neither. `exact` compiles the signatures as they are."
        ),
    )
    constexprs: Constants = field(
        default=(),
        metadata=setting(
            _CONSTEXPRS, "Values of constexprs; with lists, a variant for each combination.", "{ BLOCK = [128, 1024] }"
        ),
    )
    num_warps: tuple[int, ...] = field(
        default=(OPTIONS["num_warps"],),
        metadata=setting(_one_or_several(_WARPS), "Warps of a block: a power of two, or a list.", "8", default="4"),
    )
    num_stages: tuple[int, ...] = field(
        default=(OPTIONS["num_stages"],),
        metadata=setting(_one_or_several(Integer(0, 64)), "Stages of software pipelines, or a list.", "4", default="3"),
    )
    num_ctas: int = field(default=OPTIONS["num_ctas"], metadata=setting(Integer(1, 16), "Blocks of a cluster.", "2"))
    maxnreg: int = field(
        default=0,
        metadata=setting(_REGISTERS, "Registers a thread may use.", "128", default="`max-registers`"),
    )
    fma: bool | None = field(default=None, metadata=FMA)
    launch_pdl: bool = field(default=False, metadata=setting(_FLAG, _PDL, "true"))
    launch_cooperative_grid: bool = field(default=False, metadata=setting(_FLAG, _COOPERATIVE, "true"))
    arch: tuple[Target, ...] = field(default=(), metadata=setting(_TARGETS, _ARCH, '["sm_90"]', default="all of them"))
    configs: tuple[Settings, ...] = field(
        default=(),
        metadata=setting(
            ListOf(item=Record(cls=Settings, expected="a table"), expected="a list of tables", shortest=1),
            "Sets of constants that a launch need not name, as in `@triton.autotune`, each with the arguments for "
            "which it applies.",
            "[{ constexprs = { BLOCK = 64 }, when = { n = [1, 4096] } }, { constexprs = { BLOCK = 1024 } }]",
        ),
    )


SHAPES = {
    "source": rules.PYTHON_MODULES,
    "variants": rules.VARIANTS_PATH,
    "pack": _FLAG,
    "pack-from": Text("the path of a folder"),
    "kernels": rules.kernels(
        Record(cls=Kernel, expected="a signature, a list of signatures or a table", short="signatures")
    ),
}

EXAMPLES = {
    "kernels": '{ add = { signature = "*fp32, *fp32, *fp32, i32", constexprs = { BLOCK = 256 } } }',
}

SECTIONS = (("A Triton kernel", "kernels.matmul", Kernel), ("One of its configs", "configs", Settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonUnit(VariantUnit):
    """A kernel for one signature and one set of constants; a completed unit is for one specialisation.

    Attributes:
        types: Types of the arguments that are not constexprs.
        constexprs: Values of constexprs, by name.
        num_warps, num_stages, num_ctas, maxnreg: Triton's options; with maxnreg 0 Triton chooses the registers.
        enable_fp_fusion, launch_pdl, launch_cooperative_grid: Options of the launch; enable_fp_fusion may be None.
        parameters: The function's parameters in the variants file; None for a kernel of the table.
        is_exact: True if only those launches select it for which Triton would compile it.
        in_place: True if its module is packaged in place.
        pack: True if its module belongs to a pack.
        when: The lowest and highest value of integer arguments that the variant is for, by name.
        alone: Names of constexprs with one value in the table for all configs.
        configs: The configs of the kernel.
        signatures: The signatures that the config is for, including `types`.
    """

    types: tuple[Type, ...]
    constexprs: tuple[tuple[str, Value], ...]
    num_warps: int
    num_stages: int
    num_ctas: int
    maxnreg: int
    when: tuple[tuple[str, int, int], ...]
    alone: frozenset[str]
    configs: tuple[Settings, ...]
    signatures: tuple[tuple[Type, ...], ...]
    enable_fp_fusion: bool | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    parameters: tuple[str, ...] | None = None
    is_exact: bool = False
    in_place: bool = False
    pack: bool = False

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
        if not self.is_exact:
            return {name: getattr(self, name) for name in OPTIONS}
        return {name: getattr(self, name) for name in ALL_OPTIONS} | {"maxnreg": self.maxnreg or None}


def check(module: Module) -> None:
    """Implement Tables.check."""
    variants.check_unsupported(module, ("fastmath", "lineinfo", "debug", "opt_level"), "Triton's kernels")
    for kernel in cast("tuple[Kernel, ...]", module.kernels):
        _check_kernel(kernel)
        if kernel.configs and is_in_place(module):
            message = (
                f"{kernel.key}.configs: {module.name} is packaged in place, where launches name all constants; write "
                "their values in constexprs, num-warps and num-stages, or have them recorded: aotcuda record --write"
            )
            raise ConfigError(message)


def _check_kernel(kernel: Kernel) -> None:
    for key, warps in [
        *((f"{kernel.key}.num-warps", number) for number in kernel.num_warps),
        *((f"{kernel.key}.configs[{at}].num-warps", item.num_warps) for at, item in enumerate(kernel.configs)),
    ]:
        if warps and warps & (warps - 1):
            message = f"{key}: {warps} is not a power of two, as Triton requires; write 1, 2, 4, 8, 16 or 32"
            raise ConfigError(message)
    fixed = dict(kernel.constexprs)
    _check_constants(f"{kernel.key}.constexprs", kernel.constexprs)
    for at, item in enumerate(kernel.configs):
        _check_constants(f"{kernel.key}.configs[{at}].constexprs", item.constexprs)
        for types in item.signatures:
            if types not in kernel.signatures:
                text = ", ".join(map(str, types))
                message = (
                    f"{kernel.key}.configs[{at}].signatures: {keys.string(text)} is not in {kernel.key}.signatures; "
                    "write it there too, or write one of its signatures here"
                )
                raise ConfigError(message)
        for name, values in item.constexprs:
            key = f"{kernel.key}.configs[{at}].constexprs.{name}"
            if name in fixed:
                message = f"{key}: {name} is in {kernel.key}.constexprs too; remove one of the two"
                raise ConfigError(message)
            if len(values) > 1:
                message = f"{key}: a config has one value for each constexpr; write a config for each value"
                raise ConfigError(message)
        for name, bounds in item.when:
            if bounds[0] > bounds[-1]:
                message = f"{kernel.key}.configs[{at}].when.{name}: {bounds[0]} is more than {bounds[-1]}; swap the two"
                raise ConfigError(message)


def _check_constants(key: str, constants: Constants) -> None:
    for name, values in constants:
        for value in values:
            try:
                type_notation.check_constant(value)
            except ValueError as error:
                message = f"{key}.{name}: {error}"
                raise ConfigError(message) from None


modules = variants.source_modules
target = type_notation.target


def units(module: Module) -> list[TritonUnit]:
    """Implement Tables.units."""
    return [unit for kernel in cast("tuple[Kernel, ...]", module.kernels) for unit in _kernel_units(module, kernel)]


def recorded(module: Module, root: str) -> Recorded:
    """Implement Tables.recorded; a kernel in the table replaces the kernel in the file."""
    path = Path(os.path.normpath(Path(root, module.variants or "")))
    tuning_file = path.with_name(variants_file.tuning_name(path.name))
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
        kernels = variants_file.read(path, modules(module))
    except variants_file.UnusableError as error:
        warnings.append(f"{where}: {error}; it is ignored. {_RECORD_AGAIN}")
        return Recorded(units=[], tuning=tuning, warnings=warnings, files=files)
    in_table = {kernel.name for kernel in module.kernels}
    for kernel in kernels:
        if kernel.name in in_table:
            continue
        recorded_units += [_recorded_unit(module, kernel, number, item) for number, item in enumerate(kernel.variants)]
        warnings += [
            f"{where}: {kernel.name}: {count} of its variants cannot be packaged, since {reason}; they are left out"
            for reason, count in kernel.left_out.items()
        ]
    return Recorded(units=recorded_units, tuning=tuning, warnings=warnings, files=files)


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


def _recorded_unit(module: Module, kernel: RecordedKernel, number: int, variant: Variant) -> TritonUnit:
    options = ALL_OPTIONS | dict(variant.options)
    unit = TritonUnit(
        key=f"{module.key}.variants: kernels.{kernel.name}",
        signature_key=f"{module.key}.variants: kernels.{kernel.name}",
        kind="kernel",
        module=module.name,
        name=kernel.name,
        symbol=f"{kernel.name}__{number}",
        options=module.options,
        origin=f"{modules(module)[0]}:{kernel.python}",
        source=modules(module)[0],
        python=kernel.python,
        sources=modules(module),
        specialise="exact",
        chosen=frozenset(),
        types=variant.types,
        constexprs=variant.constexprs,
        num_warps=cast("int", options["num_warps"]),
        num_stages=cast("int", options["num_stages"]),
        num_ctas=cast("int", options["num_ctas"]),
        maxnreg=cast("int | None", options["maxnreg"]) or 0,
        enable_fp_fusion=cast("bool | None", options["enable_fp_fusion"]),
        launch_pdl=bool(options["launch_pdl"]),
        launch_cooperative_grid=bool(options["launch_cooperative_grid"]),
        when=(),
        alone=frozenset(),
        configs=(),
        signatures=(variant.types,),
        parameters=kernel.parameters,
        only=variant.arch,
        recorded=True,
        is_exact=True,
        in_place=is_in_place(module),
        pack=module.pack,
    )
    return replace(unit, signature=_signature_text(unit.types, unit))


def is_in_place(module: Module) -> bool:
    """Return True if a module is its own source, or belongs to a pack."""
    return module.pack or modules(module) == (module.name,)


def widened(kernel: Kernel, signature: str) -> Kernel:
    """Implement Tables.widened; Triton's kernels are compiled for the table's signatures alone."""
    message = (
        f"{kernel.key}: Triton's kernels are compiled for the signatures and constants in the table alone, and not for "
        f"{signature}"
    )
    raise CompileError(message)


@dataclass(frozen=True, slots=True)
class _Constants:
    """The constants and options of a variant."""

    constexprs: tuple[tuple[str, Constant | None], ...]
    num_warps: int
    num_stages: int
    num_ctas: int
    config: Settings


def _kernel_units(module: Module, kernel: Kernel) -> list[TritonUnit]:
    in_place = is_in_place(module)
    sets = list(_sets(kernel))
    chosen = {name for item in kernel.configs for name, _ in item.constexprs}
    combinations = [
        (types, constants)
        for types, constants in itertools.product(kernel.signatures, sets)
        if not constants.config.signatures or types in constants.config.signatures
    ]
    kernel_units = []
    for number, (types, constants) in enumerate(combinations):
        config = constants.config
        unit = TritonUnit(
            **variants.unit_fields(module, kernel, number),
            chosen=frozenset(() if in_place else chosen),
            is_exact=in_place,
            in_place=in_place,
            pack=module.pack,
            types=types,
            constexprs=constants.constexprs,
            num_warps=constants.num_warps,
            num_stages=constants.num_stages,
            num_ctas=constants.num_ctas,
            maxnreg=_first(config.maxnreg, kernel.maxnreg) or module.options.max_registers,
            enable_fp_fusion=config.fma,
            launch_pdl=_first(config.launch_pdl, kernel.launch_pdl),
            launch_cooperative_grid=_first(config.launch_cooperative_grid, kernel.launch_cooperative_grid),
            only=config.arch or kernel.arch,
            when=tuple((name, bounds[0], bounds[-1]) for name, bounds in sorted(config.when)),
            alone=variants.single_valued(kernel.constexprs),
            configs=kernel.configs,
            signatures=config.signatures or kernel.signatures,
        )
        kernel_units.append(replace(unit, signature=_signature_text(types, unit)))
    return kernel_units


def _first(config: T | None, kernel: T) -> T:
    """Return the option of a config; the option of the kernel if the config has none."""
    return kernel if config is None else config


def _sets(kernel: Kernel) -> list[_Constants]:
    """Return a kernel's sets of constants in the table's order, with sorted names, as in the JIT fallback."""
    sets = []
    for config in kernel.configs or (Settings(),):
        constexprs = tuple((name, values[0]) for name, values in sorted(config.constexprs))
        warps = kernel.num_warps if config.num_warps is None else (config.num_warps,)
        stages = kernel.num_stages if config.num_stages is None else (config.num_stages,)
        ctas = _first(config.num_ctas, kernel.num_ctas)
        for values in variants.combinations(kernel.constexprs):
            constants = tuple(
                (name, None if value == type_notation.NONE else value) for name, value in (*values, *constexprs)
            )
            sets += [
                _Constants(constants, warp, stage, ctas, config) for warp, stage in itertools.product(warps, stages)
            ]
    return sets


def conditions(when: Sequence[tuple[str, int, int]]) -> str:
    """Return the conditions of integer arguments in words: `n = 33, 1 <= m <= 64`."""
    return ", ".join(f"{name} = {low}" if low == high else f"{low} <= {name} <= {high}" for name, low, high in when)


def _signature_text(types: Sequence[Type], unit: TritonUnit) -> str:
    """Return a variant's signature for reports: `void(*fp32:16, i32; BLOCK=256, num_warps=4, num_stages=3)`."""
    constants = [f"{name}={value!r}" for name, value in unit.constexprs]
    constants += [f"num_warps={unit.num_warps}", f"num_stages={unit.num_stages}"]
    constants += [f"num_ctas={unit.num_ctas}"] if unit.num_ctas > 1 else []
    options = {"maxnreg": unit.maxnreg or None, **{name: getattr(unit, name) for name in _SWITCHES}}
    constants += [f"{name}={value}" for name, value in options.items() if value is not ALL_OPTIONS[name]]
    when = f" when {conditions(unit.when)}" if unit.when else ""
    is_shown = unit.only and (not unit.recorded or unit.has_descriptors)
    targets = f" on {', '.join(map(str, unit.only))}" if is_shown else ""
    return f"void({', '.join(map(str, types))}; {', '.join(constants)}){when}{targets}"


def undecided_constants(configs: Sequence[Settings], tuned: AbstractSet[str]) -> frozenset[str]:
    """Return the constexprs of configs that a launch has to name, because only they distinguish two configs.

    Args:
        configs: The kernel's configs.
        tuned: The constexprs that the autotuner chooses.
    """
    undecided = set()
    for config, other in itertools.combinations(configs, 2):
        first, second = dict(config.constexprs), dict(other.constexprs)
        differing = {name for name in {*first, *second} if not _is_same(first.get(name), second.get(name))}
        distinguishing = differing - tuned
        undecided |= distinguishing
        if not distinguishing and config.may_be_for(other):
            undecided |= differing
    return frozenset(undecided)


def _is_same(value: object, other: object) -> bool:
    """Return True if two values are the same constexpr; 1, 1.0 and True are three different constexprs."""
    return repr(value) == repr(other)


def may_be_launched(unit: TritonUnit, names: Sequence[str]) -> bool:
    """Return True if arguments with these names can fit both the hints of a completed unit and its config."""
    for name, low, high in unit.when:
        hint = unit.types[names.index(name)].hint
        if (hint == 1 and not low <= 1 <= high) or (hint > 1 and high // hint * hint < low):
            return False
    return True


def specialize(unit: TritonUnit, unhinted: Mapping[int, AbstractSet[int]]) -> list[TritonUnit]:
    """Return a unit for each specialisation, the most special first.

    Args:
        unit: The unit.
        unhinted: The hints that the source switches off, by number of the argument.
    """

    def with_hints(pointers: int, integers: int) -> tuple[Type, ...]:
        types = []
        for number, item in enumerate(unit.types):
            hint = item.hint
            if item.open and item.takes_hints:
                hint = pointers if item.pointer else integers
            if hint in unhinted.get(number, ()):
                hint = 0
            types.append(replace(item, hint=hint))
        return tuple(types)

    hints = [(16, 16), (16, 0), (0, 0)] if unit.specialise == "auto" else [(0, 0)]
    specializations = list(dict.fromkeys(with_hints(*each) for each in hints))
    return [
        replace(
            unit,
            types=types,
            symbol=f"{unit.symbol}_{number}",
            signature=_signature_text(types, unit),
        )
        for number, types in enumerate(specializations)
    ]
