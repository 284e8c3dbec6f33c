"""Parse the Python files of a project, and find the distributions that a build imports."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import foreign, project_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from aotcuda.tools.record.project import Project

_INCLUDED = frozenset(
    name.partition(".")[0]
    for front_end in registry.BUILT_IN.values()
    for name in ("aotcuda", *front_end.internals, front_end.imports or "aotcuda")
)
"""Packages that come with aotcuda and the extras of its front ends."""

_WITH_NUMBA = frozenset({"numpy", "cuda", "cuda_core", "cuda_bindings", "numba_cuda", "numba_cuda_mlir"})
"""Further distributions that come with the compilers."""

Trees = dict[str, tuple[str, ast.Module]]
"""The file and the syntax tree of each module, by the module's name."""


_parsed: dict[Path, tuple[bytes, ast.Module]] = {}
"""The content and the syntax tree of each file that was parsed, since several steps of a command read a project."""


def parse(project: Project, word: bytes = b"") -> tuple[Trees, list[str]]:
    """Return the modules of a project that can be parsed, and a line for each other file that could have kernels.

    Args:
        project: The project.
        word: Leave out files without this word.
    """
    trees: Trees = {}
    unreadable = []
    for module, path in project.python_files():
        file = path.relative_to(project.root).as_posix()
        content = b"jit"
        try:
            content = foreign.content(path)
            if word not in content:
                continue
            if _parsed.get(path, (None,))[0] != content:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the user sees these warnings when the file is imported
                    _parsed[path] = content, ast.parse(content)
            trees[module] = file, _parsed[path][1]
        except (foreign.UnreadableError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if b"jit" in content:
                unreadable.append(f"{file}{describe_error(error)}")
    return trees, unreadable


def describe_error(error: Exception) -> str:
    """Return the reason that a file cannot be read, as text that follows its name."""
    if isinstance(error, SyntaxError):
        return f"{f':{error.lineno}' if error.lineno else ''}: {error.msg}"
    return f": {error}" if isinstance(error, ValueError | foreign.UnreadableError) else ": it is nested too deeply"


def requirements(
    project: Project, trees: Trees, modules: Iterable[str], installed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the dependencies of the project, and other distributions, that an import of `modules` needs.

    Args:
        project: The project.
        trees: Its modules.
        modules: The modules that a build imports.
        installed: The known distributions of packages.
    """
    imported = {name for name in _imported_packages(trees, modules) if _normalize(name) not in _INCLUDED}
    imported -= set(sys.stdlib_module_names)
    names = {_normalize(name) for name in imported} | {_normalize(installed.get(name, name)) for name in imported}
    dependencies = project_file.strings(project_file.table(project.data, "project").get("dependencies"))
    provided = _WITH_NUMBA | {distribution(item) for item in dependencies}
    others = sorted({installed[name] for name in imported if name in installed}, key=_normalize)
    return [
        *(item for item in dependencies if distribution(item) in names),
        *(name for name in others if _normalize(name) not in provided),
    ]


def distribution(requirement: str) -> str:
    """Return the normalized name of a requirement's distribution."""
    return _normalize(re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0])


def _imported_packages(trees: Trees, modules: Iterable[str]) -> set[str]:
    """Return the packages outside the project that an import of `modules` imports, as far as the text shows."""
    packages: set[str] = set()
    waiting, seen = list(modules), set[str]()
    project_packages = {name.partition(".")[0] for name in trees}
    while waiting:
        name = waiting.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0])
        if name in trees:
            waiting += _imports(name, trees)
        elif name.partition(".")[0] not in project_packages:
            packages.add(name.partition(".")[0])
    return packages


def is_imported(module: str, trees: Trees) -> bool:
    """Return True if another module of the project imports a module, at its top or in a function."""
    return any(
        module in _imported_by(node, name, trees)
        for name, (_, tree) in trees.items()
        if name != module
        for node in ast.walk(tree)
    )


def _imports(module: str, trees: Trees) -> Iterator[str]:
    """Yield the modules that an import of a module of the project imports."""
    waiting: list[ast.AST] = [trees[module][1]]
    while waiting:
        node = waiting.pop()
        yield from _imported_by(node, module, trees)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _imported_by(node: ast.AST, module: str, trees: Trees) -> Iterator[str]:
    """Yield the modules that a statement of a module imports; nothing for other statements."""
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = (module if trees[module][0].endswith("/__init__.py") else module.rpartition(".")[0]).split(".")
        above = parts[: len(parts) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{item.name}" for item in node.names if f"{base}.{item.name}" in trees)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
