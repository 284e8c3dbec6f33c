"""Builds with the build cache give what builds without it give, and do no more than is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING
from unittest.mock import Mock, call

import pytest

from aotcuda.builder import api, progress
from aotcuda.builder.worker import process
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aotcuda.builder.built import Output

SOURCE = """\
from numba import cuda

from pkg._helpers import doubled


@cuda.jit
def first(x):
    x[cuda.grid(1)] = doubled(x[0])


@cuda.jit
def second(x):
    x[cuda.grid(1)] = 3


@cuda.jit
def last(x):
    x[cuda.grid(1)] = 5
"""
HELPERS = """\
def doubled(x):
    return 2 * x


def apart(x):
    return x
"""
MODULE = """\
kernels.first = ["void(float32[::1])", "void(int64[::1])"]
kernels.second = "void(float32[::1])"
kernels.last = "void(float32[::1])"
functions = { pkg_doubled = { python = "doubled", signature = "float32(float32)" } }
"""
ARCH = 'arch = ["sm_80", "sm_90"]'


def build(root: Path) -> Output:
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]
    return api.build(table, root)


def outcome(built: Output) -> tuple[object, ...]:
    return built.files, built.warnings, built.notes, dict(built.needed), built.package_root


def edit(root: Path, file: str, before: str, after: str) -> None:
    path = root / "pkg" / file
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


@pytest.fixture(scope="module")
def project(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project of three kernels and a function, built once with an empty cache."""
    root = tmp_path_factory.mktemp("project").resolve() / "project"
    source = projects.source(SOURCE)
    projects.write(root, source, module=MODULE, aotcuda=ARCH)
    (root / "pkg" / "_helpers.py").write_text(HELPERS)
    return root


@pytest.fixture(scope="module")
def cache(project: Path) -> str:
    return str(project.parent / "cache")


@pytest.fixture(scope="module")
def cold(project: Path, cache: str) -> Output:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTCUDA_BUILD_CACHE", cache)
        return build(project)


