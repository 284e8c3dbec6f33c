"""Which modules import which, by whatever statement or function."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.worker.import_graph import ImportGraph

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "graphed/__init__.py": "",
    "graphed/a.py": "from . import shared\nfrom .deep.inner import thing\n",
    "graphed/b.py": "import graphed.shared\nimport importlib\nimportlib.import_module('graphed.named')\n",
    "graphed/c.py": "exec('import graphed.by_text', {})\n",
    "graphed/d.py": "from graphed import *\nimport importlib\nimportlib.import_module('.relative', __package__)\n",
    "graphed/shared.py": "",
    "graphed/named.py": "",
    "graphed/by_text.py": "",
    "graphed/relative.py": "",
    "graphed/deep/__init__.py": "from graphed import deeper\n",
    "graphed/deep/inner.py": "thing = 1\n",
    "graphed/deeper.py": "",
}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportGraph:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "graphed"]:
        monkeypatch.delitem(sys.modules, name)
    found = ImportGraph()
    with found.watching():
        for name in "abd":
            importlib.import_module(f"graphed.{name}")
    return found


def own(graph: ImportGraph, *names: str) -> set[str]:
    return {name.removeprefix("graphed.") for name in graph.needed(names) if name.startswith("graphed.")}


def test_each_module_needs_what_it_imports_and_the_packages_that_hold_it(graph: ImportGraph) -> None:
    assert own(graph, "graphed.a") == {"a", "shared", "deep", "deep.inner", "deeper"}
    assert own(graph, "graphed.b") == {"b", "shared", "named"}
    assert own(graph, "graphed.d") == {"d", "relative"}
    assert "graphed" in graph.needed(["graphed.deep.inner"])


def test_what_is_imported_by_nobody_in_particular_is_needed_by_all(graph: ImportGraph) -> None:
    with graph.watching():
        importlib.import_module("graphed.c")
    assert "by_text" in own(graph, "graphed.a")


def test_python_imports_as_before_afterwards(graph: ImportGraph) -> None:
    before = own(graph, "graphed.a")
    importlib.import_module("graphed.named")
    assert own(graph, "graphed.a") == before
    assert importlib.import_module.__module__ == "importlib"
