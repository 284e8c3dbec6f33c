"""What stands in for a key of `[tool.aotcuda]`: the environment for `arch`, common options for those of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aotcuda.builder.config import target_list
from aotcuda.builder.config.keys import ROOT, Key

if TYPE_CHECKING:
    from typing import Any

    from aotcuda.arch import Target


def targets(variable: str) -> tuple[Target, ...]:
    """Return the targets in the value of AOTCUDA_ARCH; an empty value is as good as none."""
    key = Key("AOTCUDA_ARCH", "AOTCUDA_ARCH", "write for example AOTCUDA_ARCH='sm_90;compute_75'")
    return target_list.from_variable(variable, key)


def inherit_options(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """`table` with the common options put under each module's own; what is malformed is left for the reader to find."""
    common, modules = table.get("options", {}), table.get("modules")
    if not isinstance(common, Mapping) or not isinstance(modules, Mapping):
        return table
    merged = {}
    for name, module in modules.items():
        merged[name] = module
        if isinstance(module, Mapping):
            _check_quoted(ROOT.child("modules").child(name), name, module)
            own = module.get("options", {})
            if isinstance(own, Mapping):
                merged[name] = {**module, "options": {**common, **own}}
    return {**table, "modules": merged}


def _check_quoted(key: Key, name: str, module: Mapping[str, Any]) -> None:
    """Refuse `[tool.aotcuda.modules.mypkg.kernels]`: TOML reads the dot as one table in another."""
    for inner, value in module.items():
        if "source" not in module and isinstance(value, Mapping):
            dotted = f"{name}.{inner}"
            if isinstance(value.get("source"), str | list) and inner not in {"functions", "options"}:
                remedy = f'write [{ROOT}.modules."{dotted}"]'
                problem = "a module's dotted name must be quoted, as one key"
                raise key.child(inner).error(problem, remedy)
            _check_quoted(key.child(inner), dotted, value)
