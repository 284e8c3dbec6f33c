"""Write variants files and tuning files of Triton modules, `norm.variants.json` and `norm.tuning.json` of `norm.py`.

A variants file lists every variant that launches used, and a build compiles them. A tuning file lists the configs that
autotuners chose, by GPU and autotuner's key, and launches use them. docs/files.md describes both formats.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import config, variants_file
from aotcuda.common import foreign
from aotcuda.common.triton_files import TUNING, VARIANTS, VERSION, tuning_name
from aotcuda.errors import ConfigError
from aotcuda.tools.record import packs, pyproject, sizes, tables
from aotcuda.tools.record.project import sources_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Choice, Record
    from aotcuda.tools.record.sizes import Integers
    from aotcuda.tools.record.tables import RecordedKernel

_OPTIONAL = ("maxnreg", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid")
_REMEDY = "remove it, or restore it"
_GPU = re.compile(r"(.*), compute capability (\d+\.\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantModule:
    """A module whose variants are in a file, with the variants that the file lacks.

    Attributes:
        name: Its name in `[tool.aotcuda.modules]`.
        source: The module that defines the kernels.
        file: The variants file.
        file_name: The path of the file from the project's folder, as `variants` has it.
        table: Its table in pyproject.toml; None if there is none yet.
        content: The present content of the file.
        missing: By key of a kernel, its records whose variants the file lacks.
        kernels: By key of a kernel, the recorded kernel.
    """

    name: str
    source: str
    file: Path
    file_name: str
    table: dict[str, Any] | None
    content: dict[str, Any]
    missing: dict[str, list[Record]] = field(default_factory=dict)
    kernels: dict[str, RecordedKernel] = field(default_factory=dict)

    @property
    def count(self) -> str:
        """Return the numbers of variants that the file lacks and of their kernels: `3 variants of 2 kernels`."""
        variants = sum(len({json.dumps(variant(record)) for record in records}) for records in self.missing.values())
        kernels = len(self.missing)
        return f"{variants} variant{'s' * (variants != 1)} of {kernels} kernel{'s' * (kernels != 1)}"

    @property
    def settings(self) -> dict[str, Any]:
        """Return the keys that its table in pyproject.toml lacks."""
        if self.table is None:
            pack = {} if self.name == self.source else {"pack": True}
            return {"source": self.source, "frontend": "triton", "variants": self.file_name, **pack}
        return {} if "variants" in self.table else {"variants": self.file_name}

    @property
    def tuning_file(self) -> Path:
        """Return the path of the tuning file."""
        return _tuning_file(self.file)

    def merged(self) -> dict[str, Any]:
        """Return the content of the file with the missing variants."""
        kernels = dict(self.content["kernels"])
        for key, records in self.missing.items():
            kernel = dict(kernels.get(key, {}))
            parameters = records[0].options["parameters"]
            before = kernel["variants"] if kernel.get("parameters") == parameters else []
            added = {json.dumps(item): item for item in map(variant, records)}
            kernel |= {"parameters": parameters, "variants": [*before, *added.values()]}
            path = tables.kernel_path(self.kernels[key].path)
            kernels[key] = kernel if path == key else {"python": path, **kernel}
        release = _triton_release()
        head = {**self.content, "source": self.source, **({"triton": release} if release else {})}
        head.pop("kernels", None)
        return {**head, "kernels": dict(sorted(kernels.items()))}


def plan(
    kernels: Iterable[RecordedKernel], project: Project, newest: Container[tuple[str, ...]]
) -> list[VariantModule]:
    """Return the modules of kernels whose variants are in files.

    Args:
        kernels: The kernels.
        project: The project.
        newest: The keys of the records of the last run.

    Raises:
        ConfigError: An existing file is no variants file.
    """
    modules: dict[str, VariantModule] = {}
    for kernel in kernels:
        name, table = _module(kernel, project)
        module = modules.get(name) or modules.setdefault(name, _begin(kernel, name, table, project))
        entries = module.content["kernels"]
        path = tables.kernel_path(kernel.path)
        key = next((key for key, entry in entries.items() if entry.get("python", key) == path), None)
        key = key or tables.key_for(path, {*entries, *module.kernels})
        entry = entries.get(key, {})
        module.kernels[key] = select_version(kernel, newest, entry)
        records = module.kernels[key].records
        same = records and entry.get("parameters") == records[0].options["parameters"]
        listed = {_identity(item) for item in entry["variants"]} if same else set()
        missing = [record for record in records if _identity(variant(record)) not in listed]
        if missing:
            module.missing[key] = missing
    return list(modules.values())


def _triton_release() -> str:
    """Return the release of Triton that is installed here; empty if there is none."""
    try:
        return metadata.version("triton").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def select_version(
    kernel: RecordedKernel, newest: Container[tuple[str, ...]], entry: Mapping[str, Any]
) -> RecordedKernel:
    """Return a kernel with the records of one version of its parameters: of the last run, or else of the file."""
    launched = [record for record in kernel.records if record.key in newest]
    last = (launched or kernel.records)[-1].options["parameters"]
    parameters = last if launched else entry.get("parameters", last)
    records = tuple(record for record in kernel.records if record.options["parameters"] == parameters)
    return replace(kernel, records=records)


def variant(record: Record) -> dict[str, Any]:
    """Return the variant that a launch used, as the file has it."""
    options = record.options
    entry: dict[str, Any] = {"types": options["types"], "constexprs": options["constants"]}
    entry |= {name: options[name] for name, default in config.OPTIONS.items() if options[name] != default}
    return entry | {name: options[name] for name in _OPTIONAL if options.get(name) is not None}


def _identity(entry: dict[str, Any]) -> str:
    """Return a text that is equal for variants that differ at most in targets; 1, 1.0 and true differ."""
    return json.dumps({name: value for name, value in entry.items() if name != "arch"}, sort_keys=True)


def _module(kernel: RecordedKernel, project: Project) -> tuple[str, dict[str, Any] | None]:
    """Return the name and table of the module that packages a kernel, or the name of a new module and None."""
    for name, table in project.modules.items():
        if kernel.source in sources_of(table):
            return name, table
    is_packed = packs.is_packed(kernel.records[0], project)
    return (packs.module_name(kernel.source, project) if is_packed else kernel.source), None


def _begin(kernel: RecordedKernel, name: str, table: dict[str, Any] | None, project: Project) -> VariantModule:
    file_name = (table or {}).get("variants")
    if isinstance(file_name, str):
        file = project.root / file_name
    else:
        source = project.file_of(kernel.source) or packs.module_path(name, project)
        file = source.with_name(f"{source.stem}.variants.json")
        file_name = file.relative_to(project.root).as_posix()
    content = read(file, VARIANTS) or {"format": VARIANTS, "version": VERSION, "source": kernel.source, "kernels": {}}
    return VariantModule(name=name, source=kernel.source, file=file, file_name=file_name, table=table, content=content)


def read(path: Path, kind: str) -> dict[str, Any] | None:
    """Return the content of a variants or tuning file, None if there is none.

    Raises:
        ConfigError: It is not such a file, or it is damaged.
    """
    return _check(path, _load(path, _REMEDY), kind) if path.exists() else None


def _load(path: Path, remedy: str) -> Any:
    """Return the JSON value of a file; None if the file is not JSON."""
    try:
        return json.loads(foreign.read(path, variants_file.LARGEST, remedy=remedy, error=ConfigError))
    except (ValueError, RecursionError):
        return None


def _check(path: Path, content: Any, kind: str) -> dict[str, Any]:
    """Return the content of a file after a check of its form."""
    try:
        is_valid = (
            content["format"] == kind
            and content["version"] == VERSION
            and isinstance(content["source"], str)
            and all(map(_is_variants if kind == VARIANTS else _is_tuning, content["kernels"].values()))
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        is_valid = False
    if not is_valid:
        message = f"{path} is no file of {kind.removeprefix('aotcuda ')} of version {VERSION}; {_REMEDY}"
        raise ConfigError(message)
    return content  # type: ignore[no-any-return]


def _is_variants(kernel: dict[str, Any]) -> bool:
    return isinstance(kernel["parameters"], list) and all(isinstance(item, dict) for item in kernel["variants"])


def _is_tuning(kernel: dict[str, Any]) -> bool:
    """Return True for a kernel of a tuning file whose choices are indices of its configs."""
    indices = range(len([*kernel["configs"]]))
    choices = [
        index for gpu in kernel["gpus"].values() for index in (gpu["default"], *(index for _, index in gpu["choices"]))
    ]
    return isinstance(kernel["keys"], list) and all(type(index) is int and index in indices for index in choices)


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


def merge(path: Path, project: Project) -> Path | None:
    """Merge a variants or tuning file into the file of the project's module with the same source.

    Returns:
        The changed file, or None if `path` is a file of another kind.

    Raises:
        ConfigError: The project has no such module, or one of the files is damaged.
    """
    content = _load(path, "name another file")
    kind = content.get("format") if isinstance(content, dict) else None
    if kind not in (VARIANTS, TUNING):
        return None
    other = _check(path, content, kind)
    for module in project.modules.values():
        if isinstance(module.get("variants"), str) and other["source"] in sources_of(module):
            variants = project.root / module["variants"]
            file = variants if kind == VARIANTS else _tuning_file(variants)
            before = read(file, kind)
            merge_kernels = _merge_variants if kind == VARIANTS else _merge_tuning
            write(file, other if before is None else merge_kernels(before, other))
            return file
    message = (
        f"{path}: no module of {project.pyproject} has the source {other['source']} and a variants file; add it first"
    )
    raise ConfigError(message)


def _tuning_file(variants: Path) -> Path:
    """Return the tuning file of a variants file."""
    return variants.with_name(tuning_name(variants.name))


def contents(
    modules: Iterable[VariantModule],
    choices: Iterable[Choice],
    newest: Iterable[Choice],
    integers: Sequence[Integers] = (),
) -> dict[Path, dict[str, Any]]:
    """Return the new contents of variants files and tuning files.

    Args:
        modules: The modules.
        choices: The choices of all runs.
        newest: The choices of the last run.
        integers: The integers of the launches of all runs.

    Raises:
        ConfigError: An existing file is damaged.
    """
    newest_orders = {choice.order for choice in newest}
    files = {}
    for module in modules:
        content = _with_sizes(module, module.merged() if module.missing else module.content, integers)
        if module.missing or content != module.content:
            files[module.file] = content
        tuning = _with_choices(module, choices, newest_orders)
        if tuning is not None:
            files[module.tuning_file] = tuning
    return files


def _with_sizes(module: VariantModule, content: dict[str, Any], integers: Sequence[Integers]) -> dict[str, Any]:
    """Return the content of a variants file with the sizes of the kernels, and the constants that users may vary."""
    kernels = dict(content["kernels"])
    for key, kernel in module.kernels.items():
        items = sizes.for_kernel(kernel.source, tables.kernel_path(kernel.path), integers)
        entry = kernels.get(key)
        if entry is None or not items:
            continue
        found = sizes.of(items)
        recorded = {_identity(variant(record)) for record in kernel.records}
        if "sizes" in entry and not all(_identity(item) in recorded for item in entry["variants"]):
            found = sizes.join(sizes.known(entry["sizes"]), found)  # the file has launches that the records lack
        fixed = sizes.fixed((record.options for record in kernel.records), items)
        more = {"sizes": found, **({"fixed": fixed} if fixed else {})}
        last = {"variants": entry["variants"]}
        kernels[key] = {name: item for name, item in entry.items() if name not in (*last, *more)} | more | last
    return {**content, "kernels": kernels}


def _with_choices(
    module: VariantModule, choices: Iterable[Choice], newest: Container[tuple[str, ...]]
) -> dict[str, Any] | None:
    """Return the content of a module's tuning file with these choices, None if there are none.

    A recorded choice replaces the choice in the file for the same GPU and key. Of several recorded choices for one key,
    the one with the most launches counts. The default of a GPU is the config with the most launches.
    """
    paths: dict[str, list[Choice]] = {}
    for choice in choices:
        if choice.module == module.source and choice.path is not None:
            paths.setdefault(tables.kernel_path(choice.path), []).append(choice)
    before = read(module.tuning_file, TUNING)
    if not paths:
        return before
    content = before or {"format": TUNING, "version": VERSION, "source": module.source, "kernels": {}}
    kernels = dict(content["kernels"])
    for path, items in paths.items():
        key = next((key for key, kernel in module.kernels.items() if tables.kernel_path(kernel.path) == path), path)
        kernels[key] = _tuned_kernel(kernels.get(key, {}), items, newest)
    return {**content, "kernels": dict(sorted(kernels.items()))}


def _tuned_kernel(
    before: dict[str, Any], choices: Sequence[Choice], newest: Container[tuple[str, ...]]
) -> dict[str, Any]:
    """Return the entry of an autotuned kernel with the choices for the keys of the last run, or else of the file."""
    chosen = [choice for choice in choices if choice.order in newest]
    last = (chosen or choices)[-1].keys
    keys = last if chosen else before.get("keys", last)
    kernel: dict[str, Any] = before if before.get("keys") == keys else {"configs": [], "gpus": {}}
    configs = list(kernel["configs"])
    counts: dict[str, dict[str, Counter[int]]] = {}
    timings: dict[str, dict[str, list[Any]]] = {}
    for choice in choices:
        if choice.keys != keys:
            continue
        index = _index(configs, choice.config)
        for gpu, rows in choice.timings.items():
            timings.setdefault(gpu, {})[json.dumps(choice.key)] = [
                [_index(configs, config), times] for config, times in rows
            ]
        for gpu, count in choice.launches.items():
            counts.setdefault(gpu, {}).setdefault(json.dumps(choice.key), Counter())[index] += count
    gpus = dict(kernel["gpus"])
    for label, by_key in counts.items():
        parts = _GPU.fullmatch(label)
        name, capability = (parts[1], parts[2]) if parts else (label, "")
        launches: Counter[int] = sum(by_key.values(), Counter())
        more = {key: count.most_common(1)[0][0] for key, count in by_key.items()}
        facts = {"capability": capability, "default": launches.most_common(1)[0][0]}
        timed = _merge_timings(gpus.get(name), timings.get(label, {}))
        gpus[name] = {**facts, "choices": _merge_choices(gpus.get(name), more), **timed}
    return {"keys": keys, "configs": configs, "gpus": dict(sorted(gpus.items()))}


def _merge_choices(before: dict[str, Any] | None, more: dict[str, int]) -> list[list[Any]]:
    """Return a GPU's choices merged with `more`, by the JSON of their keys; `more` counts for equal keys."""
    choices = {json.dumps(key): index for key, index in (before or {}).get("choices", ())} | more
    return [[json.loads(key), index] for key, index in sorted(choices.items())]


