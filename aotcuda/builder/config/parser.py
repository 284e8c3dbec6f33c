"""Reading `[tool.aotcuda]`: the common part by the dataclasses' metadata, the rest of each module by its front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aotcuda import registry
from aotcuda.arch import Target
from aotcuda.builder.config import checks, overrides
from aotcuda.builder.config.front_end_shapes import Unread
from aotcuda.builder.config.keys import ROOT
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
        ConfigError: The first thing found wrong. Keys are looked at in the order of the dataclasses' fields, and what
            lies between several keys (names used twice, options that exclude each other) after that.
    """
    if not isinstance(table, Mapping):
        raise ROOT.mismatch(expected="a table", value=table)
    override = overrides.targets(environ.get("AOTCUDA_ARCH", ""))
    if override and "arch" not in table:
        table = {**table, "arch": [str(target) for target in override]}
    config: Config = Record(cls=Config, expected="a table").read(overrides.inherit_options(table), ROOT)
    config = replace(config, modules=tuple(_read_by_front_end(module, config) for module in config.modules))
    checks.check(config)
    return replace(
        config,
        arch=tuple(sorted({*(override or config.arch)}, key=Target.sort_key)),
        arch_key="AOTCUDA_ARCH" if override else config.arch_key,
        options=_settled(config.options),
        modules=tuple(replace(module, options=_settled(module.options)) for module in config.modules),
    )


def _settled(options: Options) -> Options:
    """Return the options as compilers see them."""
    return replace(options, opt_level=0) if options.debug else options


def _read_by_front_end(module: Module, config: Config) -> Module:
    name = config.frontend_of(module)
    try:
        read = _read(module, name)
    except ConfigError as error:
        others = [] if module.frontend else [other for other in registry.BUILT_IN if _can_read(module, other)]
        if len(others) != 1:
            raise
        message = f'{error}; or write frontend = "{others[0]}" at {module.key}, which would take it'
        raise ConfigError(message) from None
    return replace(module, types=config.types, **read)


def _read(module: Module, name: str) -> dict[str, Any]:
    """What the front end called `name` reads of a module."""
    tables = loading.tables(name)
    examples = getattr(tables, "EXAMPLES", {})
    waiting = {which: getattr(module, which) for which in ("source", "functions", "kernels", "variants")}
    return {
        which: item.read(tables.SHAPES, name, examples) for which, item in waiting.items() if isinstance(item, Unread)
    }


def _can_read(module: Module, name: str) -> bool:
    try:
        _read(module, name)
    except ConfigError:
        return False
    return True
