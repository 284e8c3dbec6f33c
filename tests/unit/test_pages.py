"""Test that figures of pages and charts are those of docs/results, and that no figure was written by hand."""

from __future__ import annotations

import html
import importlib
import json
import re
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
    """Return a function that imports a script of bench or tools."""
    before = {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        patch.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module
    for name in {*sys.modules} - before:
        if any((ROOT / folder / f"{name.partition('.')[0]}.py").exists() for folder in ("bench", "tools")):
            del sys.modules[name]


def test_all_commands_of_the_ci_page_have_run(bench: Callable[[str], Any]) -> None:
    page = bench("ci_pages").commands((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
    runs = json.loads((RESULTS / "ci_pages.json").read_text(encoding="utf-8"))["commands"]
    commands = [(part, command) for part, commands in page.items() for command in commands]
    assert [(run["part"], run["command"]) for run in runs if run["status"] == 0] == commands, "run tools/ci_pages.py"


def test_pages_have_the_results(bench: Callable[[str], Any]) -> None:
    results = bench("results")
    for page in results.pages():
        text = page.read_text(encoding="utf-8")
        assert results.fill(text) == text, f"{page} differs from docs/results; run python bench/results.py"


def test_charts_have_the_results(bench: Callable[[str], Any]) -> None:
    for name, chart in bench("charts").charts().items():
        picture = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        texts = {html.unescape(text).strip() for text in re.findall(r">([^<>]+)<", picture)}
        wanted = {chart.title, *chart.values(), *chart.lines()}
        assert wanted <= texts, f"{name}.svg differs from docs/results; run python bench/results.py"


def test_each_figure_of_the_generator_is_on_a_page(bench: Callable[[str], Any]) -> None:
    results = bench("results")
    text = "".join(page.read_text(encoding="utf-8") for page in results.pages())
    for kind, names in (("table", results.TABLES), ("figure", results.FIGURES)):
        assert [name for name in names if f"<!-- {kind} {name} -->" not in text] == []
    assert results.fill("<!-- figure cold_triton -->1<!-- end -->") != "<!-- figure cold_triton -->1<!-- end -->"
    assert "\n<!-- figure" not in text, "a line that begins with a comment ends the paragraph"


CONSTANTS = {
    "docs/build-systems.md": ["5 seconds"],
    "docs/ci.md": ["5 seconds"],
    "docs/cli.md": ["256 MiB", "16 times the", "16 MiB"],
    "docs/configuration.md": ["64 GiB"],
    "docs/runtime.md": ["48 KiB"],
    "docs/shipping.md": ["100 MB"],
    "docs/targets.md": ["100 MB"],
    "docs/troubleshooting.md": ["48 KiB"],
}
"""Limits and intervals that code or other tools set; no measurement changes them."""

UNITS = r"(?:[µnum]s|s|seconds|minutes|[kKMG]i?B|%|times (?:as|the|faster|longer|slower))"
MEASURED = re.compile(rf"(?<![\w.`])\d[\d.,]*(?: to [\d.,]+)? ?{UNITS}(?![\w`-])")
GENERATED = re.compile(
    r"<!-- (table|figure) \w+ -->.*?<!-- end -->|^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE
)


def test_no_figure_of_a_page_is_written_by_hand() -> None:
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = page.relative_to(ROOT).as_posix()
        figures = MEASURED.findall(GENERATED.sub("", page.read_text(encoding="utf-8")))
        if by_hand := [figure for figure in figures if figure not in CONSTANTS.get(name, [])]:
            found[name] = by_hand
    assert found == {}, "write these by bench/results.py from a file of docs/results, or list them as constants"


@pytest.mark.parametrize("text", ["4.9 µs", "takes 0.6 to 2 µs", "115 s", "5 %", "1.5 GB", "330 kB", "3 times as long"])
def test_a_figure_written_by_hand_is_found(text: str) -> None:
    assert MEASURED.search(GENERATED.sub("", f"It is {text}, `7 ms`, <!-- figure x -->8<!-- end --> s."))
    assert not MEASURED.search("`2.0 s`, version 3.6, sm_90s, 3 kernels")
