"""Test that tables, pictures and commands of the pages are those that the scripts in bench make of docs/results."""

from __future__ import annotations

import html
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def bench() -> Iterator[Callable[[str], Any]]:
    """Return a function that imports a script of bench."""
    before = {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield importlib.import_module
    for name in {*sys.modules} - before:
        if (ROOT / "bench" / f"{name.partition('.')[0]}.py").exists():
            del sys.modules[name]


def test_tables_of_pages_are_those_of_the_results(bench: Callable[[str], Any]) -> None:
    results, systems = bench("results"), bench("systems")
    for page, written in ((RESULTS / "README.md", results.fill), (ROOT / "docs" / "systems.md", systems.page)):
        text = page.read_text(encoding="utf-8")
        assert written(text) == text, f"{page} is not what its script in bench makes of docs/results; run that"


def test_pictures_are_those_that_are_drawn(bench: Callable[[str], Any]) -> None:
    folder = ROOT / "docs" / "pictures"
    kept = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    plot = bench("plot")
    diagrams, charts = plot.diagrams_drawn(), plot.charts()
    assert sorted(kept) == sorted([*diagrams, *charts])
    assert [name for name, text in diagrams.items() if kept[name] != text] == [], "run python bench/plot.py"
    described = {name: html.escape(chart.description(), quote=False) for name, chart in charts.items()}
    assert [name for name, text in described.items() if text not in kept[name]] == [], "run python bench/plot.py"


def test_commands_of_the_page_on_ci_were_run(bench: Callable[[str], Any]) -> None:
    script = bench("ci_pages")
    kept = json.loads((RESULTS / "ci_pages.json").read_text())["commands"]
    expected = [(part, text) for part, texts in script.commands(script.PAGE.read_text()).items() for text in texts]
    assert len(expected) > 15
    assert [(item["part"], item["command"]) for item in kept] == expected, "run python bench/ci_pages.py"
    assert all(item["status"] == 0 for item in kept)
