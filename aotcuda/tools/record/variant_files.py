"""Write variants files and tuning files of Triton modules, `norm.variants.json` and `norm.tuning.json` of `norm.py`.

A variants file lists every variant that launches used, and a build compiles them. A tuning file lists the configs that
autotuners chose, by GPU and autotuner's key, and launches use them. docs/files.md describes both formats.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import config, variants_file
from aotcuda.common import foreign
from aotcuda.common.triton_files import TUNING, VARIANTS, VERSION
from aotcuda.errors import ConfigError
from aotcuda.tools.record import packs, pyproject, tables, variants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Choice, Record
    from aotcuda.tools.record.tables import Wanted

_OPTIONAL = ("maxnreg", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid")
_GPU = re.compile(r"(.*), compute capability (\d+\.\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantModule:
    """A module whose variants are in a file, with the variants that the file lacks.

    Attributes:
        module: Its name in `[tool.aotcuda.modules]`.
        source: The module that defines the kernels.
        file: The variants file.
        name: The path of the file from the project's folder, as `variants` has it.
        table: Its table in pyproject.toml; None if there is none yet.
        content: The present content of the file.
        missing: By key of a kernel, its records whose variants the file lacks.
        wanted: By key of a kernel, the recorded kernel.
    """

    module: str
    source: str
    file: Path
    name: str
    table: dict[str, Any] | None
    content: dict[str, Any]
    missing: dict[str, list[Record]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of variants that the file lacks."""
        return sum(len({json.dumps(variant(record)) for record in records}) for records in self.missing.values())

    @property
    def settings(self) -> dict[str, Any]:
        """Return the keys that its table in pyproject.toml lacks."""
        if self.table is None:
            pack = {} if self.module == self.source else {"pack": True}
            return {"source": self.source, "frontend": "triton", "variants": self.name, **pack}
        return {} if "variants" in self.table else {"variants": self.name}

    @property
    def tuning_file(self) -> Path:
        """Return the path of the tuning file."""
        return tuning_file(self.file)

    def merged(self) -> dict[str, Any]:
        """Return the content of the file with the missing variants."""
        kernels = dict(self.content["kernels"])
        for key, records in self.missing.items():
            kernel = dict(kernels.get(key, {}))
            parameters = records[0].options["parameters"]
            before = kernel.get("variants", []) if kernel.get("parameters") == parameters else []
            added = {json.dumps(item): item for item in map(variant, records)}
            kernel |= {"parameters": parameters, "variants": [*before, *added.values()]}
            path = tables.kernel_path(self.wanted[key].path)
            kernels[key] = kernel if path == key else {"python": path, **kernel}
        return {**self.content, "source": self.source, "kernels": dict(sorted(kernels.items()))}


def plan(wanted: Iterable[Wanted], owner: Project) -> list[VariantModule]:
    """Return the modules of kernels whose variants are in files.

    Raises:
        ConfigError: An existing file is no variants file.
    """
    found: dict[str, VariantModule] = {}
    for item in wanted:
        name, table = _module(item, owner)
        module = found.get(name) or found.setdefault(name, _begin(item, name, table, owner))
        kernels = module.content["kernels"]
        path = tables.kernel_path(item.path)
        key = next((key for key, kernel in kernels.items() if kernel.get("python", key) == path), None)
        key = key or tables.key_for(path, {*kernels, *module.wanted})
        module.wanted[key] = item
        kernel = kernels.get(key, {})
        same = kernel.get("parameters") == item.records[0].options["parameters"]
        known = {_identity(entry) for entry in kernel.get("variants", ())} if same else set()
        missing = [record for record in item.records if _identity(variant(record)) not in known]
        if missing:
            module.missing[key] = missing
    return list(found.values())


def split(wanted: Iterable[Wanted], owner: Project) -> tuple[list[Wanted], list[Wanted]]:
    """Return the kernels of pyproject.toml, and those of variants files."""
    in_toml: list[Wanted] = []
    in_files: list[Wanted] = []
    for item in wanted:
        is_file = variants.has_variants(item.records[0]) and not tables.is_in_table(owner.aotcuda, item.source)
        (in_files if is_file else in_toml).append(item)
    return in_toml, in_files


def variant(record: Record) -> dict[str, Any]:
    """Return the variant that a launch used, as the file has it."""
    options = record.options
    found: dict[str, Any] = {"types": options["types"], "constexprs": options["constants"]}
    found |= {name: options[name] for name, usual in config.OPTIONS.items() if options[name] != usual}
    return found | {name: options[name] for name in _OPTIONAL if options.get(name) is not None}


