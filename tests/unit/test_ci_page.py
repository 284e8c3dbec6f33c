"""docs/ci.md: the commands that it has are those that were run, and what was run is kept."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]


def test_every_command_of_the_page_was_run_as_it_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("ci_pages", ROOT / "bench" / "ci_pages.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sys.modules.pop("machine", None)
    kept = json.loads((ROOT / "docs" / "results" / "ci_pages.json").read_text())["commands"]
    expected = [(part, text) for part, texts in script.commands(script.PAGE.read_text()).items() for text in texts]
    assert len(expected) > 15
    assert [(item["part"], item["command"]) for item in kept] == expected, "run bench/ci_pages.py"
    assert all(item["status"] == 0 for item in kept)