@pytest.fixture
def cached(cold: Output, cache: str, monkeypatch: pytest.MonkeyPatch) -> Output:
    """Return the first build; those of the test have its cache."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", cache)
    return cold


@pytest.fixture
def edited(cached: Output, project: Path, tmp_path: Path) -> Path:
    """Return a copy of the project, to be edited."""
    root = tmp_path.resolve() / "copy"
    for path in ("pyproject.toml", "pkg/__init__.py", "pkg/_k.py", "pkg/_helpers.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text((project / path).read_text())
    return root


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        message = "a worker was started"
        raise AssertionError(message)

    monkeypatch.setattr(process, "run", run)


@pytest.mark.front_end("numba-cuda", "numba-cuda-mlir")
@pytest.mark.usefixtures("no_process")
def test_unchanged_project_starts_no_worker(cached: Output, project: Path) -> None:
    again = build(project)
    assert outcome(again) == outcome(cached)
    assert again.summary.whole


def test_another_folder_lowers_kernels_and_makes_nothing(cached: Output, edited: Path) -> None:
    built = build(edited)
    assert outcome(built) == outcome(cached)
    assert (built.summary.whole, built.summary.made) == (False, 0)


def test_no_compiler_is_imported_where_nothing_changed(cached: Output, project: Path, cache: str) -> None:
    code = (
        "import pathlib, sys, tomllib; from aotcuda.builder import api; root = pathlib.Path.cwd(); "
        "table = tomllib.loads((root / 'pyproject.toml').read_text())['tool']['aotcuda']; "
        "assert api.build(table, root).summary.whole; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'numba', 'numba_cuda', 'numba_cuda_mlir', "
        "'llvmlite', 'numpy', 'cuda', 'fsspec'}))"
    )
    assert projects.succeed(project, sys.executable, "-c", code, AOTCUDA_BUILD_CACHE=cache).out == "[]\n"


def edit_nothing_that_counts(root: Path) -> None:
    edit(root, "_k.py", "@cuda.jit\ndef second", "# for\n# later\n@cuda.jit\ndef second")
    edit(root, "_helpers.py", "return x\n", "return -x\n")


def edit_one_kernel(root: Path) -> None:
    edit(root, "_k.py", "= 3", "= 4")


WHOLE = 3 + 2
"""Results that a build takes where all of them are there: 2 merges and PTX, and 2 images, which need no more then."""

EDITS: dict[str, tuple[Callable[[Path], object], int, int]] = {
    # The edit, and how many of 9 results are made and taken: those of WHOLE, and the machine code of 2 groups of
    # kernels (the last kernel is one by itself) for 2 targets.
    "nothing that counts": (edit_nothing_that_counts, 0, WHOLE),
    "one kernel": (edit_one_kernel, 2 + 2, 3 + 2),
    "a helper": (lambda root: edit(root, "_helpers.py", "2 * x", "3 * x"), 3 + 2 + 2, 2),
}


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_edit_remakes_only_affected_results(
    cached: Output, edited: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[Callable[[Path], object], int, int]
) -> None:
    apply, made, taken = change
    apply(edited)
    built = build(edited)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    assert outcome(build(edited)) == outcome(built), "as without the cache"
    assert not built.summary.whole
    assert (built.summary.made, built.summary.reused) == (made, taken)


@pytest.mark.front_end("numba-cuda-mlir")
def test_edit_remakes_only_affected_results_of_second_front_end(
    cached: Output, edited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_nothing_that_counts(edited)
    edit_one_kernel(edited)
    built = build(edited)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    assert outcome(build(edited)) == outcome(built)
    assert (built.summary.made, built.summary.reused) == (2 + 2, cached.summary.made - 4)


@pytest.mark.front_end("numba-cuda")
def test_another_target_compiles_and_links_that_alone(cached: Output, edited: Path) -> None:
    config = edited / "pyproject.toml"
    config.write_text(config.read_text().replace(ARCH, 'arch = ["sm_80", "sm_90", "sm_100"]'))
    built = build(edited)
    assert (built.summary.made, built.summary.reused) == (1 + 2 + 1, WHOLE)


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize("damage", ["no folder", "does not answer"])
def test_a_cache_that_cannot_be_used_costs_one_warning(
    cached: Output, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    where, said = {
        "no folder": (tmp_path / "file", "is not a folder"),
        "does not answer": ("http://127.0.0.1:1/cache", "127.0.0.1"),
    }[damage]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(where))
    built = build(project)
    assert built.files == cached.files
    (warning,) = built.warnings
    assert warning.startswith("the build continues without the build cache: ")
    assert said in warning


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize("is_at_a_url", [False, pytest.param(True, marks=pytest.mark.matrix)], ids=["folder", "url"])
def test_damaged_entries_cost_one_warning(
    cached: Output, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_at_a_url: bool
) -> None:
    where = f"file://{tmp_path / 'cache'}" if is_at_a_url else str(tmp_path / "cache")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", where)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", "read-write")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "own"))
    build(project)
    for path in [*(tmp_path / "cache").rglob("value"), *(tmp_path / "cache").rglob("*.zip")]:
        path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "another"))
    again = build(project)
    assert (again.files, again.summary.made) == (cached.files, cached.summary.made)
    (warning,) = again.warnings
    assert f"{where} has entries that are damaged" in warning
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "a third"))
    assert outcome(build(project)) == outcome(cached), "they were replaced"


CONCURRENT = """
import pathlib, sys, tomllib
from aotcuda.builder import api
root = pathlib.Path.cwd()
built = api.build(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"], root)
import hashlib
print(hashlib.sha256(repr(sorted(built.files.items())).encode()).hexdigest(), built.warnings)
"""


@pytest.mark.front_end("numba-cuda")
def test_builds_at_the_same_time_share_an_empty_cache(cached: Output, project: Path, tmp_path: Path) -> None:
    environ = os.environ | {"AOTCUDA_BUILD_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CONCURRENT]
    running = [subprocess.Popen(command, cwd=project, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate()[0] for process in running}
    assert len(said) == 1
    assert said.pop().endswith(" ()\n")
    assert [process.returncode for process in running] == [0, 0]


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize(
    "package", ["flat", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("devicefunctions", "inplace"))]
)
def test_packages_are_the_same_from_every_level_of_the_cache(
    front_end: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = projects.copy(package, tmp_path.resolve() / "project")
    monkeypatch.setenv("AOTCUDA_ARCH", "sm_90")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    plain = outcome(build(root))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    assert outcome(build(root)) == plain
    assert outcome(build(root)) == plain
    for entry in list((tmp_path / "cache").rglob("entry.json")):
        if '"kind":"build"' in entry.read_text():
            entry.unlink()
    from_steps = build(root)
    assert outcome(from_steps) == plain
    assert (from_steps.summary.whole, from_steps.summary.made) == (False, 0)


@pytest.mark.front_end("numba-cuda")
def test_url_serves_where_the_folder_is_unusable(edited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own" / "builds").mkdir(parents=True)
    (tmp_path / "own" / "builds").chmod(0o777)
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", f"file://{tmp_path / 'url'}")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", "read-write")
    table = tomllib.loads((edited / "pyproject.toml").read_text())["tool"]["aotcuda"]
    first = api.build(table, edited)
    assert ["can be written by others" in text for text in first.warnings] == [True]
    shown: list[str] = []
    watcher = Mock(progress.Progress, show=lambda step, *_: shown.append(step))
    assert api.build(table, edited, watcher=watcher).summary.whole
    assert {*shown} == {f"looking in file://{tmp_path / 'url'}"}
    assert watcher.mock_calls[-1] == call.clear()
    again = api.build({**table, "arch": table["arch"][::-1]}, edited)  # another table, and the same steps
    assert (again.summary.reused, again.summary.made) == (WHOLE, 0)
    assert again.files == first.files


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize(("access", "is_followed"), [("read", False), ("read-write", True)])
def test_url_with_wrong_answers_gives_one_warning(
    edited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str, is_followed: bool
) -> None:
    """The words of the problem name the entry that was asked for, so each question has other ones."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "file:///dev/null/x")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", access)
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "own"))
    table = tomllib.loads((edited / "pyproject.toml").read_text())["tool"]["aotcuda"]
    built = api.build(table, edited, followed=is_followed)
    assert ["continues without the build cache" in text for text in built.warnings] == [True]
