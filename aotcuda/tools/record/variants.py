"""Compare records of kernels with variants, such as Triton's, with tables in pyproject.toml.

The options of a record describe the compilation for a launch: `types`, `constants`, and Triton's options by name.
`chosen` lists the constants that an autotuner chose, and `computed` the constants that heuristics computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import type_notation, variants_file
from aotcuda.builder.frontends.triton.config import OPTIONS
from aotcuda.common.project_file import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.tools.record.records import Record


_NAMES = {name.replace("_", "-"): name for name in OPTIONS}
"""The keys of options in tables, with their names in records."""

_WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64, "fp32": 32, "fp64": 64}
"""The bits of the types of numbers."""


def has_variants(record: Record) -> bool:
    """Return True if the front end of a record packages variants."""
    return "types" in record.options


def refusal(record: Record) -> str | None:
    """Return the reason for which a build refuses a record, or None."""
    if not has_variants(record):
        return None
    place = ""
    try:
        for text in record.options["types"]:
            type_notation.parse_signature(text)
        for name, constant in record.options["constants"].items():
            place = f"{name}: "
            variants_file.constant(constant)
    except ValueError as error:
        return f"{place}{error}"
    return None


def is_tuned(record: Record) -> bool:
    """Return True for a launch by an autotuner."""
    return "chosen" in record.options


def tables(records: Sequence[Record], python: str | None) -> list[dict[str, Any]]:
    """Return a table for each variant of a kernel that records have; `python` is the path of its function."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        options = record.options
        values: dict[str, Any] = {} if python is None else {"python": python}
        values["signature"] = ", ".join(options["types"])
        constants = {name: _notation(item) for name, item in options["constants"].items()}
        values |= {"constexprs": constants} if constants else {}
        values |= {key: options[name] for key, name in _NAMES.items() if options.get(name) != OPTIONS[name]}
        found.setdefault(repr(values), values)
    return list(found.values())


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes for the reader of a kernel's tables, one sentence each."""
    computed = dict.fromkeys(name for record in records for name in record.options.get("computed", ()))
    if not computed:
        return []
    pronoun = "it" if len(computed) == 1 else "them"
    names = " and ".join(computed)
    return [f"@triton.heuristics computes {names}: launches of the packaged kernel have to name {pronoun}"]


def _notation(constant: Any) -> Any:
    """Return a constant in the notation of tables."""
    value = variants_file.constant(constant)
    return type_notation.NONE if value is None else value


def covers(kernel: object, record: Record) -> bool:
    """Return True if the value of a kernel's key has a variant for the recorded launch."""
    for item in kernel if isinstance(kernel, list) else [kernel]:
        variant = {"signature": item} if isinstance(item, str) else item
        if isinstance(variant, dict) and _covers(variant, record):
            return True
    return False


def _covers(variant: Mapping[str, Any], record: Record) -> bool:
    signature, options = variant.get("signature"), record.options
    if not isinstance(signature, str) or not _fits(type_notation.split(signature), options["types"]):
        return False
    packaged = table(variant, "constexprs")
    for name, constant in options["constants"].items():
        value = _notation(constant)
        if not type_notation.is_same(packaged.get(name, type_notation.NONE), value):
            return False
    return all(options.get(name) == variant.get(key, OPTIONS[name]) for key, name in _NAMES.items())


def _fits(packaged: Sequence[str], launched: Sequence[str]) -> bool:
    """Return True if a variant with these types serves a launch: its hints hold, and numbers fit its types."""
    if len(packaged) != len(launched):
        return False
    for text, other in zip(packaged, launched, strict=True):
        kind, _, hint = text.partition(":")
        launched_kind, _, launched_hint = other.partition(":")
        if hint not in ("", launched_hint):
            return False
        if kind != launched_kind and not (
            kind[0] == launched_kind[0] and _WIDTHS.get(kind, 0) > _WIDTHS.get(launched_kind, 64)
        ):
            return False
    return True
