"""Test that each kind of build notices an edit of each input, for each front end.

Most builds of these tests end before a worker starts. With `--whole` the bytes are compared after every edit.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from slow import stamp_inputs
from slow.stamp_builds import KINDS, Project, compare
from slow.stamp_inputs import IGNORED, INPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.mark.structures import ParameterSet

    from slow.conftest import Extent

FIRST = stamp_inputs.ALL[0]


def needs(front_end: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test if a front end is not installed."""
    package = stamp_inputs.PACKAGES.get(front_end, "aotcuda")
    is_there = all(importlib.util.find_spec(part) for part in (package.partition(".")[0], package))
    return pytest.mark.skipif(not is_there, reason=f"{package} is not installed")


def cases(front_end: str) -> Iterator[ParameterSet]:
    """Yield cases: all inputs of the first front end; for others an input of each row, and all that compilers read.

    CI runs the other front ends only with inputs that compilers read, because shared code reads all other inputs.
    """
    rows: dict[str, str] = {}
    for name, item in stamp_inputs.inputs_of(front_end).items():
        is_first_of_row = rows.setdefault(item.row, name) == name
        if front_end == FIRST or item.is_read_at_compile_time or is_first_of_row:
            is_matrix = front_end != FIRST and not item.is_read_at_compile_time
            marks = [needs(front_end), *[pytest.mark.matrix] * is_matrix]
            yield pytest.param(front_end, name, marks=marks, id=f"{front_end}-{name}")


CASES = [case for front_end in stamp_inputs.ALL for case in cases(front_end)]
CI_FRONT_ENDS = (FIRST, "cuda-cpp")
FRONT_ENDS = [
    pytest.param(front_end, marks=[needs(front_end), *[pytest.mark.matrix] * (front_end not in CI_FRONT_ENDS)])
    for front_end in stamp_inputs.ALL
]


def restore(project: Project) -> None:
    shutil.rmtree(project.base)
    shutil.copytree(f"{project.base}.pristine", project.base, symlinks=True)


def find_outdated(project: Project) -> list[str]:
    """Return the kinds of builds that would build again."""
    return [kind for kind in KINDS if not project.is_current(kind)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Return a function that makes the project of a front end, built by every kind of build."""
    projects: dict[str, Project] = {}

    def build(front_end: str) -> Project:
        if front_end not in projects:
            project = projects[front_end] = Project(tmp_path_factory.mktemp("inputs"), front_end)
            project.build_all()
            shutil.copytree(project.base, f"{project.base}.pristine", symlinks=True)
            restore(project)
            assert find_outdated(project) == []
            assert project.is_launched()
        return projects[front_end]

    return build


@pytest.fixture
def project(built: Callable[[str], Project], front_end: str) -> Iterator[Project]:
    """Return the project of a front end; edits are undone after the test."""
    current = built(front_end)
    environ = dict(current.environ)
    yield current
    current.environ = environ
    restore(current)


@pytest.mark.parametrize(("front_end", "name"), CASES)
def test_edit_of_an_input_is_noticed(project: Project, name: str) -> None:
    project.edit(name, INPUTS[name])
    assert find_outdated(project) == [*KINDS]
    assert project.is_launched() is INPUTS[name].is_outside_editable_stamp


@pytest.mark.parametrize("front_end", [FIRST])
@pytest.mark.parametrize("name", IGNORED)
def test_edit_of_anything_else_is_ignored(project: Project, name: str) -> None:
    project.edit(name, IGNORED[name])
    assert find_outdated(project) == []
    assert project.is_launched()


@pytest.mark.parametrize("front_end", [FIRST])
@pytest.mark.parametrize("folder", ["/", "project/pkg", "."])
def test_working_folder_is_not_an_input(project: Project, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(project.base / folder)
    assert find_outdated(project) == []
    assert project.is_launched()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_builds_with_the_cache_and_without_give_the_same_bytes(
    project: Project, front_end: str, extent: Extent
) -> None:
    """With `--whole`, the edits follow each other; before each, every kind of build has to use the earlier build."""
    one = "a header that is found first" if front_end in stamp_inputs.CPP else "the source module"
    names = extent.part([one], [*stamp_inputs.inputs_of(front_end)])
    kinds = (*KINDS,) if front_end == FIRST or extent.folder is not None else ("wheel",)
    problems = {name: compare(project, name, INPUTS[name], kinds) for name in names}
    extent.add("stamp_inputs", front_end, pairs_of_builds=len(names) * len(kinds), problems=problems)
    assert {name: found for name, found in problems.items() if found} == {}


@pytest.mark.parametrize("front_end", [FIRST])
def test_manifest_names_no_path_of_the_build_environment(project: Project) -> None:
    manifest = json.loads(project.made["editable install"]["pkg/k.aotcuda/manifest.json"])
    outside = [read["path"] for read in manifest["reads"] if read["path"].startswith("/")]
    assert [path for path in outside if "site-packages" in path or path.startswith(sys.prefix)] == []