def _identity(entry: dict[str, Any]) -> str:
    """Return a text that is equal for variants that differ at most in targets; 1, 1.0 and true differ."""
    return json.dumps({name: value for name, value in entry.items() if name != "arch"}, sort_keys=True)


def _module(item: Wanted, owner: Project) -> tuple[str, dict[str, Any] | None]:
    """Return the name and table of the module that packages a kernel, or the name of a new module and None."""
    modules = owner.aotcuda.get("modules")
    for name, table in (modules if isinstance(modules, dict) else {}).items():
        if isinstance(table, dict) and item.source in (table.get("source"), *_listed(table.get("source"))):
            return name, table
    return (packs.module_name(item.source, owner) if packs.is_packed(item.records[0], owner) else item.source), None


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _begin(item: Wanted, name: str, table: dict[str, Any] | None, owner: Project) -> VariantModule:
    given = (table or {}).get("variants")
    if isinstance(given, str):
        file = owner.root / given
    else:
        source = owner.file_of(item.source) or packs.module_path(name, owner)
        file = source.with_name(f"{source.stem}.variants.json")
    content = read(file, VARIANTS) or {"format": VARIANTS, "version": VERSION, "source": item.source, "kernels": {}}
    return VariantModule(
        module=name,
        source=item.source,
        file=file,
        name=given if isinstance(given, str) else file.relative_to(owner.root).as_posix(),
        table=table,
        content=content,
    )


