"""Test that builds with the build cache give the files of builds without it, and compile only changed code."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.compile import process
from aotcuda.builder.entry import api
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aotcuda.builder.emit.built import Output

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
    """Return the first build; the test's builds use its cache."""
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
    second = build(project)
    assert outcome(second) == outcome(cached)
    assert second.summary.whole


def edit_irrelevant_code(root: Path) -> None:
    edit(root, "_k.py", "@cuda.jit\ndef second", "# for\n# later\n@cuda.jit\ndef second")
    edit(root, "_helpers.py", "return x\n", "return -x\n")


def edit_one_kernel(root: Path) -> None:
    edit(root, "_k.py", "= 3", "= 4")


WHOLE = 3 + 2
"""The number of results that a build reuses if no code changed: 2 merges, PTX, and 2 images."""

EDITS: dict[str, tuple[Callable[[Path], object], int, int]] = {
    # The edit, and how many of 9 results are made and reused. WHOLE counts 5 of them. The other 4 are the machine code
    # of 2 groups of kernels for 2 targets; the last kernel is a group.
    "irrelevant code": (edit_irrelevant_code, 0, WHOLE),
    "one kernel": (edit_one_kernel, 2 + 2, 3 + 2),
    "a helper": (lambda root: edit(root, "_helpers.py", "2 * x", "3 * x"), 3 + 2 + 2, 2),
}


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_edit_remakes_only_affected_results(
    cached: Output, edited: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[Callable[[Path], object], int, int]
) -> None:
    apply, made, reused = change
    apply(edited)
    built = build(edited)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    assert outcome(build(edited)) == outcome(built), "the cache changes no file"
    assert not built.summary.whole
    assert (built.summary.made, built.summary.reused) == (made, reused)


@pytest.mark.front_end("numba-cuda")
def test_damaged_entries_cost_one_warning(
    cached: Output, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path / "cache")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", where)
    build(project)
    for path in (tmp_path / "cache").rglob("value"):
        path.write_bytes(path.read_bytes()[:-1])
    second = build(project)
    assert (second.files, second.summary.made) == (cached.files, cached.summary.made)
    (warning,) = second.warnings
    assert f"{where} has entries that are damaged" in warning
    assert outcome(build(project)) == outcome(cached), "the build replaced the damaged entries"


@pytest.mark.front_end("numba-cuda")
@pytest.mark.parametrize("package", ["flat", pytest.param("devicefunctions", marks=pytest.mark.matrix)])
def test_every_level_of_the_cache_gives_the_same_files(
    front_end: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = projects.copy(package, tmp_path.resolve() / "project")
    monkeypatch.setenv("AOTCUDA_ARCH", "sm_90")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    expected = outcome(build(root))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    assert outcome(build(root)) == expected
    assert outcome(build(root)) == expected
    for entry in list((tmp_path / "cache").rglob("entry.json")):
        if '"kind":"build"' in entry.read_text():
            entry.unlink()
    from_steps = build(root)
    assert outcome(from_steps) == expected
    assert (from_steps.summary.whole, from_steps.summary.made) == (False, 0)
