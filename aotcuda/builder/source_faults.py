"""Warn of code that the compiler is known to get wrong, or refuse it: the key `known-faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.builder import failures
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, Fault, Unit

TABLE = "docs/frontends.md#known-faults"


def check(compiled: Iterable[tuple[Unit, CompiledKernel | CompiledFunction]], known_faults: str) -> list[str]:
    """Return a warning for each kernel or function with known faults.

    Args:
        compiled: The units, each as often as it was compiled.
        known_faults: The configuration's key: `warn` or `error`.
    """
    found: dict[str, dict[Fault, None]] = {}
    for unit, built in compiled:
        if built.faults:
            found.setdefault(unit.key, {}).update(dict.fromkeys(built.faults))
    lines = [f"{key}: {_said(list(faults))}; {TABLE} has the table" for key, faults in found.items()]
    if lines and known_faults == "error":
        raise failures.join([CompileError(line) for line in lines])
    return lines


def _said(faults: Sequence[Fault]) -> str:
    each = [f"{fault.fact} ({fault.place}); {fault.remedy}" for fault in faults]
    return f"{faults[0].compiler} is known to compile this wrongly: {'; and '.join(each)}"
