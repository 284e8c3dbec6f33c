"""Turn records of kernels with variants, such as Triton's, into tables, and compare them with existing tables.

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

from aotcuda.builder.frontends.triton import type_notation
from aotcuda.builder.frontends.triton.config import OPTIONS
from aotcuda.common.project_file import strings, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aotcuda.tools.record.records import Record


_NAMES = {name.replace("_", "-"): name for name in OPTIONS}
"""The keys of options in tables, with their names in records."""

_DEFAULTS = {key: OPTIONS[name] for key, name in _NAMES.items()}
"""The keys of options in tables, with their defaults."""


@dataclass(frozen=True, slots=True)
class _Config:
    """Constants and options that go together, with the types that they were launched with.

    Attributes:
        values: The keys for a table or for an item of `configs`.
        types: The types of each of its signatures, without hints.
    """

    values: dict[str, Any]
    types: set[str]


def has_variants(record: Record) -> bool:
    """Return True if the front end of a record packages variants."""
    return "types" in record.options


def refusal(record: Record, *, for_table: bool) -> str | None:
    """Return the reason for which a build refuses a record, or None; a table cannot express all constants."""
    if not has_variants(record):
        return None
    place = ""
    try:
        for text in record.options["types"]:
            type_notation.parse_signature(text)
        for name, constant in record.options["constants"].items() if for_table else ():
            place = f"{name}: "
            if isinstance(constant, str) and (constant == type_notation.NONE or constant.startswith("tl.")):
                return f"{name} is a string that tables have another meaning for, which none can hold"
            type_notation.check_constant(_notation(constant))
    except ValueError as error:
        return f"{place}{error}"
    return None


def kernel_table(records: Sequence[Record], python: str | None) -> dict[str, Any]:
    """Return the value of a kernel's key in a table, with the variants of all its records."""
    # A launch selects the first signature that fits, and Triton's JIT compiles for all hints that hold.
    distinct = dict.fromkeys(", ".join(record.options["types"]) for record in records)
    signatures = sorted(distinct, key=lambda text: -text.count(":"))
    values = {**({} if python is None else {"python": python}), "signatures": signatures, "specialise": "exact"}
    configs = _configs(records)
    all_types = {_types(record) for record in records}
    if all(config.types == all_types and "when" not in config.values for config in configs):
        product = _product([config.values for config in configs])
        if product is not None:
            return values | product
    items = []
    for config in configs:
        fitting = [text for text in signatures if _without_hints(type_notation.split(text)) in config.types]
        items.append(config.values | ({} if config.types == all_types else {"signatures": fitting}))
    return values | {"configs": items}


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes for the reader of a kernel's table, one sentence each."""
    computed = dict.fromkeys(name for record in records for name in record.options.get("computed", ()))
    texts = []
    if computed:
        texts.append(
            f"@triton.heuristics computes {' and '.join(computed)}: launches of the packaged kernel have to name "
            f"{'it' if len(computed) == 1 else 'them'}"
        )
    tuned = {json.dumps([_tuned_key(record), _values(record)]) for record in records if _is_tuned(record)}
    if len(_choices(records)) < len(tuned):
        texts.append("several configs were chosen for the same arguments: the one of most launches is written")
    return texts


def _configs(records: Sequence[Record]) -> list[_Config]:
    """Return the distinct configs, ordered so that a launch matches its own config first.

    Configs with conditions on integers come before configs without. Configs with default options come first, because
    launches may leave these options out.
    """
    choices = _choices(records)
    configs: dict[str, _Config] = {}
    for record in records:
        values = choices.get(_tuned_key(record)) or _values(record)
        configs.setdefault(json.dumps(values, sort_keys=True), _Config(values, set())).types.add(_types(record))
    return sorted(
        configs.values(),
        key=lambda item: (-len(item.values.get("when", ())), [key in item.values for key in _DEFAULTS]),
    )


