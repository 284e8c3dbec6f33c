"""Find CUDA C++ kernels, for which `aotcuda init` writes no tables."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from aotcuda.tools.record.project import sources_of

if TYPE_CHECKING:
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.source_files import Trees

_COMPILING = frozenset(["RawKernel", "RawModule", "ElementwiseKernel", "Program"])


def compiled_texts(trees: Trees) -> list[str]:
    """Return lines on the places that pass CUDA C++ to CuPy or cuda.core, with the command that packages its text."""
    places = [
        f"  {file}:{node.lineno}: {name}"
        for file, tree in trees.values()
        if _imports(tree)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if (name := ast.unparse(node.func)).rpartition(".")[2] in _COMPILING
    ]
    if not places:
        return []
    lines = [
        f"{len(places)} place{'s' * (len(places) > 1)} where CUDA C++ is compiled while the program runs:",
        *places,
    ]
    lines.append("record them from anything that launches the kernels; it writes the texts into .cu files:")
    return [*lines, "  aotcuda record --dry --write -- python -m pytest"]


def _imports(tree: ast.Module) -> bool:
    """Return True if a module imports CuPy or cuda.core."""
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [item.name for item in node.names])
    ]
    return any(name.partition(".")[0] == "cupy" or name.startswith("cuda.core") for name in imported)


def unpackaged(project: Project) -> list[str]:
    """Return the `.cu` files with kernels that no table names."""
    packaged = {source for module in project.modules.values() for source in sources_of(module)}
    return [file for file in project.cuda_files() if file not in packaged]
