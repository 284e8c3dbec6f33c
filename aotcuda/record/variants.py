"""What was recorded of kernels that are packaged in variants, as Triton's are: as tables, and held against tables.

Such a record's options say what each launch was compiled for: `types`, `constants`, and the options by name; where an
autotuner has chosen, which constants (`chosen`), and for which integer arguments (`when`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.record.records import Record

_OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}


def is_one(record: Record) -> bool:
    """Whether a record is of such a kernel."""
    return "types" in record.options


def value(records: Sequence[Record], python: str | None) -> dict[str, Any]:
    """The table of a kernel with all that was recorded of it."""
    found: dict[str, Any] = {} if python is None else {"python": python}
    found["signatures"] = list(dict.fromkeys(", ".join(record.options["types"]) for record in records))
    found["specialise"] = "exact"
    sets = [_set(record) for record in records]
    distinct = [item for at, item in enumerate(sets) if item not in sets[:at]]
    if len(distinct) == 1 and "when" not in distinct[0]:
        return found | distinct[0]
    return found | {"configs": distinct}


def _set(record: Record) -> dict[str, Any]:
    """One set of constants, as the table of a kernel or one of its configs has it."""
    options = record.options
    constants = {name: item for name, item in options["constants"].items() if item is not None}
    found: dict[str, Any] = {"constexprs": constants} if constants else {}
    found |= {
        name.replace("_", "-"): options[name] for name, default in _OPTIONS.items() if options.get(name) != default
    }
    if options.get("when"):
        found["when"] = options["when"]
    return found


def covers(kernel: Mapping[str, Any], record: Record) -> bool:
    """Whether a kernel's table has a variant that launches like the recorded one would take."""
    given = kernel.get("signatures", kernel.get("signature", []))
    signatures = [given] if isinstance(given, str) else given
    types = record.options["types"]
    exact = kernel.get("specialise") == "exact"
    return any(_fits(signature, types, exact=exact) for signature in signatures if isinstance(signature, str)) and any(
        _has(item, record.options) for item in _sets(kernel)
    )


def _fits(signature: str, types: Sequence[str], *, exact: bool) -> bool:
    wanted = [part.strip() for part in signature.split(",")] if signature.strip() else []
    if len(wanted) != len(types):
        return False
    for own, asked in zip(wanted, types, strict=True):
        plain, _, hint = own.partition(":")
        asked_plain, _, asked_hint = asked.partition(":")
        if plain != asked_plain or (hint and hint != asked_hint) or (exact and hint != asked_hint):
            return False
    return True


def _sets(kernel: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    own = {name: item for name, item in kernel.items() if name != "configs"}
    for config in kernel.get("configs", [{}]):
        constants = {**own.get("constexprs", {}), **config.get("constexprs", {})}
        yield {**own, **config, "constexprs": constants}


def _has(item: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    given = item["constexprs"]
    for name, wanted in options["constants"].items():
        if name in given and wanted not in (given[name] if isinstance(given[name], list) else [given[name]]):
            return False
        if name not in given and wanted is not None:
            return False
    for name, default in _OPTIONS.items():
        values = item.get(name.replace("_", "-"), default)
        if options.get(name) not in (values if isinstance(values, list) else [values]):
            return False
    for name, wanted in options.get("when", {}).items():
        bounds = item.get("when", {}).get(name, wanted)
        low, high = (bounds[0], bounds[-1]) if isinstance(bounds, list) else (bounds, bounds)
        if not low <= wanted <= high:
            return False
    return True
