"""Folders of packages that `tools/environments.py` installs beside an environment."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "tools" / "environments.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environments_of_test", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("lists", "made"),
    [
        ([["a==1", "b"], ["a==1", "b"]], 1),
        ([["a==1"], ["a==2"]], 2),
        ([["a==1", "b"], ["a==1"]], 2),
        ([["a==1"], ["a==2"], ["a==1"]], 3),
    ],
)
def test_a_folder_is_made_again_for_other_requirements(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: list[list[str]], made: int
) -> None:
    folder = tmp_path / "oldest"
    folder.mkdir()
    (folder / "of-an-earlier-list").touch()
    installed = []

    def install(*command: object) -> None:
        assert not folder.exists()
        folder.mkdir()
        installed.append([str(part) for part in command][-len(requirements) :])

    monkeypatch.setattr(tool, "install", install)
    for requirements in lists:
        tool.install_beside(tmp_path / "bin" / "python", "oldest", requirements)
        assert installed[-1] == requirements
        assert (folder / "requirements.txt").read_text().split() == requirements
    assert len(installed) == made


def test_a_folder_whose_installation_failed_is_made_again(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        (tmp_path / "oldest").mkdir()
        raise SystemExit(1)

    monkeypatch.setattr(tool, "install", fail)
    for _ in range(2):
        with pytest.raises(SystemExit):
            tool.install_beside(tmp_path / "bin" / "python", "oldest", ["a==1"])


def test_uv_finds_packages_where_pip_does(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///one https://two.example")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    found = tool._settings(Path(sys.executable))
    pairs = {*itertools.pairwise(found)}
    assert {("--extra-index-url", "file:///one"), ("--extra-index-url", "https://two.example")} <= pairs
    assert ("--find-links", "/wheels") in pairs
