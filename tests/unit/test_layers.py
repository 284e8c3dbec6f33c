"""Test every import statement of the package against the layers of docs/design.md.

Imports in functions and imports for types count too.
"""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

from aotcuda.builder.emit import bundle

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "aotcuda": ROOT,
    "hatch_aotcuda": ROOT / "hatch_plugin/src",
    "setuptools_aotcuda": ROOT / "setuptools_plugin/src",
}


def modules() -> dict[str, Path]:
    """Return the files of all modules of the packages, by name."""
    files = {}
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(path: Path, files: dict[str, Path]) -> set[str]:
    """Return the modules in `files` that a file imports anywhere, also as attributes of an imported package."""
    imported: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names = {f"{alias.name}.{name}" for name in attributes(tree, alias.name)} if not alias.asname else set()
                imported |= names if names and names <= files.keys() else {alias.name}
        elif isinstance(node, ast.ImportFrom) and not (
            node.level and "cupy" in path.parts
        ):  # which has another name there
            module = absolute(node, path)
            names = {f"{module}.{alias.name}" for alias in node.names}
            imported |= {name if name in files else module for name in names}
    return imported & files.keys()


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """Return the absolute name of the module of an import statement."""
    if not node.level:
        return node.module or ""
    folders = path.relative_to(ROOT).parent.parts
    return ".".join([*folders[: len(folders) - node.level + 1], *([node.module] if node.module else [])])


def attributes(tree: ast.Module, package: str) -> set[str]:
    """Return the attributes of an imported package that a file uses."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == package}


def layers(kind: str) -> list[list[str]]:
    """Return the layers of a block in docs/design.md, the highest first; each line is a layer."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [line.split("#")[0].split() for line in block.splitlines() if line.split("#")[0].strip()]


def layer_of(module: str, listed: list[list[str]]) -> int:
    """Return the number of the layer that names the module, or the nearest package above it."""
    numbers = {name: number for number, names in enumerate(listed) for name in names}
    name = module
    while name not in numbers:
        name, dot, _ = name.rpartition(".")
        assert dot, f"{module} is in none of the layers of docs/design.md"
    return numbers[name]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    files = modules()
    return {module: imports(path, files) - {module} for module, path in files.items()}


def test_no_modules_import_each_other_in_a_circle(graph: dict[str, set[str]]) -> None:
    assert [*graphlib.TopologicalSorter(graph).static_order()]  # raises CycleError


def upward_imports(graph: dict[str, set[str]], listed: list[list[str]]) -> list[str]:
    """Return the imports from a higher layer."""
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if layer_of(other, listed) < layer_of(module, listed)
    ]


def test_imports_go_down_the_layers(graph: dict[str, set[str]]) -> None:
    assert upward_imports(graph, layers("layers")) == []


def test_imports_of_the_builder_go_down_its_layers(graph: dict[str, set[str]]) -> None:
    inside = {module for module in graph if module.startswith("aotcuda.builder.")}
    assert upward_imports({module: graph[module] & inside for module in inside}, layers("builder-layers")) == []


@pytest.mark.parametrize("kind", ["layers", "builder-layers"])
def test_names_of_the_layers_exist(graph: dict[str, set[str]], kind: str) -> None:
    assert [name for names in layers(kind) for name in names if name not in graph] == []


def test_modules_of_a_bundled_run_time_import_each_other_relatively() -> None:
    """A bundled run time is a copy of folders, so an absolute name is that of an installed aotcuda."""
    files = modules()
    bundled = bundle.modules()
    outside = set()
    for name, path in bundled.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                module = absolute(node, path)
                for imported in (f"{module}.{alias.name}" for alias in node.names):
                    if (imported if imported in files else module) not in bundled:
                        outside.add(f"{name} imports {imported} relatively")
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                outside |= {f"{name} imports {each}" for each in names if each.partition(".")[0] == "aotcuda"}
    assert outside == {
        "aotcuda.integrations.in_place.triton.compiled imports aotcuda.binary",
        "aotcuda.runtime.jit.compile imports aotcuda.builder.entry",
    }
