"""Test that the tables of pages equal those that the scripts in bench make from docs/results."""

from __future__ import annotations

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


def test_all_commands_of_the_ci_page_have_run(bench: Callable[[str], Any]) -> None:
    page = bench("ci_pages").commands((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
    runs = json.loads((RESULTS / "ci_pages.json").read_text(encoding="utf-8"))["commands"]
    commands = [(part, command) for part, commands in page.items() for command in commands]
    assert [(run["part"], run["command"]) for run in runs if run["status"] == 0] == commands, "run bench/ci_pages.py"


def test_tables_of_pages_have_the_results(bench: Callable[[str], Any]) -> None:
    results, systems = bench("results"), bench("systems")
    for page, fill in (
        *((page, results.fill) for page in results.pages()),
        (ROOT / "docs" / "systems.md", systems.page),
    ):
        text = page.read_text(encoding="utf-8")
        assert fill(text) == text, f"{page} differs from the results in docs/results; run its script in bench"


def test_each_figure_of_the_generator_is_on_a_page(bench: Callable[[str], Any]) -> None:
    results = bench("results")
    text = "".join(page.read_text(encoding="utf-8") for page in results.pages())
    for kind, names in (("table", results.TABLES), ("figure", results.FIGURES)):
        assert [name for name in names if f"<!-- {kind} {name} -->" not in text] == []
    assert results.fill("<!-- figure fla_jit -->1<!-- end -->") != "<!-- figure fla_jit -->1<!-- end -->"
    assert "\n<!-- figure" not in text, "a line that begins with a comment ends the paragraph"