def _choices(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Return the choice for each key of an autotuner; of several, the one with the most launches.

    Two runs may measure different times for the same configs.
    """
    counts: dict[str, Counter[str]] = {}
    for record in records:
        if _is_tuned(record):
            counts.setdefault(_tuned_key(record), Counter())[json.dumps(_values(record))] += record.count
    return {key: json.loads(count.most_common(1)[0][0]) for key, count in counts.items()}


def _is_tuned(record: Record) -> bool:
    return "chosen" in record.options


def _tuned_key(record: Record) -> str:
    """Return the key of a choice in a table: types, integers, and constants that were not tuned."""
    options = record.options
    untuned = {name: item for name, item in _constants(record).items() if name not in options.get("chosen", ())}
    return json.dumps([_types(record), options.get("when"), untuned, _is_tuned(record)], sort_keys=True)


def _product(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a table with lists of values whose products are exactly these configs, or None."""
    rows = [
        {("constexprs", name): item for name, item in values.get("constexprs", {}).items()}
        | {(key, ""): values.get(key, default) for key, default in _DEFAULTS.items()}
        for values in configs
    ]
    columns = {key: _distinct(row.get(key) for row in rows) for key in rows[0]}
    if any(row.keys() != columns.keys() for row in rows) or len(columns["num-ctas", ""]) > 1:
        return None
    if prod(map(len, columns.values())) != len(configs):
        return None
    product: dict[str, Any] = {}
    for (key, name), items in columns.items():
        value = items if len(items) > 1 else items[0]
        if name:
            product.setdefault(key, {})[name] = value
        elif value != _DEFAULTS[key]:
            product[key] = value
    return product


def _distinct(items: Iterable[Any]) -> list[Any]:
    """Return each value once; 1, 1.0 and True differ."""
    return list({repr(item): item for item in items}.values())


def _constants(record: Record) -> dict[str, Any]:
    """Return the constexprs of a record in the notation of tables."""
    return {name: _notation(item) for name, item in record.options["constants"].items()}


def _notation(constant: Any) -> Any:
    """Return a constant in the notation of tables."""
    if constant is None:
        return type_notation.NONE
    return f"tl.{constant['dtype']}" if isinstance(constant, dict) else constant


def _values(record: Record) -> dict[str, Any]:
    """Return the constants, options and conditions of a record as keys of a table."""
    options = record.options
    constants = _constants(record)
    values: dict[str, Any] = {"constexprs": constants} if constants else {}
    values |= {key: options[name] for key, name in _NAMES.items() if options.get(name) != _DEFAULTS[key]}
    if options.get("when"):
        values["when"] = options["when"]
    return values


def _types(record: Record) -> str:
    return _without_hints(record.options["types"])


def _without_hints(types: Iterable[str]) -> str:
    return ", ".join(text.partition(":")[0] for text in types)


def covers(kernel: Mapping[str, Any], record: Record) -> bool:
    """Return True if a table has a variant for the recorded launch."""
    types = record.options["types"]
    exact = kernel.get("specialise") == "exact"
    return any(
        _matches(config, record) and any(_fits(signature, types, exact=exact) for signature in _signatures(config))
        for config in _table_configs(kernel)
    )


def _signatures(config: Mapping[str, Any]) -> list[str]:
    value = config.get("signatures", config.get("signature", []))
    return strings(value if isinstance(value, list) else [value])


def _fits(signature: str, types: Sequence[str], *, exact: bool) -> bool:
    """Return True if a packaged signature accepts the types of a launch."""
    packaged = type_notation.split(signature)
    if len(packaged) != len(types):
        return False
    for text, launched in zip(packaged, types, strict=True):
        kind, _, hint = text.partition(":")
        launched_kind, _, launched_hint = launched.partition(":")
        if kind != launched_kind or (hint != launched_hint and (hint or exact)):
            return False
    return True


def _table_configs(kernel: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the configs of a table, each with the keys that all of them share. The build reports malformed values."""
    shared = {name: item for name, item in kernel.items() if name != "configs"}
    configs = kernel.get("configs", [{}])
    for config in map(table, configs if isinstance(configs, list) else ()):
        values = {**shared, **config, "constexprs": {**table(shared, "constexprs"), **table(config, "constexprs")}}
        yield values | ({"signatures": config["signature"]} if "signature" in config else {})


def _matches(config: Mapping[str, Any], record: Record) -> bool:
    """Return True if a config has the constants of a launch; tuned constants may come from any config."""
    options = record.options
    packaged = config["constexprs"]
    for name, value in _constants(record).items():
        if name in options.get("chosen", ()):
            continue
        if name in packaged and not _is_among(value, packaged[name]):
            return False
        if name not in packaged and value != type_notation.NONE:
            return False
    for key, name in _NAMES.items():
        if not _is_tuned(record) and not _is_among(options.get(name), config.get(key, _DEFAULTS[key])):
            return False
    for name, value in options.get("when", {}).items():
        bounds = table(config, "when").get(name, value)
        low, high = (bounds[0], bounds[-1]) if isinstance(bounds, list) else (bounds, bounds)
        if not low <= value <= high:
            return False
    return True


def _is_among(value: object, values: object) -> bool:
    return any(repr(item) == repr(value) for item in (values if isinstance(values, list) else [values]))
