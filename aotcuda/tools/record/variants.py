"""Turn records of kernels with variants, such as Triton's, into tables, and compare them with config.

The options of a record describe the compilation for a launch: `types`, `constants`, and Triton's options by name.
`chosen` lists the constants that an autotuner chose, `when` the integer arguments that it chose them for, and
`computed` the constants that heuristics computed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import config, type_notation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aotcuda.tools.record.records import Record


_KEYS = {name.replace("_", "-"): default for name, default in config.OPTIONS.items()}
"""The keys of options in tables, with their defaults."""


@dataclass(frozen=True, slots=True)
class _Set:
    """One set of constants of a table or config, with its types.

    Attributes:
        values: The table.
        plain: The types of each of its signatures, without hints.
    """

    values: dict[str, Any]
    plain: set[str]


def has_variants(record: Record) -> bool:
    """Return True if the front end of a record packages variants."""
    return "types" in record.options


def refusal(record: Record, *, for_table: bool) -> str | None:
    """Return the reason for which a build refuses a record, or None; a table cannot express all constants."""
    if not has_variants(record):
        return None
    where = ""
    try:
        for kind in record.options["types"]:
            type_notation.parse_signature(kind)
        if for_table:
            for name, item in record.options["constants"].items():
                where = f"{name}: "
                if isinstance(item, str) and (item == type_notation.NONE or item.startswith("tl.")):
                    return f"{name} is a string that tables have another meaning for, which none can hold"
                type_notation.check_constant(_in_table(item))
    except ValueError as error:
        return f"{where}{error}"
    return None


def kernel_table(records: Sequence[Record], python: str | None) -> dict[str, Any]:
    """Return the value of a kernel's key in a table, with the variants of all its records."""
    found: dict[str, Any] = {} if python is None else {"python": python}
    signatures = dict.fromkeys(", ".join(record.options["types"]) for record in records)
    # A launch selects the first signature that fits, and Triton's JIT compiles for all hints that hold.
    found["signatures"] = sorted(signatures, key=lambda text: -text.count(":"))
    found["specialise"] = "exact"
    sets = _sets_of(records)
    every = {_plain(record) for record in records}
    if len(sets) == 1 and "when" not in sets[0].values:
        return found | sets[0].values
    if all(item.plain == every and "when" not in item.values for item in sets):
        product = _product([item.values for item in sets])
        if product is not None:
            return found | product
    configs = []
    for item in sets:
        own = [text for text in found["signatures"] if _without_hints(type_notation.split(text)) in item.plain]
        configs.append(item.values | ({} if item.plain == every else {"signatures": own}))
    return found | {"configs": configs}


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes for the reader of a kernel's table, one sentence each."""
    computed = dict.fromkeys(name for record in records for name in record.options.get("computed", ()))
    found = []
    if computed:
        found.append(
            f"@triton.heuristics computes {' and '.join(computed)}: launches of the packaged kernel have to name "
            f"{'it' if len(computed) == 1 else 'them'}"
        )
    if len(_chosen(records)) < len({json.dumps([_tuned_key(item), _set(item)]) for item in records if _is_tuned(item)}):
        found.append("several configs were chosen for the same arguments: the one of most launches is written")
    return found


def _sets_of(records: Sequence[Record]) -> list[_Set]:
    """Return the distinct sets of constants, ordered so that the first match is that of the launch.

    Sets with conditions on integers come before sets without. Sets with default options come first, because launches
    may leave these options out.
    """
    chosen = _chosen(records)
    found: dict[str, _Set] = {}
    for record in records:
        values = chosen.get(_tuned_key(record)) or _set(record)
        found.setdefault(json.dumps(values, sort_keys=True), _Set(values, set())).plain.add(_plain(record))
    return sorted(
        found.values(), key=lambda item: (-len(item.values.get("when", ())), [key in item.values for key in _KEYS])
    )


