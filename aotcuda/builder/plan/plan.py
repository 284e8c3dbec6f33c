"""Plan a build: the units to compile, their symbols and targets. Plans are pure data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.arch import Target
from aotcuda.builder.config import checks
from aotcuda.builder.frontends import loading
from aotcuda.builder.plan import toolkits
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from aotcuda.builder.config.model import Config, Module
    from aotcuda.builder.frontends.protocol import Tables, Unit
    from aotcuda.builder.plan.toolkits import Toolkit


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlan:
    """All units of one module and the targets they are built for.

    Attributes:
        frontend_key: The key that names its front end. The table may lack the key.
        code_targets: For each target, the `sm_*` target whose code is linked: code is compiled for a capability.
        ltoir_targets: The `sm_*` targets that the exported functions are compiled for, including `code_targets`.
        in_place: The module is its own source, so the wheel gains only data.
        warnings: Warnings about the file that `variants` names.
        recorded: The absolute paths of its variants file and tuning file.
        tuning: The file of its autotuners' choices; may be empty.
        lacking: The identifiers of units, each with a target that cannot have it.
        image: The only image that the plan builds; None for all images of the module.
        linked: The images that the items of `link` are linked into; None for all.
        variables: See `aotcuda.builder.frontends.protocol.Division`.
    """

    config: Module
    frontend: str
    frontend_key: str
    units: tuple[Unit, ...]
    targets: tuple[Target, ...]
    code_targets: Mapping[Target, Target]
    ltoir_targets: tuple[Target, ...]
    in_place: bool = False
    warnings: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    tuning: bytes = b""
    lacking: frozenset[tuple[str, Target]] = frozenset()
    image: str | None = None
    linked: frozenset[str] | None = None
    variables: tuple[tuple[str, str, str, int], ...] = ()

    def compiled_for(self, unit: Unit) -> tuple[Target, ...]:
        """Return the targets for which a unit is compiled, at least one."""
        if unit.kind == "function":
            return self.ltoir_targets
        targets = {target for target in self.code_targets.values() if not unit.only or target in unit.only}
        return _sort(target for target in targets if (unit.identifier, target) not in self.lacking)

    def kernels_for(self, target: Target) -> tuple[Unit, ...]:
        """Return the kernels of the image for a target."""
        code = self.code_targets[target]
        return tuple(unit for unit in self.kernels if code in self.compiled_for(unit))

    def only_with(self, part: Container[tuple[str, str]]) -> ModulePlan:
        """Return the plan with only the units in `part`, which has modules with the identifiers of units."""
        return replace(self, units=tuple(unit for unit in self.units if (unit.module, unit.identifier) in part))

    @property
    def images(self) -> tuple[str, ...]:
        """Return the names of the module's images, in the order of the kernels; each becomes a fatbin."""
        return tuple(dict.fromkeys(unit.image for unit in self.kernels))

    def of_image(self, name: str) -> ModulePlan:
        """Return the plan of one image: its kernels, and the targets that have any."""
        units = tuple(unit for unit in self.units if unit.kind == "function" or unit.image == name)
        plan = replace(self, units=units, image=name)
        return replace(plan, targets=tuple(target for target in self.targets if plan.kernels_for(target)))

    @property
    def has_links(self) -> bool:
        """Return True if the items of `link` are linked into the plan's image."""
        if self.linked is None or not self.config.link:
            return bool(self.config.link)
        return bool(self.linked) if self.image is None else self.image in self.linked

    @property
    def kernels(self) -> tuple[Unit, ...]:
        """Return the units that become entry points."""
        return tuple(unit for unit in self.units if unit.kind == "kernel")

    @property
    def functions(self) -> tuple[Unit, ...]:
        """Return the units that are exported as device functions."""
        return tuple(unit for unit in self.units if unit.kind == "function")

    @property
    def function_targets(self) -> tuple[Target, ...]:
        """Return the targets of packed functions: `ltoir_targets`, and one PTX for links without optimisation.

        PTX is for the lowest capability that is not specific to one architecture, since it serves all later ones.
        """
        lowest = next((target for target in self.ltoir_targets if not target.suffix), self.ltoir_targets[0])
        return (*self.ltoir_targets, Target("ptx", lowest.major, lowest.minor, lowest.suffix))


def make(config: Config, root: Path = Path()) -> tuple[ModulePlan, ...]:
    """Plan every module of `config`; `root` is the project's folder, where files of variants are.

    Raises:
        ConfigError: Two kernels would get the same symbol, or a module cannot be built for a target.
    """
    return tuple(_plan_module(config, module, root) for module in config.modules)


def exported_names(plans: Iterable[ModulePlan]) -> dict[str, tuple[str, ...]]:
    """Return the names that each generated module exports, by module."""
    return {
        # The overloads of one Python function may be called by its name too, unless the name is in use.
        item.config.name: tuple(dict.fromkeys([*(unit.name for unit in item.units), *_shared_names(item.functions)]))
        for item in plans
        if not item.in_place
    }