def read(path: Path, kind: str) -> dict[str, Any] | None:
    """Return the content of a variants or tuning file, None if there is none.

    Raises:
        ConfigError: It is not such a file.
    """
    if not path.exists():
        return None
    remedy = "remove it, or restore it"
    try:
        found = json.loads(foreign.read(path, variants_file.LARGEST, remedy=remedy, error=ConfigError))
        is_one = (
            found["format"] == kind
            and found["version"] == VERSION
            and all(isinstance(kernel, dict) for kernel in found["kernels"].values())
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_one = False
    if not is_one:
        message = f"{path} is no file of {kind.removeprefix('aotcuda ')} of version {VERSION}; {remedy}"
        raise ConfigError(message)
    return found  # type: ignore[no-any-return]


def write(path: Path, content: dict[str, Any]) -> bool:
    """Write a file, with one variant or choice in a line; return False if it has this content already.

    Raises:
        ConfigError: It cannot be written.
    """
    text = _text(content)
    if path.exists() and path.read_bytes() == text.encode():
        return False
    pyproject.write(path, text)
    return True


def _text(value: Any, depth: int = 0) -> str:
    """Return JSON with variants, choices and lists of plain values in a line each."""
    items = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    is_plain = not any(isinstance(item, dict | list) for item in items)
    is_entry = not {"types", "kwargs"}.isdisjoint(value) if isinstance(value, dict) else False
    is_choice = isinstance(value, list) and bool(items) and isinstance(items[-1], int)
    if is_plain or is_entry or is_choice:
        return json.dumps(value, ensure_ascii=False)
    space = "  " * (depth + 1)
    if isinstance(value, dict):
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {_text(item, depth + 1)}" for key, item in value.items()]
    else:
        lines = [_text(item, depth + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    text = opening + ",".join(f"\n{space}{line}" for line in lines) + f"\n{'  ' * depth}{closing}"
    return text if depth else f"{text}\n"


def kind_of(path: Path) -> str | None:
    """Return the kind of a file, `VARIANTS` or `TUNING`; None if it is neither.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        found = json.loads(foreign.read(path, variants_file.LARGEST, remedy="name another file", error=ConfigError))
    except (ValueError, RecursionError):
        return None
    kind = found.get("format") if isinstance(found, dict) else None
    return kind if kind in (VARIANTS, TUNING) else None


def merge(path: Path, kind: str, owner: Project) -> Path:
    """Merge a variants or tuning file into that of the project's module with the same source; return the latter.

    Raises:
        ConfigError: The project has no such module, or one of the files is damaged.
    """
    given = read(path, kind)
    assert given is not None  # noqa: S101 (`kind_of` has read it)
    modules = owner.aotcuda.get("modules")
    for table in (modules if isinstance(modules, dict) else {}).values():
        if (
            isinstance(table, dict)
            and isinstance(table.get("variants"), str)
            and table.get("source") == given["source"]
        ):
            file = owner.root / table["variants"]
            file = file if kind == VARIANTS else tuning_file(file)
            before = read(file, kind)
            merged = merged_variants if kind == VARIANTS else merged_tuning
            write(file, given if before is None else merged(before, given))
            return file
    message = (
        f"{path}: no module of {owner.pyproject} has the source {given['source']} and a variants file; add it first"
    )
    raise ConfigError(message)


def tuning_file(file: Path) -> Path:
    """Return the tuning file of a variants file."""
    return file.with_name(variants_file.tuning_name(file.name))


def with_choices(module: VariantModule, choices: Sequence[Choice]) -> dict[str, Any] | None:
    """Return the content of a module's tuning file with these choices, None if there are none.

    A recorded choice replaces the choice in the file for the same GPU and key. Of several recorded choices for one key,
    the one with the most launches counts. The default of a GPU is the config with the most launches.

    Raises:
        ConfigError: The existing file is no tuning file.
    """
    own = [choice for choice in choices if choice.module == module.source and choice.path is not None]
    before = read(module.tuning_file, TUNING)
    if not own:
        return before
    found = before or {"format": TUNING, "version": VERSION, "source": module.source, "kernels": {}}
    kernels = dict(found["kernels"])
    for path in dict.fromkeys(tables.kernel_path(str(choice.path)) for choice in own):
        of_kernel = [choice for choice in own if tables.kernel_path(str(choice.path)) == path]
        key = next((key for key, item in module.wanted.items() if tables.kernel_path(item.path) == path), path)
        kernels[key] = _tuned_kernel(kernels.get(key), of_kernel)
    return {**found, "kernels": dict(sorted(kernels.items()))}


def _tuned_kernel(before: dict[str, Any] | None, choices: Sequence[Choice]) -> dict[str, Any]:
    keys = choices[-1].keys
    same = before is not None and before["keys"] == keys
    kernel: dict[str, Any] = before if before is not None and same else {"configs": [], "gpus": {}}
    configs = list(kernel["configs"])
    counts: dict[str, dict[str, Counter[int]]] = {}
    for choice in choices:
        if choice.keys != keys:
            continue
        at = _index(configs, choice.config)
        for gpu, count in choice.launches.items():
            counts.setdefault(gpu, {}).setdefault(json.dumps(choice.key), Counter())[at] += count
    gpus = dict(kernel["gpus"])
    for label, by_key in counts.items():
        parts = _GPU.fullmatch(label)
        name, capability = (parts[1], parts[2]) if parts else (label, "")
        launches: Counter[int] = sum(by_key.values(), Counter())
        more = {key: count.most_common(1)[0][0] for key, count in by_key.items()}
        facts = {"capability": capability, "default": launches.most_common(1)[0][0]}
        gpus[name] = {**facts, "choices": _with_choices(gpus.get(name), more)}
    return {"keys": keys, "configs": configs, "gpus": dict(sorted(gpus.items()))}


def _with_choices(before: dict[str, Any] | None, more: dict[str, int]) -> list[list[Any]]:
    """Return a GPU's choices merged with `more`, by the JSON of their keys; `more` counts for equal keys."""
    known = {json.dumps(key): at for key, at in (before or {}).get("choices", ())} | more
    return [[json.loads(key), at] for key, at in sorted(known.items())]


def _index(configs: list[dict[str, Any]], wanted: dict[str, Any]) -> int:
    """Return the index of a config in a list; a new config is appended."""
    text = json.dumps(wanted, sort_keys=True)
    for at, item in enumerate(configs):
        if json.dumps(item, sort_keys=True) == text:
            return at
    configs.append(wanted)
    return len(configs) - 1


def merged_variants(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two variants files of one source; the second file has precedence if a kernel's parameters differ."""
    kernels = dict(one["kernels"])
    for key, kernel in other["kernels"].items():
        before = kernels.get(key)
        if before is not None and before.get("parameters") == kernel.get("parameters"):
            entries = {_identity(entry): entry for entry in (*before["variants"], *kernel["variants"])}
            kernel = {**kernel, "variants": list(entries.values())}  # noqa: PLW2901
        kernels[key] = kernel
    return {**one, "kernels": dict(sorted(kernels.items()))}


def merged_tuning(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two tuning files of one source; the second file has precedence for the same GPU and key."""
    kernels = dict(one["kernels"])
    for key, kernel in other["kernels"].items():
        before = kernels.get(key)
        if before is None or before["keys"] != kernel["keys"]:
            kernels[key] = kernel
            continue
        configs = list(before["configs"])
        places = [_index(configs, item) for item in kernel["configs"]]
        gpus = dict(before["gpus"])
        for name, gpu in kernel["gpus"].items():
            more = {json.dumps(item): places[at] for item, at in gpu["choices"]}
            gpus[name] = {**gpu, "default": places[gpu["default"]], "choices": _with_choices(gpus.get(name), more)}
        kernels[key] = {**kernel, "configs": configs, "gpus": dict(sorted(gpus.items()))}
    return {**one, "kernels": dict(sorted(kernels.items()))}
