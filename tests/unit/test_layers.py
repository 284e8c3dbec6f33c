"""Test every import statement of the package against the layers of docs/design.md.

Imports in functions and imports for types count too.
"""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"aotcuda": ROOT, "hatch_aotcuda": ROOT / "hatch_plugin", "setuptools_aotcuda": ROOT / "setuptools_plugin"}


def modules() -> dict[str, Path]:
    """Return every module of the packages by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules among `known` that a file imports anywhere, also as attributes of an imported package."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                used = {f"{alias.name}.{name}" for name in attributes(tree, alias.name)} if not alias.asname else set()
                found |= used if used and used <= known.keys() else {alias.name}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names}
    return found & known.keys()


def attributes(tree: ast.Module, package: str) -> set[str]:
    """Return the attributes of an imported package that a file uses."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == package}


def layers(kind: str) -> list[list[str]]:
    """Return the layers of a block in docs/design.md, the highest first; each line is a layer."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [line.split("#")[0].split() for line in block.splitlines() if line.split("#")[0].strip()]


def layer_of(module: str, drawn: list[list[str]]) -> int:
    """Return the number of the layer that names the module, or the nearest package above it."""
    places = {name: number for number, names in enumerate(drawn) for name in names}
    name = module
    while name not in places:
        name, dot, _ = name.rpartition(".")
        assert dot, f"{module} is in none of the layers of docs/design.md"
    return places[name]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    known = modules()
    return {module: imports(path, known) - {module} for module, path in known.items()}


def test_no_modules_import_each_other_in_a_circle(graph: dict[str, set[str]]) -> None:
    assert [*graphlib.TopologicalSorter(graph).static_order()]  # raises CycleError


def climbing(graph: dict[str, set[str]], drawn: list[list[str]]) -> list[str]:
    """Return the imports of a module from a layer above its own."""
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if layer_of(other, drawn) < layer_of(module, drawn)
    ]


def test_imports_go_down_the_layers(graph: dict[str, set[str]]) -> None:
    assert climbing(graph, layers("layers")) == []


def test_imports_of_the_builder_go_down_its_layers(graph: dict[str, set[str]]) -> None:
    inside = {module for module in graph if module.startswith("aotcuda.builder.")}
    assert climbing({module: graph[module] & inside for module in inside}, layers("builder-layers")) == []


@pytest.mark.parametrize("kind", ["layers", "builder-layers"])
def test_names_of_the_layers_exist(graph: dict[str, set[str]], kind: str) -> None:
    assert [name for names in layers(kind) for name in names if name not in graph] == []
