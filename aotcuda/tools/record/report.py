"""Messages of `aotcuda record`: tables go to standard output, all else to standard error."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from aotcuda.common import foreign
from aotcuda.tools.record import pyproject, sizes, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from aotcuda.tools.record.collect import Launches
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record
    from aotcuda.tools.record.sizes import Integers
    from aotcuda.tools.record.tables import Addition, LeftOut, RecordedKernel
    from aotcuda.tools.record.variant_files import VariantModule


_MOST_VALUES = 8
_DRY = "not executed"
"""The name under which the recorder counts launches of `--dry`, in place of a GPU's name."""


def say(text: str) -> None:
    """Print one message."""
    foreign.show(f"aotcuda: {text}", sys.stderr)


def print_summary(launches: Launches, project: Project, runs: str) -> None:
    """Print the numbers of recorded kernels, their GPUs, and the kernels that are left out."""
    kernels, left_out, others = tables.divide(launches.records, project)
    gpus: Counter[str] = Counter()
    for record in launches.records:
        gpus.update(record.launches)
    functions = {(record.module, record.function) for record in launches.records if record.kind == "kernel"}
    functions |= {(item.digest, item.name.partition("<")[0]) for item in launches.cuda_cpp}
    gpus.update({_DRY: sum(item.count for item in launches.cuda_cpp)} if launches.cuda_cpp else {})
    devices = {(record.module, record.function) for record in launches.records if record.kind == "device"}
    places = ", ".join(f"{count} {'' if gpu == _DRY else 'on '}{gpu}" for gpu, count in sorted(gpus.items()))
    say(
        f"recorded {_number(gpus.total(), 'launch', 'launches')}{f' ({places})' if places else ''}: "
        f"{_number(len(functions), 'kernel')}, {_number(len(devices), 'device function')}{runs}"
    )
    eager = sum(not record.launches for kernel in kernels for record in kernel.records)
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
        count = _number(sum(record.count for record in records), "launch", "launches")
        say(f"left out: {place}: {name} {shown}: {reason} ({count})")


def print_first_result(launches: Launches) -> None:
    """Print the first place that read the result of a launch."""
    for call, site in launches.results[:1]:
        say(
            f"{site}: {call} reads the result of a recorded launch; nothing was executed, so launches that "
            "depend on it may differ or be missing; record them on a machine with a GPU, or write their tables by hand"
        )


def print_files(launches: Launches) -> None:
    """Print the files in which a dry run may have left timings of launches that were not executed."""
    for path in launches.files:
        say(
            f"{path}: the command wrote this file after it timed kernels that were not executed; if it holds timings, "
            "remove it"
        )


def print_failed_import(launches: Launches, project: Project) -> bool:
    """Print the import that ended the command; return False if none did."""
    for error, name, python, is_missing in launches.failed_imports[:1]:
        top = (name or "").partition(".")[0]
        remedy = "correct the import, or install what the imported module needs"
        if top in project.own_packages():
            remedy = f"correct the import: {top} is a package of this project"
        elif top and is_missing:
            remedy = f"install what provides it: {python} -m pip install {top}"
        say(f"the command ended at a failed import, before it launched anything: {error}; {remedy}")
        return True
    return False


def print_gpus(names: Sequence[str], launches: Launches) -> None:
    """Print the names of GPUs that a dry run with Triton kernels has answered."""
    if any(names) and any("constants" in record.options for record in launches.records):
        say(
            f"programs saw the GPU {' and '.join(names)}: packages that choose configs by this name may launch other "
            "variants on other GPUs (--gpu names them)"
        )
        say(
            "record sizes as users vary them: batches and sequence lengths of 1, an odd number and a multiple of 16; "
            "feature sizes only if users vary those"
        )


def print_failure(launches: Launches, project: Project, status: int, *, is_recorded: bool) -> None:
    """Print the reason for which a command failed whose launches were not executed."""
    for line in launches.refused[:1]:
        say(line)
    if not is_recorded and (launches.refused or print_failed_import(launches, project)):
        return
    until_then = "its launches until then are recorded" if is_recorded else "it launched nothing"
    say(f"the command ended with exit status {status}, as programs may that need results; {until_then}")


def missing_signatures(additions: Iterable[Addition]) -> list[str]:
    """Return the missing signatures of a table, one per line."""
    return [
        f"{record.place}: {item.kernel.path}: {record.signature} is not in "
        f'tool.aotcuda.modules."{item.module}".kernels{_launched(record)}'
        for item in additions
        for record in item.records
    ]


def missing_variants(modules: Iterable[VariantModule]) -> list[str]:
    """Return the missing variants of files, one per line."""
    return [
        f"{record.place}: {module.kernels[key].path}: {record.signature} is not in "
        f"{module.file_name}{_launched(record)}"
        for module in modules
        for key, records in module.missing.items()
        for record in records
    ]


def completeness(left_out: Sequence[LeftOut]) -> str:
    """Return a message that the tables are complete, except for kernels that `print_summary` lists."""
    fact = "the table has every signature that was launched"
    return f"{fact}, but for {_number(len(left_out), 'signature')} of what was left out above" if left_out else fact


def additions(items: Iterable[Addition]) -> list[str]:
    """Return a line for each merged signature, each kernel that the user has to extend, and each note."""
    lines = []
    for item in items:
        if item.is_by_hand:
            lines.append(
                f"{item.kernel.path} was launched with more than {item.place} has; add the variants that you need of "
                f"{pyproject.assignment(item.key, item.value)}, or remove the key: --write then writes a variants file"
            )
        else:
            lines += [f"added to {item.place}: {signature}" for signature in item.signatures]
        lines += [f"{item.kernel.path}: {note}" for note in item.notes]
    return lines


def added_variants(modules: Iterable[VariantModule], written: Sequence[Path], project: Project) -> list[str]:
    """Return a line for each variants or tuning file that was written, and for each module to edit."""
    lines = []
    for module in modules:
        if module.missing:
            lines.append(f"added to {module.file_name}: {module.count}")
        if module.tuning_file in written:
            lines.append(f"added to {module.tuning_file.relative_to(project.root)}: choices of autotuners")
        source = project.file_of(module.source)
        if module.table is None and source is not None and b"aotcuda.triton" not in source.read_bytes():
            file = source.relative_to(project.root)
            lines.append(f"{file}: replace its two imports of Triton: from aotcuda.triton import triton, tl")
    return lines


def print_fixed_constants(kernels: Iterable[RecordedKernel], integers: Sequence[Integers]) -> None:
    """Print a line for each integer constexpr that users may launch with other values."""
    for kernel in kernels:
        if not kernel.has_variants:
            continue
        path = tables.kernel_path(kernel.path)
        items = sizes.for_kernel(kernel.source, path, integers)
        for name in sizes.fixed((record.options for record in kernel.records), items):
            values = {record.options["constants"].get(name) for record in kernel.records}
            shown = ", ".join(map(str, sorted(value for value in values if type(value) is int)[:_MOST_VALUES]))
            say(
                f"{kernel.source}.{path}: {name} is packaged for {shown}; other values are compiled on the "
                "user's machine, so record the values that users have"
            )


def _launched(record: Record) -> str:
    if not record.site:
        return " (its signature is in @cuda.jit)"
    return f" (launched {_number(record.count, 'time')}, first at {record.site})"


def _number(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
