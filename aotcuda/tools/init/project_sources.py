"""Read all Python files of a project as text, for the imports of a build and for decorators that hide kernels."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import foreign, project_file
from aotcuda.tools.init import sources
from aotcuda.tools.record import project

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aotcuda.tools.record.project import Project

_INCLUDED = frozenset(
    name.partition(".")[0]
    for one in registry.BUILT_IN.values()
    for name in ("aotcuda", *one.internals, one.imports or "aotcuda")
)
"""Packages that come with aotcuda and the extras of its front ends."""

_WITH_NUMBA = frozenset({"numpy", "cuda", "cuda_core", "cuda_bindings", "numba_cuda", "numba_cuda_mlir"})
"""Further distributions that come with the compilers."""

_Trees = dict[str, tuple[str, ast.Module]]


def trees(owner: Project) -> _Trees:
    """Return the file and the syntax tree of each readable module, by its name."""
    found: _Trees = {}
    for module, path in project.python_files(owner):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the import of the file warns
                tree = ast.parse(foreign.content(path))
        except (foreign.UnreadableError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found[module] = path.relative_to(owner.root).as_posix(), tree
    return found


def requirements(
    owner: Project, read: _Trees, modules: Iterable[str], installed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the dependencies of the project, and other distributions, that an import of `modules` needs.

    Args:
        owner: The project.
        read: Its modules.
        modules: The modules that a build imports.
        installed: The known distributions of packages.
    """
    imported = {name for name in _imported(read, modules) if _plain(name) not in _INCLUDED}
    imported -= set(sys.stdlib_module_names)
    names = {_plain(name) for name in imported} | {_plain(installed.get(name, name)) for name in imported}
    listed = project_file.strings(project_file.table(owner.data, "project").get("dependencies"))
    known = _WITH_NUMBA | {name_of(item) for item in listed}
    more = sorted({installed[name] for name in imported if name in installed}, key=_plain)
    return [*(item for item in listed if name_of(item) in names), *(name for name in more if _plain(name) not in known)]


def missing(owner: Project, wanted: Iterable[str]) -> list[str]:
    """Return the requirements that `build-system.requires` of a project lacks."""
    listed = project_file.strings(project_file.table(owner.data, "build-system").get("requires"))
    return [item for item in wanted if name_of(item) not in map(name_of, listed)]


def name_of(requirement: str) -> str:
    """Return the normalized name of a requirement's distribution."""
    return _plain(re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0])


def hiding(read: _Trees) -> list[str]:
    """Return a line for each decorator of the project that makes kernels, with the functions that it decorates."""
    makers: dict[str, str] = {}
    for file, tree in read.values():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and sources.makes_kernels(tree, node):
                makers.setdefault(node.name, f"{file}:{node.lineno}")
    counts = dict.fromkeys(makers, 0)
    for _, tree in read.values():
        for other in ast.walk(tree):
            for decorator in getattr(other, "decorator_list", ()):
                name = sources.last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
                if name in counts:
                    counts[name] += 1
    return [
        f"not looked through: @{name} ({makers[name]}) on {count} function{'s' * (count != 1)}; `aotcuda record` finds "
        "the kernels that it makes"
        for name, count in counts.items()
        if count
    ]


def _imported(read: _Trees, modules: Iterable[str]) -> set[str]:
    """Return the packages outside the project that an import of `modules` imports, as far as the text shows."""
    found: set[str] = set()
    waiting, met = list(modules), set[str]()
    tops = {name.partition(".")[0] for name in read}
    while waiting:
        name = waiting.pop()
        if not name or name in met:
            continue
        met.add(name)
        waiting.append(name.rpartition(".")[0])
        if name in read:
            waiting += _imports(name, read)
        elif name.partition(".")[0] not in tops:
            found.add(name.partition(".")[0])
    return found


def _imports(module: str, read: _Trees) -> Iterator[str]:
    file, tree = read[module]
    package = module if file.endswith("/__init__.py") else module.rpartition(".")[0]
    for node in _at_import(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{item.name}" for item in node.names if f"{base}.{item.name}" in read)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _at_import(child)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
