"""The steps of a build in the cache: named by all that they are made from, taken where that is the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import manifest
from aotcuda.arch import parse
from aotcuda.builder.build_cache.kept import Kept, UnitNames
from aotcuda.builder.build_cache.settings import Settings
from aotcuda.builder.build_cache.slices import Slices
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends import read_functions
from aotcuda.builder.frontends.protocol import CompiledKernel, External, LinkInput, Question, Unit
from aotcuda.builder.worker import telemetry
from aotcuda.builder.worker.calls import Calls
from aotcuda.builder.worker.dependency_trace import DependencyTrace
from aotcuda.common import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aotcuda.manifest import Source

SOURCE = """\
from numba import cuda
import numpy
TABLE = numpy.loadtxt("table.csv")
@cuda.jit
def k(x):
    x[0] = TABLE[0]
@cuda.jit
def other(x):
    x[0] = 1
"""
UNIT = Unit(key="k", kind="kernel", module="pkg.k", name="k", symbol="k", options=Options(), origin="pkg._k:k")
SM_90 = parse("sm_90")


def any_type(_: object) -> object:
    return object


KERNEL = CompiledKernel(
    code=(LinkInput(kind="ltoir", name="k", data=b"code"),),
    needed=(),
    signature="void(int32)",
    parameters=(),
    parameter_bytes=0,
    layout=(),
    cooperative=False,
    launch_bounds=(),
    carveout=None,
)


@dataclass
class Project:
    """A project whose sources were imported, and what the import asked."""

    root: Path
    cache: Path
    facts: str = ""
    questions: tuple[Question, ...] = ()
    beside: str = ""
    calls: Calls | None = field(default_factory=Calls)

    def kept(self) -> Kept:
        found = Settings(folder=str(self.cache), url=None, writes=True, sends=False, facts=self.facts)
        return Kept(found, str(self.root), ())

    def names(
        self, unit: Unit = UNIT, target: Any = SM_90, edited: Callable[[], object] = lambda: None
    ) -> tuple[str, ...]:
        return tuple(self.units(edited).of(unit, target))

    def units(self, edited: Callable[[], object] = lambda: None) -> UnitNames:
        asked = [("content", self.root / "pkg" / name) for name in ("_k.py", "table.csv")]
        asked.append(("module", self.root / "pkg" / "fast.py"))
        trace = DependencyTrace(
            reads={(ask, str(path)): dependencies.answer(ask, str(path)) for ask, path in asked},
            variables={"READ_A": dependencies.variable("READ_A")},
        )
        path = self.root / "pkg" / "_k.py"
        edited()
        sources: list[Source] = [{"path": str(path), "sha256": manifest.digest(path.read_bytes())}]
        return UnitNames(self.kept(), str(self.root), sources, trace, self.questions, self.beside, self.calls)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return made(tmp_path / "project", tmp_path / "cache")


def made(root: Path, cache: Path) -> Project:
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "_k.py").write_text(SOURCE)
    (root / "pkg" / "table.csv").write_text("1\n")
    return Project(root, cache)


def edit(project: Project, before: str, after: str) -> None:
    path = project.root / "pkg" / "_k.py"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_a_unit_has_two_names_one_for_code_that_shows_no_lines(project: Project) -> None:
    first, second = project.names()
    assert first != second
    edit(project, "@cuda.jit\ndef k", "\n@cuda.jit\ndef k")
    assert project.names()[0] == first
    assert project.names()[1] != second


def test_they_are_the_same_in_another_folder(project: Project, tmp_path: Path) -> None:
    assert made(tmp_path / "elsewhere" / "again", tmp_path / "cache").names() == project.names()


@pytest.mark.parametrize(
    ("text", "is_bound"),
    [
        ("HERE = __file__\n", True),
        ("import sys\nHERE = sys.path\n", True),
        ("from os import getcwd as here\nHERE = here()\n", True),
        ("def helper():\n    return __file__\nHERE = helper()\n", True),
        ("import sys\nHERE = sys.argv  # sys.path, __file__\n", False),
        ("def helper():\n    return __file__\n", False),
        ("import os\nHERE = getattr(os, 'get' + 'cwd')()\ndef helper():\n    return __file__\n", True),
        ("HERE = globals()\n", False),
    ],
)
def test_but_not_if_a_unit_may_know_where_its_source_lies(
    project: Project, tmp_path: Path, text: str, is_bound: bool
) -> None:
    another = made(tmp_path / "elsewhere" / "again", tmp_path / "cache")
    for one in (project, another):
        edit(one, "TABLE =", f"{text}TABLE =")
    assert ({*project.names()}.isdisjoint(another.names())) is is_bound


def test_an_edit_of_another_kernel_leaves_them(project: Project) -> None:
    before = project.names()[0]
    edit(project, "x[0] = 1", "x[0] = 2")
    assert project.names()[0] == before


CHANGES: dict[str, Callable[[Project, pytest.MonkeyPatch], object]] = {
    "its code": lambda project, _: edit(project, "TABLE[0]", "TABLE[1]"),
    "a global": lambda project, _: edit(project, "TABLE =", "TABLE = 2 *"),
    "a file that was read": lambda project, _: (project.root / "pkg" / "table.csv").write_text("2\n"),
    "a module that was not there": lambda project, _: (project.root / "pkg" / "fast.py").write_text(""),
    "a variable": lambda _, patch: patch.setenv("READ_A", "1"),
    "the toolchain": lambda project, _: setattr(project, "facts", "newer"),
    "what a GPU was asked": lambda project, _: setattr(
        project, "questions", (Question(place="pkg/_k.py:3", asked="is_available", answer="True"),)
    ),
    "the front end": lambda project, _: setattr(project, "beside", "another"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_a_unit_may_depend_on_changes_its_names(
    project: Project, monkeypatch: pytest.MonkeyPatch, change: Callable[[Project, pytest.MonkeyPatch], object]
) -> None:
    before = project.names()
    change(project, monkeypatch)
    assert not {*before} & {*project.names()}


@pytest.mark.parametrize(
    ("unit", "target"),
    [
        (UNIT, parse("sm_80")),
        (UNIT, parse("sm_90a")),
        (replace(UNIT, signature="void(int64)"), SM_90),
        (replace(UNIT, options=Options(fastmath=True)), SM_90),
        (replace(UNIT, symbol="k__1"), SM_90),
    ],
)
def test_so_do_its_signature_options_and_target(project: Project, unit: Unit, target: Any) -> None:
    assert not {*project.names()} & {*project.names(unit, target)}


@pytest.mark.parametrize("file", ["_k.py", "table.csv"])
def test_a_unit_has_no_name_where_something_was_edited_meanwhile(project: Project, file: str) -> None:
    assert project.names(edited=lambda: (project.root / "pkg" / file).write_text("Y = 10\n")) == ()


@pytest.mark.parametrize(
    ("built", "in_place", "expected"),
    [
        (KERNEL, False, 0),
        (KERNEL, True, 1),
        (replace(KERNEL, externals=(External(name="f", result="void", parameters=()),)), False, 1),
        (replace(KERNEL, lined=True), False, 1),
        (replace(KERNEL, exceptions=((1, "ValueError", "", "k", "k.py", 3),)), False, 1),
        (replace(KERNEL, needed=(LinkInput(kind="cu", name="a.cu", data=b"", folder="/p"),)), False, None),
        (object(), False, None),
    ],
)
def test_results_that_show_lines_or_files_are_told(
    project: Project, built: object, *, in_place: bool, expected: int | None
) -> None:
    assert project.units().choose(UNIT, built, in_place=in_place) == expected


@pytest.mark.parametrize("word", ["lineno", "traceback", "extract_stack"])
def test_lines_show_where_a_source_asks_for_them(project: Project, word: str) -> None:
    edit(project, "def other", f"def {word}")
    assert project.units().choose(UNIT, KERNEL, in_place=False) == 1


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("_k.py", 5, 0),  # its own, after its decorator
        ("_k.py", 4, 0),
        ("_k.py", 3, 0),  # no function's
        ("_k.py", 7, None),  # another kernel's, which its names leave out
        ("_k.py", 9, None),  # what begins in that one
        ("none.py", 7, 0),
        ("/usr/lib/python3/ast.py", 7, 0),
    ],
)
def test_a_unit_is_not_kept_that_was_made_of_what_its_names_leave_out(
    project: Project, file: str, line: int, expected: int | None
) -> None:
    (project.root / "there").symlink_to(project.root / "pkg")
    for folder in ("pkg", "there"):
        read = ((str(project.root / folder / file), line),)
        assert project.units().choose(UNIT, replace(KERNEL, read=read), in_place=False) == expected


def test_nor_one_while_whose_compilation_something_ran_unseen(project: Project) -> None:
    assert project.units().choose(UNIT, replace(KERNEL, read=(read_functions.UNSEEN,)), in_place=False) is None


def test_a_unit_has_no_name_where_not_all_calls_were_seen(project: Project) -> None:
    project.calls = Calls(complete=False)
    assert project.names() == ()
    project.calls = None
    assert project.names() == ()


def test_what_was_kept_is_found_by_any_of_its_names(project: Project) -> None:
    kept = project.kept()
    named = {key: (*kept.name("unit", key), *kept.name("unit", key, "with lines")) for key in "abc"}
    made = {key: replace(KERNEL, signature=key) for key in "ab"}
    kept.keep(made, named, dict.fromkeys("ab", "a unit"), "unit", {"a": 0, "b": 1})
    assert project.kept().absent(named) == {"a", "b", "c"}
    kept.write()
    again = project.kept()
    assert again.find(named, any_type) == made
    assert again.find({"b": named["b"][:1]}, any_type) == {}
    assert again.absent(named) == {"c"}
    assert (kept.made, kept.reused, again.reused) == (2, 0, 2)


def test_a_second_name_is_made_where_the_first_finds_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write down a function with all its places takes as long as all else of its names."""
    asked: list[bool] = []
    of = Slices.of
    monkeypatch.setattr(
        Slices, "of", lambda self, called, *, lines: asked.append(lines) or of(self, called, lines=lines)
    )
    kept, named = project.kept(), {"a": project.units().of(UNIT, SM_90)}
    assert kept.find(named, any_type) == {}
    assert asked == [False, True]
    kept.keep({"a": KERNEL}, named, {"a": ""}, "unit", {"a": 0})
    kept.write()
    asked.clear()
    named = {"a": project.units().of(UNIT, SM_90)}
    assert project.kept().absent(named) == set()
    assert project.kept().find(named, any_type) == {"a": KERNEL}
    assert asked == [False]
    assert tuple(named["a"]) == named["a"][:] == (named["a"][0], named["a"][1])


