"""Turn launches of kernels in CUDA C++ into entries of tables: the file with the text, kernels, template instances."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign, project_file
from aotcuda.tools.record import pyproject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.tools.record.collect import CudaCppLaunches
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.pyproject import Editor


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCppAddition:
    """The missing entries of a table for one kernel.

    Attributes:
        module: The module.
        source: The `.cu` file.
        kernel: Its name.
        instances: The template instances that are missing; empty for a kernel that is no template.
    """

    module: str
    source: str
    kernel: str
    instances: tuple[str, ...]

    @property
    def value(self) -> dict[str, Any]:
        """Return the value of a new kernel's key."""
        return {"instances": list(self.instances)} if self.instances else {}


def plan(launches: Iterable[CudaCppLaunches], project: Project) -> tuple[list[CudaCppAddition], list[str]]:
    """Return the missing entries, and a line for each kernel whose source text is in no `.cu` file."""
    launches = list(launches)
    files = {_digest(project, file): file for file in project.cuda_files()} if launches else {}
    instances: dict[tuple[str, str], set[str]] = {}
    left_out = []
    for item in launches:
        file = files.get(item.digest)
        if file is None:
            left_out.append(
                f"{item.site}: {item.name}: its CUDA C++ is the text of no .cu file of the project; write it into one "
                f"({item.count} launch{'es' * (item.count != 1)})"
            )
        else:
            name = item.name.partition("<")[0].strip()
            instances.setdefault((file, name), set()).update([item.name] if "<" in item.name else [])
    additions = (_addition(project, file, name, names) for (file, name), names in sorted(instances.items()))
    return [item for item in additions if item is not None], left_out


def add_kernels(editor: Editor, additions: Iterable[CudaCppAddition]) -> None:
    """Add the missing entries to the tables."""
    modules: dict[str, list[CudaCppAddition]] = {}
    for item in additions:
        modules.setdefault(item.module, []).append(item)
    for module, items in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        if editor.get(keys) is None:
            editor.add_table(keys, {"source": items[0].source, "frontend": "cuda-cpp"})
        entries = project_file.table(editor.get((*keys, "kernels")))
        new = {item.kernel: item.value for item in items if item.kernel not in entries}
        pyproject.add_entries(editor, (*keys, "kernels"), new)
        for item in items:
            if "instances" in project_file.table(entries, item.kernel):
                editor.extend((*keys, "kernels", item.kernel, "instances"), list(item.instances))
            elif item.kernel in entries:
                editor.add_keys((*keys, "kernels", item.kernel), item.value)


def describe(additions: Iterable[CudaCppAddition]) -> list[str]:
    """Return a line for each addition."""
    return [
        f'tool.aotcuda.modules."{item.module}".kernels.{pyproject.quote_key(item.kernel)}'
        f"{': ' if item.instances else ''}{', '.join(item.instances)}"
        for item in additions
    ]


def _digest(project: Project, file: str) -> str | None:
    """Return the digest of a file's text, as the recorder computes it for a program's text."""
    try:
        text = foreign.content(project.root / file).decode()
    except (foreign.UnreadableError, UnicodeDecodeError):
        return None
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()


def _addition(project: Project, file: str, kernel: str, instances: set[str]) -> CudaCppAddition | None:
    modules = {name: module for name, module in project.modules.items() if module.get("source") == file}
    module = next(iter(modules), None)
    entry = project_file.table(modules.get(module or ""), "kernels").get(kernel)
    listed = project_file.strings(project_file.table(entry).get("instances"))
    missing = tuple(sorted(instances - {*listed}))
    if entry is not None and not missing:
        return None
    stem = file.rpartition("/")[2].partition(".")[0]
    packages = (name.partition(".")[0] for name, path in project.python_files() if path.parent != project.root)
    return CudaCppAddition(
        module=module or f"{next(packages, 'package')}.{stem}",
        source=file,
        kernel=kernel,
        instances=missing,
    )
