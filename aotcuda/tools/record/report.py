"""Messages of `aotcuda record`: tables go to standard output, all else to standard error."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import foreign
from aotcuda.tools.record import pyproject, tables, variants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from aotcuda.tools.record.collect import Run
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record
    from aotcuda.tools.record.tables import Addition, LeftOut
    from aotcuda.tools.record.variant_files import VariantModule


_DRY = "not executed"
"""The name under which the recorder counts launches of `--dry`, in place of a GPU's name."""


def say(text: str) -> None:
    """Print one message."""
    foreign.show(f"aotcuda: {text}", sys.stderr)


def print_summary(done: Run, owner: Project, runs: str) -> None:
    """Print the numbers of recorded kernels, their GPUs, and the kernels that are left out."""
    wanted, left_out, others = tables.sort(done.records, owner)
    gpus: Counter[str] = Counter()
    for record in done.records:
        gpus.update(record.launches)
    functions = {(record.module, record.function) for record in done.records if record.kind == "kernel"}
    functions |= {(item.digest, item.name.partition("<")[0]) for item in done.cuda_cpp}
    gpus.update({_DRY: sum(item.count for item in done.cuda_cpp)} if done.cuda_cpp else {})
    devices = {(record.module, record.function) for record in done.records if record.kind == "device"}
    where = ", ".join(f"{count} {'' if gpu == _DRY else 'on '}{gpu}" for gpu, count in sorted(gpus.items()))
    say(
        f"recorded {_number(gpus.total(), 'launch', 'launches')}{f' ({where})' if where else ''}: "
        f"{_number(len(functions), 'kernel')}, {_number(len(devices), 'device function')}{runs}"
    )
    eager = sum(not record.launches for item in wanted for record in item.records)
    if eager:
        say(f"{_number(eager, 'signature')} of @cuda.jit(...) never launched; the tables have them too")
    if others:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(others.items()))
        say(f"left out: launches of other packages' kernels ({counts})")
    groups: dict[tuple[str, ...], list[Record]] = {}
    for item in left_out:
        record = item.record
        groups.setdefault((record.place, f"{record.module}.{record.function}", item.reason), []).append(record)
    for (place, name, reason), records in groups.items():
        signatures = {record.signature for record in records}
        shown = records[0].signature if len(signatures) == 1 else f"({len(signatures)} signatures)"
        launches = _number(sum(record.count for record in records), "launch", "launches")
        say(f"left out: {place}: {name} {shown}: {reason} ({launches})")


def print_first_result(done: Run) -> None:
    """Print the first place that read the result of a launch."""
    for call, site in done.results[:1]:
        say(
            f"{site}: {call} reads the result of a recorded launch; nothing was executed, so later launches "
            "of the program may differ (--execute runs kernels)"
        )


def print_failure(status: int, *, recorded: bool) -> None:
    """Print the exit status of a command whose launches were not executed."""
    launches = "its launches until then are recorded" if recorded else "it launched nothing"
    say(f"the command ended with exit status {status}, as programs may that need results; {launches}")


def missing_signatures(additions: Iterable[Addition]) -> list[str]:
    """Return the missing signatures of a table, one per line."""
    return [
        f"{record.place}: {item.wanted.path}: {record.signature} is not in "
        f'tool.aotcuda.modules."{item.module}".kernels{_launched(record)}'
        for item in additions
        for record in item.records
    ]


def missing_variants(modules: Iterable[VariantModule]) -> list[str]:
    """Return the missing variants of files, one per line."""
    return [
        f"{record.place}: {module.wanted[key].path}: {record.signature} is not in {module.name}{_launched(record)}"
        for module in modules
        for key, records in module.missing.items()
        for record in records
    ]


def completeness(left_out: Sequence[LeftOut]) -> str:
    """Return a message that the tables are complete, except for kernels that `print_summary` lists."""
    said = "the table has every signature that was launched"
    return f"{said}, but for {_number(len(left_out), 'signature')} of what was left out above" if left_out else said


