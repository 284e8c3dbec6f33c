"""Read `[tool.aotcuda]`: the common part by the dataclasses' metadata, the rest of a module by its front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from aotcuda import registry
from aotcuda.arch import Target
from aotcuda.builder.config import checks, keys, rules, target_list
from aotcuda.builder.config.front_end_shapes import UnreadValue
from aotcuda.builder.config.keys import ROOT, Key
from aotcuda.builder.config.model import Config, Module, Options
from aotcuda.builder.config.settings import Record
from aotcuda.builder.frontends import loading
from aotcuda.errors import ConfigError


def parse(table: Mapping[str, object], *, environ: Mapping[str, str]) -> Config:
    """Read the content of `[tool.aotcuda]`.

    Args:
        table: The table as a TOML parser gives it.
        environ: Environment variables; `AOTCUDA_ARCH` replaces `arch`.

    Raises:
        ConfigError: The first error. Keys are checked in the order of the dataclasses' fields. Combinations of keys
            (names used twice, options that exclude each other) are checked after them.
    """
    if not isinstance(table, Mapping):
        raise ROOT.mismatch(expected="a table", value=table)
    _refuse_nul(table, ROOT)
    override = targets(environ.get("AOTCUDA_ARCH", ""))
    if override and "arch" not in table:
        table = {**table, "arch": [str(target) for target in override]}
    config: Config = Record(cls=Config, expected="a table").read(_inherit_options(table), ROOT)
    config = replace(config, modules=tuple(_read_by_front_end(module, config) for module in config.modules))
    checks.check(config)
    return replace(
        config,
        arch=tuple(sorted({*(override or config.arch)}, key=Target.sort_key)),
        arch_key="AOTCUDA_ARCH" if override else config.arch_key,
        options=_final_options(config.options),
        modules=tuple(replace(module, options=_final_options(module.options)) for module in config.modules),
    )


def _refuse_nul(value: object, key: Key) -> None:
    """Refuse strings with a NUL character: compilers and the system would read the part before it."""
    if isinstance(value, str) and "\0" in value:
        problem = f"{keys.string(value)} has a NUL character"
        raise key.error(problem, "remove it")
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_nul(name, key.child(name))
            _refuse_nul(item, key.child(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_nul(item, key.item(index))


def targets(variable: str) -> tuple[Target, ...]:
    """Return the targets in the value of AOTCUDA_ARCH, which replaces `arch` unless it is empty."""
    key = Key("AOTCUDA_ARCH", "AOTCUDA_ARCH", "write for example AOTCUDA_ARCH='sm_90;compute_75'")
    return target_list.from_variable(variable, key)


def _inherit_options(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table with the common options in each module, unless the module has another value.

    The reader reports malformed tables.
    """
    common, modules = table.get("options", {}), table.get("modules")
    if not isinstance(common, Mapping) or not isinstance(modules, Mapping):
        return table
    merged = {}
    for name, module in modules.items():
        merged[name] = module
        if isinstance(module, Mapping):
            _check_quoted(ROOT.child("modules").child(name), name, module)
            module_options = module.get("options", {})
            if isinstance(module_options, Mapping):
                merged[name] = {**module, "options": {**common, **module_options}}
    return {**table, "modules": merged}


def _check_quoted(key: Key, name: str, module: Mapping[str, Any]) -> None:
    """Refuse `[tool.aotcuda.modules.mypkg.kernels]`: TOML reads the dot as one table in another."""
    for key_of_value, value in module.items():
        if "source" not in module and isinstance(value, Mapping):
            dotted = f"{name}.{key_of_value}"
            if isinstance(value.get("source"), str | list) and key_of_value not in {"functions", "options"}:
                remedy = f'write [{ROOT}.modules."{dotted}"]'
                problem = "a module's dotted name must be quoted, as one key"
                raise key.child(key_of_value).error(problem, remedy)
            _check_quoted(key.child(key_of_value), dotted, value)


def _final_options(options: Options) -> Options:
    """Return the options for the compilers: debug builds are not optimised."""
    return replace(options, opt_level=0) if options.debug else options


def _read_by_front_end(module: Module, config: Config) -> Module:
    name = config.frontend_of(module)
    try:
        parts = _read(module, name)
    except ConfigError as error:
        alternatives = [] if module.frontend else [other for other in registry.BUILT_IN if _can_read(module, other)]
        if len(alternatives) != 1 or rules.SIGNATURE.expected in str(error):  # cuTile accepts any text as types
            raise
        message = f'{error}; or write frontend = "{alternatives[0]}" at {module.key}, which accepts it'
        raise ConfigError(message) from None
    return replace(module, types=config.types, **parts)


def _read(module: Module, name: str) -> dict[str, Any]:
    """Return the parts of a module that the front end called `name` reads."""
    tables = loading.tables(name)
    examples = getattr(tables, "EXAMPLES", {})
    values = {field.name: getattr(module, field.name) for field in fields(module)}
    return {
        part: item.read(tables.SHAPES, name, examples) for part, item in values.items() if isinstance(item, UnreadValue)
    }


def _can_read(module: Module, name: str) -> bool:
    try:
        _read(module, name)
    except ConfigError:
        return False
    return True
