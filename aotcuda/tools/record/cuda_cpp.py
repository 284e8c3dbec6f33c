"""Turn launches of kernels in CUDA C++ into entries of tables: the file with the text, kernels, template instances."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign, project_file
from aotcuda.tools.init import cuda_cpp_files
from aotcuda.tools.record import project, pyproject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.tools.record.collect import CudaCppLaunches
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.pyproject import Editor

_FRONT_END = "cuda-cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCppAddition:
    """The missing entries of a table for one kernel.

    Attributes:
        module: The module.
        source: The `.cu` file.
        kernel: Its name.
        new_kernel: The table does not name it.
        instances: The template instances that are missing; empty for a kernel that is no template.
    """

    module: str
    source: str
    kernel: str
    new_kernel: bool
    instances: tuple[str, ...]


def plan(launches: Iterable[CudaCppLaunches], owner: Project) -> tuple[list[CudaCppAddition], list[str]]:
    """Return the missing entries, and a line for each kernel whose source text is in no `.cu` file."""
    files = {digest: file for file in cuda_cpp_files.files(owner) if (digest := _digest(owner, file))}
    wanted: dict[tuple[str, str], set[str]] = {}
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
            wanted.setdefault((file, name), set()).update([item.name] if "<" in item.name else [])
    additions = (_addition(owner, file, name, instances) for (file, name), instances in sorted(wanted.items()))
    return [item for item in additions if item is not None], left_out


def write(editor: Editor, additions: Iterable[CudaCppAddition]) -> None:
    """Add the missing entries to the tables."""
    modules: dict[str, list[CudaCppAddition]] = {}
    for item in additions:
        modules.setdefault(item.module, []).append(item)
    if modules:
        pyproject.add_targets(editor)
    for module, found in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        new = {item.kernel: _value(item) for item in found if item.new_kernel}
        if editor.get(keys) is None:
            editor.add_table(keys, {"source": found[0].source, "frontend": _FRONT_END})
        if editor.get((*keys, "kernels")) is None:
            editor.add_table((*keys, "kernels"), new)
        elif new:
            editor.add_keys((*keys, "kernels"), new)
        for item in found:
            if not item.new_kernel:
                entry = (*keys, "kernels", item.kernel)
                if "instances" in editor.get(entry):
                    editor.extend((*entry, "instances"), list(item.instances))
                else:
                    editor.add_keys(entry, _value(item))


def describe(additions: Iterable[CudaCppAddition]) -> list[str]:
    """Return a line for each addition."""
    return [
        f'tool.aotcuda.modules."{item.module}".kernels.{pyproject.quote_key(item.kernel)}'
        f"{': ' if item.instances else ''}{', '.join(item.instances)}"
        for item in additions
    ]


def render(additions: Iterable[CudaCppAddition]) -> str:
    """Return the tables for pyproject.toml."""
    lines: list[str] = []
    modules: dict[tuple[str, str], list[CudaCppAddition]] = {}
    for item in additions:
        modules.setdefault((item.module, item.source), []).append(item)
    for (module, source), found in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        lines += ["", pyproject.header(keys), pyproject.assignment("source", source)]
        lines += [pyproject.assignment("frontend", _FRONT_END), "", pyproject.header((*keys, "kernels"))]
        lines += [pyproject.assignment(item.kernel, _value(item)) for item in found]
    return "\n".join(lines) + "\n" if lines else ""


def _value(item: CudaCppAddition) -> dict[str, Any]:
    return {"instances": list(item.instances)} if item.instances else {}


def _digest(owner: Project, file: str) -> str | None:
    try:
        text = foreign.content(owner.root / file).decode()
    except (foreign.UnreadableError, UnicodeDecodeError):
        return None
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()


def _addition(owner: Project, file: str, kernel: str, instances: set[str]) -> CudaCppAddition | None:
    modules = project_file.table(owner.aotcuda, "modules")
    tables = {name: table for name, table in modules.items() if isinstance(table, dict) and table.get("source") == file}
    module = next(iter(tables), None)
    entry = project_file.table(tables[module], "kernels").get(kernel) if module is not None else None
    known = entry.get("instances", ()) if isinstance(entry, dict) else ()
    missing = tuple(sorted(instances - set(known)))
    if entry is not None and not missing:
        return None
    stem = file.rpartition("/")[2].partition(".")[0]
    packages = (name.partition(".")[0] for name, path in project.python_files(owner) if path.parent != owner.root)
    return CudaCppAddition(
        module=module or f"{next(packages, 'package')}.{stem}",
        source=file,
        kernel=kernel,
        new_kernel=entry is None,
        instances=missing,
    )
