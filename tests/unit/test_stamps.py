"""Test which files and variables of a build count, by the stamp of a project whose packages are in `src`."""

from __future__ import annotations

import site
import sys
from pathlib import Path

import pytest

from aotcuda.builder.cache import stamps
from aotcuda.builder.compile.job import Result
from aotcuda.common.stamp import ALL_NAMES, Stamp, table_digest

APP = "/home/me/app"
PROJECT = stamps.Project(root=Path(APP), package_root=Path(APP, "src"), names=("pkg.kernels",), tops=frozenset({"pkg"}))
SITE = "/opt/env/lib/python3.11/site-packages"
INSTALLED = stamps.Project(
    root=Path(SITE), package_root=Path(SITE), names=(), tops=frozenset({"pkg", "one"}), is_installed=True
)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Have environments in `/opt/env` and in the project, and other folders on the path."""
    monkeypatch.setattr(sys, "prefix", f"{APP}/.venv")
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    monkeypatch.setattr(site, "PREFIXES", ["/opt/build"])
    monkeypatch.setattr(sys, "path", [SITE, "/home/me/tools/one/two", "/site-packages/x"])


@pytest.mark.parametrize(
    ("project", "path", "owned"),
    [
        (PROJECT, f"{APP}/src/pkg/a.py", True),
        (PROJECT, f"{APP}/csrc/a.cu", True),
        (PROJECT, f"{APP}/.venv/lib/python3.11/site-packages/other/a.py", False),
        (PROJECT, f"{APP}lication/a.py", False),
        (PROJECT, "/usr/include/a.h", False),
        (INSTALLED, f"{SITE}/pkg/a.py", True),
        (INSTALLED, f"{SITE}/one.py", True),
        (INSTALLED, f"{SITE}/ones/a.py", False),
        (INSTALLED, f"{SITE}/other/a.py", False),
    ],
)
def test_a_project_owns_its_files_and_no_installed_ones(project, path, owned):
    assert project.owns(path) is owned


@pytest.mark.parametrize(
    ("path", "generated"),
    [
        ("kernels.py", True),
        ("kernels.pyi", True),
        ("kernels.aotcuda", True),
        ("kernels.aotcuda/manifest.json", True),
        ("kernels.aotcuda2", False),
        ("kernels2.py", False),
        ("kernels.cu", False),
    ],
)
def test_a_build_generates_its_modules_and_their_data(path, generated):
    assert PROJECT.is_generated(f"{APP}/src/pkg/{path}") is generated


def test_paths_in_manifests_begin_at_the_folder_of_the_package():
    assert PROJECT.relative_package_root == "src"
    assert PROJECT.relative(f"{APP}/src/pkg/a.py") == "pkg/a.py"
    assert PROJECT.relative(f"{APP}/csrc/a.cu") == "../csrc/a.cu"


COUNTED = {
    f"{APP}/src/pkg/a.py": True,
    "/opt/data/table.bin": True,
    "/opt/env/data/table.bin": True,
    "/home/me/lib/a.h": True,
    f"{SITE}/other/a.py": False,
    "/opt/env/bin/nvcc": False,
    "/opt/env/include/a.h": False,
    "/opt/env/lib64/a.a": False,
    "/opt/env/share/a": False,
    "/opt/python/lib/python3.11/os.py": False,
    "/opt/build/lib/python3.11/os.py": False,
    f"{APP}/.venv/lib/python3.11/site-packages/other/a.py": False,
}
"""Paths, with True for those that launches and build systems compare."""


def test_files_of_the_environment_do_not_count():
    stamp = Stamp({("file", path): "digest" for path in COUNTED})
    counted = sorted(path for path, counts in COUNTED.items() if counts)
    assert [*map(str, stamps.files(stamp, PROJECT))] == counted
    assert sorted(path for _, path in stamps.launch_stamp(stamp, PROJECT).reads) == counted


def test_a_project_in_an_environment_keeps_its_own_files(monkeypatch):
    monkeypatch.setattr(sys, "prefix", APP)
    stamp = Stamp({("file", f"{APP}/lib/a.cu"): "digest"})
    assert stamps.files(stamp, PROJECT) == [Path(APP, "lib/a.cu")]
    assert stamps.launch_stamp(stamp, PROJECT).reads == stamp.reads


def test_missing_files_count_for_launches_alone():
    stamp = Stamp({("file", f"{APP}/missing.py"): None})
    assert stamps.files(stamp, PROJECT) == []
    assert stamps.launch_stamp(stamp, PROJECT).reads == stamp.reads


def test_launches_do_not_compare_the_variables_of_build_tools():
    names = [
        "PATH",
        "VIRTUAL_ENV",
        "TMPDIR",
        "PIP_X",
        "UV_X",
        "HATCH_X",
        "PEP517_X",
        "_PYPROJECT_HOOKS_X",
        "PYTHONPATH",
    ]
    stamp = Stamp({}, dict.fromkeys([*names, ALL_NAMES, "MODE", "MY_PATH"], "digest"))
    assert stamps.launch_stamp(stamp, PROJECT).variables == {"MODE": "digest", "MY_PATH": "digest"}


def test_builds_that_know_all_versions_ignore_times_of_installations():
    stamp = Stamp({("status", "/a"): "1", ("file", "/a"): "2", ("modules", "/b"): "3"}, {"MODE": None})
    left = stamps.with_versions(stamp)
    assert left.reads == {("file", "/a"): "2", ("modules", "/b"): "3"}
    assert left.variables == {"MODE": None}


def test_a_manifest_lists_sources_by_digest_and_other_questions_with_answers():
    reads = {
        ("modules", f"{APP}/src/pkg"): "names",
        ("file", f"{APP}/src/pkg/b.py"): "digest of b",
        ("file", f"{APP}/src/pkg/a.py"): "digest of a",
        ("file", f"{APP}/src/pkg/read.txt"): "digest of read",
        ("file", f"{APP}/src/pkg/missing.py"): None,
        ("file", "/opt/data/a.h"): "digest of header",
    }
    sources = [f"{APP}/src/pkg/{name}.py" for name in ("a", "b", "missing")] + ["/opt/data/a.h"]
    table = {"arch": ["sm_90"]}
    listed = stamps.make_dependencies(Stamp(reads, {"Z": None, "A": "digest"}), sources, PROJECT, table)
    assert listed.sources == [
        {"path": "../pyproject.toml#tool.aotcuda", "sha256": table_digest(table)},
        {"path": "pkg/a.py", "sha256": "digest of a"},
        {"path": "pkg/b.py", "sha256": "digest of b"},
    ]
    assert [tuple(each.values()) for each in listed.reads] == [
        ("file", "pkg/missing.py", None),
        ("file", "pkg/read.txt", "digest of read"),
        ("file", "/opt/data/a.h", "digest of header"),
        ("modules", "pkg", "names"),
    ]
    assert [*listed.reads[0]] == ["ask", "path", "answer"]
    assert [*listed.variables] == ["A", "Z"]
    assert not stamps.make_dependencies(Stamp(), [], PROJECT, None).sources


def test_sources_of_all_results_are_listed_once_in_order():
    first = Result(sources=({"path": f"{APP}/src/pkg/b.py", "sha256": "b"}, {"path": f"{APP}/src/a.cu", "sha256": "a"}))
    second = Result(sources=({"path": f"{APP}/src/pkg/b.py", "sha256": "b"},))
    listed = [{"path": "a.cu", "sha256": "a"}, {"path": "pkg/b.py", "sha256": "b"}]
    assert stamps.sources([first, second], PROJECT) == listed


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("data/deep/a.txt", True),
        ("data/**/*.txt", True),
        ("**/a.txt", True),
        ("data/.*", True),
        ("../*/data", True),
        ("*.txt", False),
        ("missing/**", False),
        ("data/b.txt", False),
    ],
)
def test_a_glob_that_matches_nothing_has_a_warning(tmp_path, text, matches):
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.txt").touch()
    (tmp_path / "data" / ".hidden").touch()
    warnings = stamps.watch_warnings(["data", text], tmp_path)
    assert len(warnings) == (not matches)
    assert all(each.startswith(f"tool.aotcuda.watch[1]: {text!r} matches no file") for each in warnings)


def test_globs_are_relative_to_the_folder_of_the_table():
    globs = ["data/*.txt", "../other/*", "/opt/*"]
    assert stamps.patterns(globs, Path(APP)) == (f"{APP}/data/*.txt", "/home/me/other/*", "/opt/*")
