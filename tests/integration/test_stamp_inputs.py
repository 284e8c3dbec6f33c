"""Every input of the build stamp, for every front end and kind of build: an edit is noticed, and gives the same bytes.

`bench/differential.py` compares the bytes after every edit. Here most builds end before a worker starts.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import stamp_inputs
from support.differential import KINDS, Project, compare
from support.stamp_inputs import IGNORED, INPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.mark.structures import ParameterSet

PAGE = Path(__file__).parents[2] / "docs" / "build-cache.md"
NOT_EDITED = {
    "the clock, random numbers, the network",
    "a compiler that the project's code patches while it runs",
}
FIRST = stamp_inputs.ALL[0]


def installed(front_end: str) -> pytest.MarkDecorator:
    package = stamp_inputs.PACKAGES.get(front_end, "aotcuda")
    is_there = all(importlib.util.find_spec(part) for part in (package.partition(".")[0], package))
    return pytest.mark.skipif(not is_there, reason=f"{package} is not installed")


def cases(front_end: str) -> Iterator[ParameterSet]:
    """Yield all inputs of the first front end; for others, one input of each row and all late inputs.

    CI has the late inputs of the others, which their compilers read. Shared code reads the other inputs.
    """
    rows: dict[str, str] = {}
    for name, item in stamp_inputs.inputs_of(front_end).items():
        is_first_of_row = rows.setdefault(item.row, name) == name
        if front_end == FIRST or item.is_late or is_first_of_row:
            is_of_matrix = front_end != FIRST and not item.is_late
            marks = [installed(front_end), *[pytest.mark.matrix] * is_of_matrix]
            yield pytest.param(front_end, name, marks=marks, id=f"{front_end}-{name}")


CASES = [case for front_end in stamp_inputs.ALL for case in cases(front_end)]
OF_CI = (FIRST, "cuda-cpp")
FRONT_ENDS = [
    pytest.param(front_end, marks=[installed(front_end), *[pytest.mark.matrix] * (front_end not in OF_CI)])
    for front_end in stamp_inputs.ALL
]


def restore(project: Project) -> None:
    shutil.rmtree(project.base)
    shutil.copytree(f"{project.base}.pristine", project.base, symlinks=True)


def not_current(project: Project) -> list[str]:
    return [kind for kind in KINDS if not project.is_current(kind)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Return a function that returns a project that every kind of build has built."""
    projects: dict[str, Project] = {}

    def build(front_end: str) -> Project:
        if front_end not in projects:
            project = projects[front_end] = Project(tmp_path_factory.mktemp("inputs"), front_end)
            project.build_all()
            shutil.copytree(project.base, f"{project.base}.pristine", symlinks=True)
            restore(project)
            assert not_current(project) == []
            assert project.is_launched()
        return projects[front_end]

    return build


@pytest.fixture
def project(built: Callable[[str], Project], front_end: str) -> Iterator[Project]:
    """Return a project before any edit."""
    found = built(front_end)
    environ = dict(found.environ)
    yield found
    found.environ = environ
    restore(found)


def test_inputs_are_the_rows_of_the_page() -> None:
    rows = re.findall(r"^\| (.+) \| (yes|no)\b.* \|$", PAGE.read_text(), re.MULTILINE)
    assert {item.row for item in INPUTS.values()} == {row for row, seen in rows if seen == "yes"}
    assert {item.row for item in IGNORED.values()} >= {row for row, seen in rows if seen == "no"} - NOT_EDITED


@pytest.mark.parametrize(("front_end", "name"), CASES)
def test_edit_of_an_input_is_noticed(project: Project, name: str) -> None:
    project.edit(name, INPUTS[name])
    assert not_current(project) == [*KINDS]
    assert project.is_launched() is INPUTS[name].is_of_environment


@pytest.mark.parametrize("front_end", [FIRST])
@pytest.mark.parametrize("name", IGNORED)
def test_other_edits_are_ignored(project: Project, name: str) -> None:
    project.edit(name, IGNORED[name])
    assert not_current(project) == []
    assert project.is_launched()


@pytest.mark.parametrize("front_end", [FIRST])
@pytest.mark.parametrize("folder", ["/", "project/pkg", "."])
def test_working_folder_is_not_an_input(project: Project, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(project.base / folder)
    assert not_current(project) == []
    assert project.is_launched()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_builds_with_the_cache_and_without_give_the_same_bytes(project: Project, front_end: str) -> None:
    name = "a header that is found first" if front_end in stamp_inputs.CPP else "the source module"
    assert compare(project, name, INPUTS[name], tuple(KINDS) if front_end == FIRST else ("wheel",)) == []


@pytest.mark.parametrize("front_end", [FIRST])
def test_manifests_name_nothing_of_the_environment_of_the_build(project: Project) -> None:
    manifest = json.loads(project.made["editable install"]["pkg/k.aotcuda/manifest.json"])
    outside = [read["path"] for read in manifest["reads"] if read["path"].startswith("/")]
    assert [path for path in outside if "site-packages" in path or path.startswith(sys.prefix)] == []
