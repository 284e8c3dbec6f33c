"""Whole builds in the cache: found while every question that they asked has its answer, in whatever folder."""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from aotcuda import manifest
from aotcuda.builder.build_cache import remote
from aotcuda.builder.build_cache.places import Places
from aotcuda.builder.build_cache.settings import Settings
from aotcuda.builder.build_cache.store import Store
from aotcuda.builder.build_cache.whole import Whole, above
from aotcuda.builder.worker import dependency_trace
from aotcuda.builder.worker.dependency_trace import DependencyTrace
from aotcuda.builder.worker.job import Result
from aotcuda.common import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MADE = {"pkg/k.py": b"made"}


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "project", source: str = "X = 1\n") -> Path:
        root = tmp_path / name
        (root / "pkg").mkdir(parents=True)
        (root / "pkg" / "_k.py").write_text(source)
        (root / "pkg" / "table.csv").write_text("1,2\n")
        return root

    return make


@pytest.fixture
def whole(tmp_path: Path) -> Callable[..., Whole]:
    def make(
        root: Path, *known: object, exact: bool = False, facts: str = "", cache: str = "cache", url: str | None = None
    ) -> Whole:
        folder = str(tmp_path / cache)
        found = Settings(folder=folder, url=url, writes=True, sends=url is not None, facts=facts)
        store = Store(found, remote.fetch, remote.send)
        return Whole(store, found, str(root), known, exact=exact, is_generated=lambda path: path.endswith("/k.py"))

    return make


def result(root: Path, *reads: tuple[str, Path], unseen: tuple[str, ...] = (), **variables: str) -> Result:
    """What a worker saw that imported `_k.py`, read `table.csv`, and asked more."""
    asked = [("content", root / "pkg" / "_k.py"), ("content", root / "pkg" / "table.csv"), *reads]
    trace = DependencyTrace(
        reads={(ask, str(path)): dependencies.answer(ask, str(path)) for ask, path in asked},
        variables={name: dependencies.variable(name) for name in variables},
    )
    source = root / "pkg" / "_k.py"
    sources = ({"path": str(source), "sha256": manifest.digest(source.read_bytes())},)
    return Result(toolchain={}, modules=(), sources=sources, warnings=(), trace=trace, unseen=unseen)  # type: ignore[arg-type]


def test_a_build_is_found_while_nothing_changed(project: Callable[..., Path], whole: Callable[..., Whole]) -> None:
    root = project()
    assert whole(root).get() is None
    whole(root).keep(MADE, [result(root)], [], "pkg.k")
    assert whole(root).get() == MADE


def test_in_another_folder_too_with_files_of_other_times(
    project: Callable[..., Path], whole: Callable[..., Whole]
) -> None:
    root, other = project(), project("other")
    whole(root).keep(MADE, [result(root)], [], "pkg.k")
    os.utime(other / "pkg" / "table.csv", (1, 1))
    assert whole(other).get() == MADE


@pytest.mark.parametrize(
    "source",
    ["HERE = __file__\n", "import os\nX = len(os.getcwd())\n", "X = str(P('.').resolve())\n", "import sys\nsys.path\n"],
)
def test_but_not_if_a_source_may_know_where_it_lies(
    project: Callable[..., Path], whole: Callable[..., Whole], source: str
) -> None:
    root, other = project("one", source), project("other", source)
    whole(root).keep(MADE, [result(root)], [], "pkg.k")
    assert whole(root).get() == MADE
    assert whole(other).get() is None


@pytest.mark.parametrize("ask", ["content", "kind", "names", "module"])
def test_nor_if_something_beside_the_folder_was_asked_for(
    project: Callable[..., Path], whole: Callable[..., Whole], ask: str
) -> None:
    """By `../shared` it asks of another place in another folder, and that of the first one is still there."""
    root, other = project("one/project"), project("two/project")
    shared = root.parent / "shared"
    shared.mkdir()
    (shared / "x").write_text("1")
    asked = (ask, shared / "x" if ask == "content" else shared)
    whole(root).keep(MADE, [result(root, asked)], [], "pkg.k")
    assert whole(root).get() == MADE
    assert whole(other).get() is None


@pytest.mark.parametrize("name", ["lib/sibling/_k.py", f"lib/sibling/_fast{EXTENSION_SUFFIXES[0]}"])
def test_what_another_package_was_found_by_is_asked_for(
    project: Callable[..., Path],
    whole: Callable[..., Whole],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """An editable install may be of another folder the next time."""
    root, module = project(), tmp_path / name
    module.parent.mkdir(parents=True)
    module.write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path), *sys.path, str(tmp_path / "lib")])
        whole(root).keep(MADE, [result(root, ("content", module))], [], "pkg.k")
        assert whole(root).get() == MADE
    assert whole(root).get() is None
    with monkeypatch.context() as patch:  # by what, nobody knows: the folder above the project's is there by chance
        patch.setattr(sys, "path", [str(tmp_path), *sys.path])
        whole(root, "mapped").keep(MADE, [result(root, ("content", module))], [], "pkg.k")
        assert whole(root, "mapped").get() is None