def _chosen(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Return the choice for each key of an autotuner; of several, the one with the most launches.

    Two runs may measure different times for the same configs.
    """
    counts: dict[str, Counter[str]] = {}
    for record in records:
        if _is_tuned(record):
            counts.setdefault(_tuned_key(record), Counter())[json.dumps(_set(record))] += record.count
    return {key: json.loads(count.most_common(1)[0][0]) for key, count in counts.items()}


def _is_tuned(record: Record) -> bool:
    return "chosen" in record.options


def _tuned_key(record: Record) -> str:
    """Return the key of a choice in a table: types, integers, and constants that were not tuned."""
    options = record.options
    untuned = {name: item for name, item in _constants(record).items() if name not in options.get("chosen", ())}
    return json.dumps([_plain(record), options.get("when"), untuned, _is_tuned(record)], sort_keys=True)


def _product(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a table with lists of values whose products are exactly these sets, or None."""
    rows = [
        {("constexprs", name): item for name, item in values.get("constexprs", {}).items()}
        | {(key, ""): values.get(key, usual) for key, usual in _KEYS.items()}
        for values in sets
    ]
    columns = {key: _distinct(row.get(key) for row in rows) for key in rows[0]}
    if any(row.keys() != columns.keys() for row in rows) or len(columns["num-ctas", ""]) > 1:
        return None
    if prod(map(len, columns.values())) != len(sets):
        return None
    found: dict[str, Any] = {}
    for (key, name), items in columns.items():
        given = items if len(items) > 1 else items[0]
        if name:
            found.setdefault(key, {})[name] = given
        elif given != _KEYS[key]:
            found[key] = given
    return found


def _distinct(items: Iterable[Any]) -> list[Any]:
    """Return each value once; 1, 1.0 and True differ."""
    return list({repr(item): item for item in items}.values())


def _constants(record: Record) -> dict[str, Any]:
    """Return the constexprs of a record in the notation of tables."""
    return {name: _in_table(item) for name, item in record.options["constants"].items()}


def _in_table(constant: Any) -> Any:
    if constant is None:
        return type_notation.NONE
    return f"tl.{constant['dtype']}" if isinstance(constant, dict) else constant


def _set(record: Record) -> dict[str, Any]:
    options = record.options
    constants = _constants(record)
    found: dict[str, Any] = {"constexprs": constants} if constants else {}
    found |= {
        name.replace("_", "-"): options[name]
        for name, default in config.OPTIONS.items()
        if options.get(name) != default
    }
    if options.get("when"):
        found["when"] = options["when"]
    return found


def _plain(record: Record) -> str:
    return _without_hints(record.options["types"])


def _without_hints(types: Iterable[str]) -> str:
    return ", ".join(item.partition(":")[0] for item in types)


def covers(kernel: Mapping[str, Any], record: Record) -> bool:
    """Return True if a table has a variant for the recorded launch."""
    types = record.options["types"]
    exact = kernel.get("specialise") == "exact"
    return any(
        _has(item, record) and any(_fits(signature, types, exact=exact) for signature in _signatures(item))
        for item in _sets(kernel)
    )


def _signatures(item: Mapping[str, Any]) -> Iterator[str]:
    given = item.get("signatures", item.get("signature", []))
    yield from (text for text in ([given] if isinstance(given, str) else given) if isinstance(text, str))


def _fits(signature: str, types: Sequence[str], *, exact: bool) -> bool:
    wanted = type_notation.split(signature)
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
    for one in kernel.get("configs", [{}]):
        constants = {**own.get("constexprs", {}), **one.get("constexprs", {})}
        both = {**own, **one, "constexprs": constants}
        yield both | ({"signatures": one["signature"]} if "signature" in one else {})


def _has(item: Mapping[str, Any], record: Record) -> bool:
    """Return True if a set of constants is that of a launch; tuned constants may come from any config."""
    options = record.options
    given = item["constexprs"]
    for name, wanted in _constants(record).items():
        if name in options.get("chosen", ()):
            continue
        if name in given and not _is_among(wanted, given[name]):
            return False
        if name not in given and wanted != type_notation.NONE:
            return False
    for name, default in config.OPTIONS.items():
        if not _is_tuned(record) and not _is_among(options.get(name), item.get(name.replace("_", "-"), default)):
            return False
    for name, wanted in options.get("when", {}).items():
        bounds = item.get("when", {}).get(name, wanted)
        low, high = (bounds[0], bounds[-1]) if isinstance(bounds, list) else (bounds, bounds)
        if not low <= wanted <= high:
            return False
    return True


def _is_among(wanted: object, values: object) -> bool:
    return any(repr(item) == repr(wanted) for item in (values if isinstance(values, list) else [values]))