def _merge_timings(before: dict[str, Any] | None, more: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return a GPU's timings merged with `more`, by the JSON of their keys; nothing if there are none."""
    timings = {json.dumps(key): rows for key, rows in (before or {}).get("timings", ())} | more
    return {"timings": [[json.loads(key), rows] for key, rows in sorted(timings.items())]} if timings else {}


def _index(configs: list[dict[str, Any]], config: dict[str, Any]) -> int:
    """Return the index of a config in a list; a new config is appended."""
    text = json.dumps(config, sort_keys=True)
    for index, item in enumerate(configs):
        if json.dumps(item, sort_keys=True) == text:
            return index
    configs.append(config)
    return len(configs) - 1


def _merge_variants(content: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two variants files of one source; the second file has precedence if a kernel's parameters differ."""
    kernels = dict(content["kernels"])
    for key, kernel in other["kernels"].items():
        before = kernels.get(key)
        if before is not None and before.get("parameters") == kernel.get("parameters"):
            entries = {_identity(entry): entry for entry in (*before["variants"], *kernel["variants"])}
            both = "sizes" in before and "sizes" in kernel
            more = {"sizes": sizes.join(*(sizes.known(each["sizes"]) for each in (before, kernel)))} if both else {}
            fixed = sorted({*before.get("fixed", ()), *kernel.get("fixed", ())})
            more |= {"fixed": fixed} if fixed else {}
            kernels[key] = {**before, **kernel, **more, "variants": list(entries.values())}
        else:
            kernels[key] = kernel
    return {**content, "kernels": dict(sorted(kernels.items()))}


def _merge_tuning(content: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two tuning files of one source; the second file has precedence for the same GPU and key."""
    kernels = dict(content["kernels"])
    for key, kernel in other["kernels"].items():
        before = kernels.get(key)
        if before is None or before["keys"] != kernel["keys"]:
            kernels[key] = kernel
            continue
        configs = list(before["configs"])
        indices = [_index(configs, item) for item in kernel["configs"]]
        gpus = dict(before["gpus"])
        for name, gpu in kernel["gpus"].items():
            more = {json.dumps(item): indices[index] for item, index in gpu["choices"]}
            rows = {
                json.dumps(item): [[indices[index], times] for index, times in timed]
                for item, timed in gpu.get("timings", ())
            }
            timings = _merge_timings(gpus.get(name), rows)
            choices = _merge_choices(gpus.get(name), more)
            gpus[name] = {**gpu, "default": indices[gpu["default"]], "choices": choices, **timings}
        kernels[key] = {**kernel, "configs": configs, "gpus": dict(sorted(gpus.items()))}
    return {**content, "kernels": dict(sorted(kernels.items()))}