def test_nor_one_that_is_for_its_folder(project: Callable[..., Path], whole: Callable[..., Whole]) -> None:
    root, other = project(), project("other")
    whole(root, exact=True).keep(MADE, [result(root)], [], "pkg.k")
    assert whole(root, exact=True).get() == MADE
    assert whole(other, exact=True).get() is None
    assert whole(root).get() is None


def linked(path: Path) -> None:
    """Put a link into the place of what is there, which has the same content."""
    path.symlink_to(path.rename(path.parents[1] / "moved"))


EDITS: dict[str, Callable[[Path], object]] = {
    "a source": lambda root: (root / "pkg" / "_k.py").write_text("X = 2\n"),
    "a source that is gone": lambda root: (root / "pkg" / "_k.py").unlink(),
    "a table": lambda root: (root / "pkg" / "table.csv").write_text("1,3\n"),
    "a module that was not there": lambda root: (root / "pkg" / "fast.py").write_text(""),
    "a name in a folder": lambda root: (root / "pkg" / "more.csv").write_text(""),
    "a source that is a link": lambda root: linked(root / "pkg" / "_k.py"),
    "a data file that is a link": lambda root: linked(root / "pkg" / "table.csv"),
    "a folder that is a link": lambda root: linked(root / "pkg"),
    "what lies at a path that was looked at": lambda root: (root / "pkg" / "pyproject.toml").write_text(""),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_is_never_answered_by_an_old_build(
    project: Callable[..., Path], whole: Callable[..., Whole], edit: Callable[[Path], object]
) -> None:
    root = project()
    seen = result(root, ("module", root / "pkg" / "fast.py"), ("names", root / "pkg"))
    whole(root).keep(MADE, [seen], [str(root / "pkg" / "pyproject.toml")], "pkg.k")
    assert whole(root).get() == MADE
    edit(root)
    assert whole(root).get() is None


def test_nor_is_another_variable(
    project: Callable[..., Path], whole: Callable[..., Whole], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project()
    whole(root).keep(MADE, [result(root, READ_A="")], [], "pkg.k")
    assert whole(root).get() == MADE
    monkeypatch.setenv("READ_A", "1")
    assert whole(root).get() is None


def test_nor_another_table_or_toolchain(project: Callable[..., Path], whole: Callable[..., Whole]) -> None:
    root = project()
    whole(root, {"arch": ["sm_90"]}).keep(MADE, [result(root)], [], "pkg.k")
    assert whole(root, {"arch": ["sm_90"]}).get() == MADE
    assert whole(root, {"arch": ["sm_80"]}).get() is None
    assert whole(root, {"arch": ["sm_90"]}, facts="newer").get() is None


def test_going_back_to_what_was_built_before_is_found(
    project: Callable[..., Path], whole: Callable[..., Whole]
) -> None:
    root = project()
    for text in ("X = 1\n", "X = 2\n", "import os\n"):
        (root / "pkg" / "_k.py").write_text(text)
        more = [("kind", root / "x")] if text.startswith("import") else []
        whole(root).keep({"k": text}, [result(root, *more)], [], "pkg.k")
    for text in ("X = 1\n", "X = 2\n", "import os\n"):
        (root / "pkg" / "_k.py").write_text(text)
        assert whole(root).get() == {"k": text}


@pytest.fixture
def bucket() -> Iterator[str]:
    MemoryFileSystem.store.clear()
    yield "memory://bucket/aotcuda"
    MemoryFileSystem.store.clear()


def asks_more(root: Path, name: str) -> Result:
    """What a worker saw after an edit by which the source asks one thing more."""
    (root / "pkg" / "_k.py").write_text(f"import {name}\n")
    return result(root, ("kind", root / name))


def test_what_a_url_lists_is_found_whatever_the_folder_has_listed(
    project: Callable[..., Path], whole: Callable[..., Whole], bucket: str
) -> None:
    theirs, mine = project("theirs"), project("mine")
    whole(theirs, cache="theirs", url=bucket).keep({"k": "old"}, [result(theirs)], [], "pkg.k")
    assert whole(mine, cache="mine", url=bucket).get() == {"k": "old"}
    whole(theirs, cache="theirs", url=bucket).keep({"k": "new"}, [asks_more(theirs, "new")], [], "pkg.k")
    asks_more(mine, "new")
    assert whole(mine, cache="mine").get() is None
    assert whole(mine, cache="mine", url=bucket).get() == {"k": "new"}
    assert whole(mine, cache="mine").get() == {"k": "new"}, "it is listed in the folder from then on"
    (mine / "pkg" / "_k.py").write_text("X = 1\n")
    assert whole(mine, cache="mine").get() == {"k": "old"}, "as is what was there"


def test_a_url_keeps_what_others_have_listed_there(
    project: Callable[..., Path], whole: Callable[..., Whole], bucket: str
) -> None:
    root = project()
    whole(root, cache="one", url=bucket).keep({"k": "first"}, [result(root)], [], "pkg.k")
    for cache in ("two", "one"):
        seen = asks_more(root, cache)
        one = whole(root, cache=cache, url=bucket)
        assert one.get() is None
        one.keep({"k": cache}, [seen], [], "pkg.k")
    for name in ("one", "two"):
        asks_more(root, name)
        assert whole(root, cache="three", url=bucket).get() == {"k": name}


@pytest.mark.parametrize("file", ["_k.py", "table.csv"])
def test_what_was_edited_during_the_build_is_not_kept(
    project: Callable[..., Path], whole: Callable[..., Whole], file: str
) -> None:
    root = project()
    seen = result(root)
    (root / "pkg" / file).write_text("X = 7\n")
    whole(root).keep(MADE, [seen], [], "pkg.k")
    assert whole(root).get() is None


def test_nor_what_was_replaced_by_something_of_its_size_and_time(
    project: Callable[..., Path], whole: Callable[..., Whole]
) -> None:
    root = project()
    table = root / "pkg" / "table.csv"
    seen = result(root)
    assert seen.trace is not None
    seen.trace.versions[str(table)] = dependency_trace.version(table)
    state = table.stat()
    (root / "new").write_text("1,9\n")
    os.utime(root / "new", ns=(state.st_atime_ns, state.st_mtime_ns))
    (root / "new").replace(table)
    whole(root).keep(MADE, [seen], [], "pkg.k")
    assert whole(root).get() is None


def test_nor_what_read_files_that_nobody_knows_of(project: Callable[..., Path], whole: Callable[..., Whole]) -> None:
    root = project()
    whole(root).keep(MADE, [result(root, unseen=("x.cu",))], [], "pkg.k")
    assert whole(root).get() is None


def test_which_variables_there_are_is_a_question(
    project: Callable[..., Path], whole: Callable[..., Whole], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project()
    seen = result(root)
    assert seen.trace is not None
    seen.trace.names = manifest.digest(b"HOME")
    whole(root).keep(MADE, [seen], [], "pkg.k")
    assert whole(root).get() == MADE
    monkeypatch.setenv("READ_A", "1")
    assert whole(root).get() is None
    monkeypatch.delenv("READ_A")
    assert whole(root).get() == MADE


def test_what_a_build_writes_is_no_question(project: Callable[..., Path], whole: Callable[..., Whole]) -> None:
    root = project()
    whole(root).keep(MADE, [result(root, ("kind", root / "pkg" / "k.py"))], [], "pkg.k")
    (root / "pkg" / "k.py").write_text("")
    assert whole(root).get() == MADE


def environment(folder: Path, version: str) -> Path:
    (folder / "lib" / "site-packages" / "tables").mkdir(parents=True)
    (folder / "lib" / "site-packages" / "tables" / "__init__.py").write_text(f"VERSION = {version}\n")
    return folder / "lib" / "site-packages"


def test_installed_packages_count_by_their_content_wherever_they_are(
    tmp_path: Path, project: Callable[..., Path], whole: Callable[..., Whole], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project()
    first, same, newer = (environment(tmp_path / f"env{number}", text) for number, text in enumerate("112"))
    monkeypatch.syspath_prepend(str(first))
    whole(root).keep(MADE, [result(root, ("content", first / "tables" / "__init__.py"))], [], "pkg.k")
    monkeypatch.setattr("sys.path", [str(same)])
    assert whole(root).get() == MADE
    monkeypatch.setattr("sys.path", [str(newer), str(same)])
    assert whole(root).get() is None


def test_places_are_named_from_the_project_or_the_environment(tmp_path: Path) -> None:
    site = environment(tmp_path / "project" / ".venv", "1")
    places = Places(str(tmp_path / "project"), [str(site), "/usr/lib/python3"])
    for path in (site / "tables" / "__init__.py", tmp_path / "project" / "a" / "b.py", Path("/etc/hosts")):
        assert places.path(places.name(str(path))) == str(path)
    assert places.name(str(site / "tables")) == "installed:tables"
    assert places.name(str(tmp_path / "project")) == "project:"
    assert places.path(places.name(str(site))) == str(site)
    other = environment(tmp_path / "another", "1")
    assert Places(str(tmp_path), [str(other)]).path(places.name(str(site))) == str(other)
    assert places.name(str(tmp_path / "projects")) == str(tmp_path / "projects")


def test_above() -> None:
    assert list(above("/p/a/b/c.py", "/p", "x")) == ["/p/a/b/x", "/p/a/x"]
    assert list(above("/q/c.py", "/p", "x")) == []