def test_what_is_chosen_by_no_name_or_has_none_is_not_kept(project: Project) -> None:
    kept = project.kept()
    named = {"a": kept.name("unit", "a"), "b": ()}
    kept.keep({"a": KERNEL, "b": KERNEL}, named, {"a": "", "b": ""}, "unit", {"a": None, "b": None})
    assert not kept.has_unwritten
    assert project.kept().find(named, any_type) == {}


def test_nothing_is_kept_that_came_with_a_warning(project: Project) -> None:
    """It would be taken without it."""
    kept = project.kept()
    named = {"a": kept.name("unit", "a")}
    telemetry.add(telemetry.Telemetry(warnings=["pkg/_k.py:3: UserWarning: slow"]))
    try:
        kept.keep({"a": KERNEL}, named, {"a": ""}, "unit")
    finally:
        telemetry.take()
    assert not kept.has_unwritten
    kept = project.kept()
    kept.keep({"a": KERNEL}, named, {"a": ""}, "unit")
    kept.write()
    assert project.kept().find(named, any_type) == {"a": KERNEL}


def test_what_a_cache_elsewhere_may_have_is_not_absent(project: Project, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/elsewhere"
    settings = Settings(folder=str(project.cache), url=url, writes=True, sends=False, facts="")
    kept = Kept(settings, str(project.root), ())
    assert kept.absent({"a": kept.name("unit", "a"), "b": ()}) == {"b"}


def test_without_a_cache_nothing_is_found(tmp_path: Path) -> None:
    kept = Kept(None, str(tmp_path), ())
    assert kept.name("unit", 1) == ()
    kept.keep({"a": 1}, {"a": ()}, {"a": ""}, "unit")
    kept.write()
    assert kept.find({"a": ()}, any_type) == {}
    assert kept.absent({"a": ()}) == {"a"}
    assert not kept.is_on
    assert kept.problems == ()
