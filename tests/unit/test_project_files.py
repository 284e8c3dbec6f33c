"""Test which files belong to a project, and which names a wheel gives to linked files outside of it."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from aotcuda import manifest
from aotcuda.builder.emit.built import Output
from aotcuda.builder.entry import backend
from aotcuda.builder.link import inputs
from aotcuda.builder.project import files
from aotcuda.builder.shards import executor
from aotcuda.errors import BuildError, ConfigError


def put(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def found(root: Path) -> set[str]:
    return {
        Path(folder, name).relative_to(root).as_posix() for folder, _, names in files.walk(str(root)) for name in names
    }


NOT_OF_A_PROJECT = {
    "an environment of venv": ("env/pyvenv.cfg", "env/lib/mod.py"),
    "an environment of Conda": ("env/conda-meta/history", "env/lib/mod.py"),
    "a cache": ("some/CACHEDIR.TAG", "some/mod.py"),
    "a hidden folder": (".tox/mod.py",),
    "bytecode": ("pkg/__pycache__/mod.pyc",),
    "packages of npm": ("node_modules/a/index.js",),
    "installed packages": ("lib/site-packages/mod.py",),
}


@pytest.mark.parametrize("names", NOT_OF_A_PROJECT.values(), ids=NOT_OF_A_PROJECT)
def test_walks_leave_out(names: tuple[str, ...], tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", "pkg/__init__.py", *names)
    assert found(tmp_path) == {"pyproject.toml", "pkg/__init__.py"}


def test_walks_follow_links_to_folders_once(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "__init__.py", "sub/mod.py")
    root = put(tmp_path / "project", "pyproject.toml")
    (root / "pkg").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "sub" / "again").symlink_to(root)
    assert found(root) == {"pyproject.toml", "pkg/__init__.py", "pkg/sub/mod.py"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("build", True),
        ("dist", True),
        ("mypkg.egg-info", True),
        ("pkg", False),
        ("pkg/build", False),
        ("pkg/dist", False),
    ],
)
def test_results_of_builds_are_beside_the_table(name: str, expected: bool, tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", f"{name}/file")
    assert files.is_result(tmp_path / name) is expected


def test_nested_projects_are_recognised_at_any_depth(tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", "sub/one/pyproject.toml", "sub/one/src/one/mod.py", "sub/two/mod.py")
    assert files.is_nested(tmp_path / "sub/one/src/one/mod.py", tmp_path)
    assert not files.is_nested(tmp_path / "sub/two/mod.py", tmp_path)
    assert not files.is_nested(tmp_path / "pyproject.toml", tmp_path)


def test_executors_get_the_sources_alone(tmp_path: Path) -> None:
    root = put(
        tmp_path / "project", "pyproject.toml", "pkg/mod.py", "pkg/build/table.py", "dist/old.whl", "build/lib/mod.py"
    )
    put(root, "mypkg.egg-info/PKG-INFO", "venv/pyvenv.cfg", "venv/lib/mod.py", ".secret")
    put(tmp_path, "outside/key")
    (root / "pkg" / "key").symlink_to(tmp_path / "outside" / "key")
    (root / "pkg" / "all").symlink_to(tmp_path / "outside")
    names = zipfile.ZipFile(io.BytesIO(executor.pack_project(root))).namelist()
    assert sorted(names) == ["pkg/build/table.py", "pkg/mod.py", "pyproject.toml"]
    named = executor.pack_project(root, [root / "dist" / "old.whl"])
    assert "dist/old.whl" in zipfile.ZipFile(io.BytesIO(named)).namelist()


OUTSIDE = {
    "in the project": ("csrc/a.cu", "csrc/a.cu"),
    "beside the project": ("../a.cu", "outside/0/a.cu"),
    "in a folder beside it": ("../shared/b.cu", "outside/1/b.cu"),
    "by way of the project": ("csrc/../../shared/b.cu", "outside/1/b.cu"),
}


@pytest.mark.parametrize(("item", "expected"), OUTSIDE.values(), ids=OUTSIDE)
def test_wheels_name_copies_of_linked_files(item: str, expected: str, tmp_path: Path) -> None:
    root = put(tmp_path / "project", "csrc/a.cu").resolve()
    put(tmp_path, "a.cu", "shared/b.cu", "shared/include/b.h")
    outside = inputs.outside_folders([item for item, _ in OUTSIDE.values()], root)
    assert inputs.carried_name(inputs.place(root / item, root), root, outside) == expected
    header = tmp_path.resolve() / "shared" / "include" / "b.h"
    assert inputs.carried_name(header, root, outside) == "outside/1/include/b.h"
    assert inputs.carried_name(Path("/usr/include/stdio.h"), root, outside) is None


@pytest.mark.parametrize("key", ["link", "source"])
@pytest.mark.parametrize("name", ["../a.cu", "csrc/../../a.cu"])
def test_sdists_of_projects_with_files_outside_are_refused(key: str, name: str, tmp_path: Path) -> None:
    root = put(tmp_path / "project", "csrc/b.cu")
    put(tmp_path, "a.cu")
    backend.check_sdist({"modules": {"pkg.k": {key: ["csrc/b.cu"]}}}, root)
    message = rf'modules\."pkg\.k"\.{key}: {re.escape(name)} is outside of the project, .*; move it into [^\n]*$'
    with pytest.raises(ConfigError, match=message):
        backend.check_sdist({"modules": {"pkg.k": {key: ["csrc/b.cu", name]}}}, root)


def test_wheels_with_other_sources_than_the_compiled_ones_are_refused() -> None:
    built = Output(
        files={}, package_root=".", warnings=(), summary=None, sources={"pkg/_k.py": manifest.digest(b"old")}
    )
    backend.check_sources(built, {"pkg/_k.py"}, lambda _: b"old")
    backend.check_sources(built, set(), lambda _: b"not read")
    with pytest.raises(
        BuildError, match=r"^pkg/_k\.py in the wheel is not the file .*let that step run before aotcuda"
    ):
        backend.check_sources(built, {"pkg/_k.py"}, lambda _: b"new")
