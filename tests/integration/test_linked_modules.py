"""Test `link = [{ module = ... }]`: kernels of a module call the functions of another module."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.entry import api
from aotcuda.builder.write import source_tree
from integration import cuda_cpp, projects
from integration.projects import build_wheel, content, manifest_of, refused, write
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("build_cache", "front_end")

SOURCE = """
from numba import cuda

looked_up = cuda.declare_device("looked_up", "float32(int32)", abi="c")


def entry(i):
    return looked_up(i) * 3


def shift(x):
    return x + 7
"""
TABLE = """
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
__device__ float table[100];
extern "C" __device__ float looked_up(int i) { return table[i]; }
"""
HOOKS = "def upload(code):\n    pass\n"
LIBRARY = """\
link = [{ path = "table.cu", setup = "pkg._hooks:upload" }]
functions.entry = "float32(int32)"
functions.shift = "float32(float32)"
"""
USER = """
from numba import cuda

entry = cuda.declare_device("entry", "float32(int32)", abi="c")
shift = cuda.declare_device("shift", "float32(float32)", abi="c")


def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = shift(entry(i))
"""
USERS_MODULE = """
[tool.aotcuda.modules."pkg.user"]
source = "pkg._user"
link = [{ module = "pkg.k" }]
kernels.k = "void(float32[::1])"
"""


def make(folder: Path, user: str = USER, source: str = SOURCE) -> Path:
    """Return a project whose module `pkg.user` links `pkg.k`."""
    project = write(folder / "project", source, module=LIBRARY, rest=USERS_MODULE)
    (project / "pkg" / "_user.py").write_text(projects.source(user))
    (project / "pkg" / "_hooks.py").write_text(HOOKS)
    (project / "table.cu").write_text(TABLE)
    return project


@pytest.fixture(scope="module")
def files(build_cache: Path, front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return content(build_wheel(make(tmp_path_factory.mktemp("linked")), AOTCUDA_ARCH="sm_80;compute_80"))


def test_linked_functions_are_inlined_into_kernels(files: dict[str, bytes]) -> None:
    code = cuobjdump(files["pkg/user.aotcuda/kernels.fatbin"], "--dump-sass")
    assert "FFMA" in code
    assert "CALL" not in code
    ptx = cuobjdump(files["pkg/user.aotcuda/kernels.fatbin"], "--dump-ptx")
    assert re.search(r"fma\.rn\.f32 .*, 0f40400000, 0f40E00000;", ptx)  # 3 of one function, 7 of the other
    assert re.search(r"\.global .*table\[400\]", ptx)
    assert ".extern" not in ptx


def test_manifest_lists_linked_modules_and_sources(files: dict[str, bytes]) -> None:
    manifest = manifest_of(files, "pkg.user")
    expected = [{"setup": "pkg._hooks:upload", "teardown": None, "origin": "table.cu"}]
    assert manifest["callbacks"] == manifest_of(files, "pkg.k")["callbacks"] == expected
    assert manifest["linked"] == [
        {"name": "pkg.k", "symbols": ["entry", "shift"]},
        {"name": "pkg.k link0_table.fatbin", "symbols": ["looked_up"]},
    ]
    assert {"pkg/_k.py", "pkg/_user.py", "table.cu"} <= {source["path"] for source in manifest["sources"]}
    assert "pkg/_user.py" not in {source["path"] for source in manifest_of(files, "pkg.k")["sources"]}


def test_declaration_that_differs_from_built_function_is_refused(tmp_path: Path) -> None:
    source = USER.replace('"float32(float32)", abi="c"', '"float32(float64)", abi="c"')
    done = refused(make(tmp_path, source))
    assert done.err == (
        "aotcuda: pkg.k: shift is defined as float shift(float x), and Python declares it as "
        'float shift(double) (pkg/_user.py:5); make the two agree, with abi="c"\n'
    )


def link_editable_library(tmp_path: Path) -> tuple[Path, Path]:
    """Return a project, and a library outside of the environment whose functions it calls, in an editable install."""
    library = write(tmp_path / "library", SOURCE, module=LIBRARY)
    table = tomllib.loads((library / "pyproject.toml").read_text())["tool"]["aotcuda"]
    (library / "pkg" / "_hooks.py").write_text(HOOKS)
    (library / "table.cu").write_text(TABLE)
    (library / "pkg").rename(library / "neighbour")
    for path in (library / "neighbour").iterdir():
        path.write_text(path.read_text().replace("pkg", "neighbour"))
    table["modules"] = {"neighbour.k": table["modules"]["pkg.k"] | {"source": "neighbour._k"}}
    table["modules"]["neighbour.k"]["link"][0]["setup"] = "neighbour._hooks:upload"
    source_tree.install(api.build(table, library, editable=True), library)
    user_project = make(tmp_path)
    config = user_project / "pyproject.toml"
    before, _, after = config.read_text().partition('[tool.aotcuda.modules."pkg.k"]')
    users = after[after.index("[tool.aotcuda.modules") :]
    config.write_text(before + users.replace('module = "pkg.k"', 'module = "neighbour.k"'))
    return user_project, library


def test_shards_link_an_editable_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_project, library = link_editable_library(tmp_path)
    monkeypatch.syspath_prepend(library)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    table = tomllib.loads((user_project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    api.build(table, user_project, shard=(1, 1))
    assert api.build(table, user_project, from_cache_only=True).files


def test_stale_editable_dependency_is_refused(tmp_path: Path) -> None:
    user_project, library = link_editable_library(tmp_path)
    (library / "neighbour" / "other.py").write_text("")
    build_wheel(user_project, PYTHONPATH=str(library))
    source = library / "neighbour" / "_k.py"
    source.write_text("# edited\n")
    assert refused(user_project, PYTHONPATH=str(library)).message == (
        f'tool.aotcuda.modules."pkg.user".link[0]: neighbour.k was built before {source} was edited; '
        "install that project again: pip install -e ..."
    )


@pytest.mark.parametrize("is_foreign", [False, True], ids=["nothing linked", "LTOIR linked"])
def test_unlinked_module_of_a_called_function_is_named(tmp_path: Path, is_foreign: bool) -> None:
    """LTOIR hides its symbols, so the linker finds the missing function."""
    project = make(tmp_path)
    config = project / "pyproject.toml"
    code = cuda_cpp.compile_source("", "LTOIR", "--gpu-architecture=compute_80", "-dlto", "-rdc=true")
    (project / "other.ltoir").write_bytes(code)
    links = 'link = ["other.ltoir"]' if is_foreign else ""
    config.write_text(config.read_text().replace('link = [{ module = "pkg.k" }]', links))
    remedy = 'which is a function of pkg.k, a module of this wheel that is not linked; add { module = "pkg.k" } to link'
    assert refused(project).message.endswith(remedy)


def test_failing_function_is_reported_once(tmp_path: Path) -> None:
    done = refused(make(tmp_path, source=SOURCE.replace("x + 7", "x.nothing")))
    lines = projects.lines_of(done.err)
    assert len(lines) == 1
    assert lines[0].startswith('tool.aotcuda.modules."pkg.k".functions.shift')