def _shared_names(functions: Iterable[Unit]) -> list[str]:
    names = [unit.shared_name for unit in functions]
    return [name for name in names if name and names.count(name) > 1]


def code_target(target: Target) -> Target:
    """Return the `sm_*` target whose LTOIR is linked for `target`."""
    return Target("sass", target.major, target.minor, target.suffix)


def check_symbols(units: Iterable[Unit]) -> None:
    """Refuse units of one image whose entry points would have the same name."""
    units_by_name: dict[str, Unit] = {}
    for unit in units:
        if unit.identifier in units_by_name:
            other = units_by_name[unit.identifier].key
            message = f"{unit.key}: its symbol {unit.symbol} is also that of {other}; rename one of the two"
            raise ConfigError(message)
        units_by_name[unit.identifier] = unit


def _plan_module(config: Config, module: Module, root: Path) -> ModulePlan:
    frontend = config.frontend_of(module)
    tables = loading.tables(frontend)
    in_place = checks.is_in_place(module, frontend)
    units = list(tables.units(module))
    variants = tables.recorded(module, str(root)) if module.variants else None
    units += variants.units if variants else ()
    warnings = variants.warnings if variants else ()
    targets = _targets(config, module, tables)
    divided = getattr(tables, "divided", None)
    if divided is not None:
        codes = _sort(map(code_target, targets))
        units = [part for unit in units for part in divided(unit, codes)]
    check_symbols(units)
    ptx = next((target for target in config.arch if target.kind == "ptx"), None)
    if module.options.debug and module.kernels and ptx is not None:
        message = (
            f"{config.arch_key}: {ptx} is PTX, and {module.key} is built with debug = true, which gives machine code "
            "alone; list sm_* targets only, or set debug to false"
        )
        raise ConfigError(message)
    module_plan = ModulePlan(
        config=module,
        frontend=frontend,
        frontend_key=f"{module.key}.frontend" if module.frontend else config.frontend_key,
        units=tuple(units),
        targets=targets,
        code_targets={target: code_target(target) for target in targets},
        ltoir_targets=_sort(code_target(target) for target in targets),
        in_place=in_place,
        warnings=tuple(warnings),
        recorded=tuple(variants.files) if variants else (),
        tuning=variants.tuning if variants else b"",
    )
    module_plan = replace(module_plan, units=tuple(unit for unit in units if module_plan.compiled_for(unit)))
    if (units or module.variants) and not module_plan.units and not in_place:
        message = "; ".join(warnings) or f"{module.key}: no kernel is for a target in {config.arch_key}; add one there"
        raise ConfigError(message)
    return module_plan


def _targets(config: Config, module: Module, tables: Tables) -> tuple[Target, ...]:
    """Return the targets of a module, as its front end adapts them."""
    adapt = getattr(tables, "target", None)
    if adapt is None:
        return config.arch
    targets: dict[Target, None] = {}
    for target in config.arch:
        try:
            targets[adapt(target)] = None
        except ValueError as error:
            message = f"{config.arch_key}: {target} cannot be built for {module.name}: {error}"
            raise ConfigError(message) from None
    return tuple(targets)


def _sort(targets: Iterable[Target]) -> tuple[Target, ...]:
    return tuple(sorted(set(targets), key=Target.sort_key))


def share(
    plans: Sequence[ModulePlan], installed: Sequence[Toolkit]
) -> list[tuple[Toolkit | None, tuple[ModulePlan, ...]]]:
    """Divide `plans` among the installed toolkits, the newest first; toolkits without work are left out.

    One toolkit makes each image of a kernel. Each toolkit makes exported functions, for linkers of its major version.
    """
    if not installed:
        return [(None, tuple(plans))]
    parts: list[tuple[Toolkit | None, tuple[ModulePlan, ...]]] = []
    for toolkit in reversed(installed):
        mine = tuple(part for plan in plans if (part := _part(plan, toolkit, installed)) is not None)
        if mine:
            parts.append((toolkit, mine))
    return parts


def _part(plan: ModulePlan, toolkit: Toolkit, installed: Sequence[Toolkit]) -> ModulePlan | None:
    """Return the part of a module that a toolkit builds, or None."""
    front_end = registry.find(plan.frontend)
    if front_end is not None and front_end.assembles:
        return plan if toolkit is installed[-1] else None
    targets = tuple(target for target in plan.targets if toolkits.choose(target, installed) is toolkit)
    # A target that no toolkit supports is assigned to the first one, whose worker refuses it.
    code = {target: toolkit.code_target(target) or code_target(target) for target in targets}
    ltoir = _sort([*code.values(), *filter(None, map(toolkit.code_target, plan.targets))])
    units = plan.units if targets else plan.functions
    if not units or not ltoir:
        return None
    return replace(plan, units=units, targets=targets, code_targets=code, ltoir_targets=ltoir)
