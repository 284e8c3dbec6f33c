"""Find the kernels of a project that no recorded run launched, by the project's sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.tools.record import source_files, source_kernels, tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record

_MOST_NAMES = 8
"""The most names of kernels in a line."""


def find(records: Iterable[Record], project: Project) -> list[str]:
    """Return the dotted names of kernels without a table or a launch among the records, in the order of their lines."""
    launched = {(record.module, record.function) for record in records if record.launches}
    return [
        f"{module}.{function.path}"
        for module, content in source_kernels.find(source_files.parse(project, b"jit")[0], []).items()
        for function in content.kernels
        if (module, function.path) not in launched and not tables.has_entry(module, function.path, project)
    ]


def describe(names: list[str], *, dry: bool) -> str:
    """Return a line that names kernels which no run launched, with the ways to record them."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    remedy = "record a program that launches them, or write their tables by hand"
    if dry:
        remedy += "; launches that depend on results need a GPU; programs that prefer CuPy get a stand-in for it"
    return f"not launched in any run, and in no table: {', '.join(names[:_MOST_NAMES])}{more}; {remedy}"
