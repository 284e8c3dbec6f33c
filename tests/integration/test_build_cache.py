"""Test that builds with the build cache give the files of builds without it, and compile only changed code."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.compile import process
from aotcuda.builder.emit import build_report
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
    # The edit, and how many of 13 results are made and reused. WHOLE counts 5 of them. 4 are the IR of the kernels, and
    # 4 the machine code of 2 groups of kernels for 2 targets; the last kernel is a group.
    "irrelevant code": (edit_irrelevant_code, 0, WHOLE + 4),
    "one kernel": (edit_one_kernel, 1 + 2 + 2, 3 + 3 + 2),
    "a helper": (lambda root: edit(root, "_helpers.py", "2 * x", "3 * x"), 2 + 3 + 2 + 2, 2 + 2),
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


VALUES = """\
import numpy as np
from numba import cuda, float32

from pkg import _helpers, _patch
from pkg._helpers import SIZE, helper

LOCAL = 1
TABLE = np.array([1, 2, 3], np.float32)
PAIR = (1, (2.0, _helpers.NUMBER))


def make(number):
    @cuda.jit
    def closure(x):
        x[0] = number

    return closure


closure = make(1)


def inline(x, n=1):
    return x + n


@cuda.jit
def local(x):
    x[0] = LOCAL


@cuda.jit
def table(x):
    x[0] = cuda.const.array_like(TABLE)[cuda.threadIdx.x]


@cuda.jit
def pair(x):
    x[0] = PAIR[1][1]


@cuda.jit
def default(x):
    x[0] = inline(x[0])


@cuda.jit
def attribute(x):
    x[0] = _helpers.NUMBER


@cuda.jit
def patched(x):
    x[0] = _helpers.PATCHED


@cuda.jit
def indirect(x):
    x[0] = helper(x[0])


@cuda.jit
def shared(x):
    tile = cuda.shared.array(SIZE, float32)
    tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    x[0] = tile[_helpers.NUMBER]


@cuda.jit
def constant(x):
    x[0] = 7
"""
VALUE_HELPERS = """\
from numba import cuda

NUMBER = 1
PATCHED = 0
SIZE = 32


@cuda.jit(device=True)
def inner(x):
    return x * NUMBER


@cuda.jit(device=True)
def helper(x):
    return inner(x)
"""


@pytest.mark.front_end("numba-cuda")
def test_kernels_that_read_changed_values_are_compiled_again(
    front_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve() / "project"
    names = ("closure", "local", "table", "pair", "default", "attribute", "patched", "indirect", "shared", "constant")
    kernels = "".join(f'kernels.{name} = "void(float32[::1])"\n' for name in names)
    projects.write(root, projects.source(VALUES), module=kernels, aotcuda='arch = ["sm_90"]')
    (root / "pkg" / "_helpers.py").write_text(projects.source(VALUE_HELPERS))
    (root / "pkg" / "_patch.py").write_text("from pkg import _helpers\n\n_helpers.PATCHED = 1\n")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    build(root)
    for file, before, after in (
        ("_k.py", "LOCAL = 1", "LOCAL = True"),
        ("_k.py", "[1, 2, 3]", "[1, 2, 4]"),
        ("_k.py", "make(1)", "make(-1)"),
        ("_k.py", "n=1", "n=2"),
        ("_helpers.py", "NUMBER = 1", "NUMBER = 2"),
        ("_helpers.py", "SIZE = 32", "SIZE = 64"),
        ("_patch.py", "PATCHED = 1", "PATCHED = 2"),
    ):
        edit(root, file, before, after)
    built = build(root)
    made = [unit["name"] for unit in units(built) if not unit["targets"]["sm_90"]["cached"]]
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    assert outcome(build(root)) == outcome(built), "the cache changes no file"
    assert {*names} - {"constant"} <= {*made}


def units(built: Output) -> list[dict[str, Any]]:
    """Return the kernels in the report of a build."""
    return list(json.loads(build_report.render(built))["units"])


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