def additions(merged: Iterable[Addition]) -> list[str]:
    """Return a line for each merged signature, and for each kernel that the user has to extend."""
    return [
        f"{item.wanted.path} was launched with more than {_key(item)} has; write there what else is wanted of "
        f"{pyproject.assignment(item.kernel, pyproject.kernel_value(item))}"
        if item.is_by_hand
        else f'added to tool.aotcuda.modules."{item.module}".kernels.{pyproject.quote_key(item.kernel)}: {signature}'
        for item in merged
        for signature in (item.signatures[:1] if item.is_by_hand else item.signatures)
    ]


def notes(additions: Iterable[Addition]) -> list[str]:
    """Return notes on merged kernels."""
    return [f"{item.wanted.path}: {note}" for item in additions for note in item.notes]


def added_variants(modules: Iterable[VariantModule], written: Sequence[Path], owner: Project) -> list[str]:
    """Return a line for each variants or tuning file that was written, and for each module to edit."""
    found = []
    for module in modules:
        if module.missing:
            kernels = _number(len(module.missing), "kernel")
            found.append(f"added to {module.name}: {_number(module.count, 'variant')} of {kernels}")
        if module.tuning_file in written:
            found.append(f"added to {module.tuning_file.relative_to(owner.root)}: choices of autotuners")
        source = owner.file_of(module.source)
        if module.table is None and source is not None and b"aotcuda.triton" not in source.read_bytes():
            name = source.relative_to(owner.root)
            found.append(f"{name}: replace its two imports of Triton: from aotcuda.triton import triton, tl")
    return found


def render_variants(modules: Sequence[VariantModule]) -> str:
    """Return the tables of modules with variants files, for pyproject.toml."""
    lines: list[str] = []
    for module in modules:
        count = f"{_number(module.count, 'variant')} of {_number(len(module.missing), 'kernel')}"
        lines += ["", pyproject.header(("tool", "aotcuda", "modules", module.module))]
        lines += [f"# --write adds {count} to the variants file"] if module.missing else []
        settings = module.settings or {"variants": module.name}
        lines += [pyproject.assignment(key, value) for key, value in settings.items()]
    return "\n".join(lines) + "\n" if lines else ""


def render(additions: Sequence[Addition], devices: Sequence[Record]) -> str:
    """Return the tables for pyproject.toml, with the places of launches as comments."""
    lines: list[str] = []
    modules: dict[str, list[Addition]] = {}
    for item in additions:
        modules.setdefault(item.module, []).append(item)
    for module, found in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        frontend = found[0].wanted.frontend
        lines += ["", pyproject.header(keys), pyproject.assignment("source", found[0].wanted.source)]
        lines += [pyproject.assignment("frontend", frontend)] if frontend != registry.DEFAULT else []
        lines += ["", pyproject.header((*keys, "kernels"))]
        for item in found:
            record = item.records[0]
            count = sum(record.count for record in item.records)
            lines.append(f"# {record.place}, {_number(count, 'launch', 'launches')}{_options(record)}")
            lines += [f"# {note}" for note in item.notes]
            lines.append(pyproject.assignment(item.kernel, pyproject.kernel_value(item)))
    known = [f"#   {item.place}: {item.module}.{item.function} {item.signature or '(inlined)'}" for item in devices]
    if known and lines:
        lines += ["", "# Device functions come along with the kernels that call them:", *dict.fromkeys(known)]
    return "\n".join(lines[1:]) + "\n" if lines else ""


def _key(item: Addition) -> str:
    return f'tool.aotcuda.modules."{item.module}".kernels.{pyproject.quote_key(item.kernel)}'


def _launched(record: Record) -> str:
    if not record.site:
        return " (its signature is in @cuda.jit)"
    return f" (launched {_number(record.count, 'time')}, first at {record.site})"


def _options(record: Record) -> str:
    if variants.has_variants(record):
        return ""
    given = ", ".join(f"{name}={value!r}" for name, value in sorted(record.options.items()))
    return f"; @cuda.jit({given})" if given else ""


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
