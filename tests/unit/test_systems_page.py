"""The page of systems has the tables that bench/systems.py makes of the results."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
KEYS = {"system", "python", "what", "passed", "skipped", "failed", "date", "commit"}


@pytest.fixture(scope="module")
def systems():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield importlib.import_module("systems")
        sys.modules.pop("systems")


def test_page_has_the_tables_that_are_made(systems) -> None:
    page = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
    assert systems.page(page) == page, "run python bench/systems.py"


def test_computed_table_follows_the_rules_of_check(systems, monkeypatch) -> None:
    before = systems.computed()
    monkeypatch.setattr("aotcuda.runtime.images.choice._floor", lambda target, cuda: (12, 0))
    after = systems.computed()
    assert before != after
    assert "| 8.0 | A100, A30 | sm_80 |" in after


def test_runs_of_results_files_are_those_that_they_report(systems) -> None:
    found = [(path, run) for path in sorted(RESULTS.iterdir()) for run in systems.runs(path)]
    assert {path.name for path, _ in found} >= {"gpu_suite.txt", "release.txt"}
    for path, run in found:
        assert run.keys() >= KEYS, path
        if path.suffix == ".txt":
            report = path.read_text(encoding="utf-8").partition("\n")[2]
            counts = [f"{run[key]} {key}" for key in ("passed", "skipped", "failed") if run[key]]
            assert all(text in report for text in [*counts, run["commit"]]), path
