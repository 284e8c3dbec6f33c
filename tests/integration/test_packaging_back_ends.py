"""Test that hatchling and setuptools give the same packages: wheels, editable builds and cleaning."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import HATCHLING, build_wheel, content, succeed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("build_cache"), pytest.mark.back_end("hatchling", "setuptools")]

TABLE = "[tool.aotcuda]\n"
GENERATED = [
    "flat/kernels.aotcuda/flat_kernels.h",
    "flat/kernels.aotcuda/functions.fatbin",
    "flat/kernels.aotcuda/kernels.fatbin",
    "flat/kernels.aotcuda/manifest.json",
    "flat/kernels.py",
    "flat/kernels.pyi",
]
SUMMARY = re.compile(
    r"aotcuda: built 1 module: 1 kernel, 1 device function for 2 targets; [\d.]+ kB in [\d.]+ s"
    r"(; (all|\d+ of \d+ steps?) from the build cache)?\n"
)
"""The last line of a build of the project."""


def generated(project: Path) -> list[str]:
    """Return the generated files of the project's module."""
    return [name for name in projects.project_files(project) if name.startswith("flat/kernels")]


def edit(project: Path, old: str, new: str) -> None:
    path = project / "pyproject.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def editable(project: Path) -> str:
    """Make an editable wheel of the packages in the project's folder, and return the messages."""
    config = project / "pyproject.toml"
    explicit = '\n[tool.hatch.build]\ndev-mode-dirs = ["."]\n'  # otherwise hatchling needs one more package
    if explicit not in config.read_text():
        config.write_text(config.read_text() + explicit)
    return projects.back_end(project, editable=True).err


def test_wheel_has_the_module_and_is_universal(back_end: str, tmp_path: Path) -> None:
    wheel = build_wheel(projects.copy("flat", tmp_path / "flat"))
    assert wheel.name == "flat-1.0-py3-none-any.whl"
    assert [name for name in sorted(content(wheel)) if name.startswith("flat/kernels")] == GENERATED
    assert b"Root-Is-Purelib: true" in content(wheel)["flat-1.0.dist-info/WHEEL"]
    assert b'"CycloneDX"' in content(wheel)["flat-1.0.dist-info/sboms/aotcuda.cdx.json"]


def test_host_abi_makes_a_wheel_for_this_system(back_end: str, tmp_path: Path) -> None:
    project = projects.copy("flat", tmp_path / "flat")
    edit(project, TABLE, f"{TABLE}host-abi = true\n")
    wheel = build_wheel(project)
    *_, tag = parse_wheel_filename(wheel.name)
    assert {(each.interpreter, each.abi) for each in tag} == {("py3", "none")}
    assert tag <= {*sys_tags()}  # pip would install it on this machine
    assert {each.platform for each in tag} != {"any"}
    assert b"Root-Is-Purelib: false" in content(wheel)["flat-1.0.dist-info/WHEEL"]


def test_single_module_project_gets_a_module_beside_it(back_end: str, tmp_path: Path) -> None:
    project = projects.copy("flat", tmp_path / "solo")
    (project / "flat" / "_kernels.py").rename(project / "solo.py")
    shutil.rmtree(project / "flat")
    for old, new in [('name = "flat"', 'name = "solo"'), ("flat._kernels", "solo"), ('"flat.kernels"', "solo_kernels")]:
        edit(project, old, new)
    if back_end == "setuptools":
        edit(project, TABLE, f'[tool.setuptools]\npy-modules = ["solo"]\n\n{TABLE}')
    assert {"solo.py", "solo_kernels.py", "solo_kernels.aotcuda/manifest.json"} <= content(build_wheel(project)).keys()
    editable(project)
    assert {"solo_kernels.py", "solo_kernels.aotcuda/manifest.json"} <= projects.project_files(project).keys()


def test_wheel_has_the_projects_files_and_none_of_an_earlier_build(back_end: str, tmp_path: Path) -> None:
    names = ["flat/editable.py", "flat/data.aotcuda/table.bin", "flat/built.aotcuda/manifest.json", "flat/kernels.txt"]
    wheels = []
    for name in ("fresh", "used"):
        project = projects.copy("flat", tmp_path / name / "flat")
        edit(project, TABLE, f'[tool.setuptools.package-data]\nflat = ["**/*"]\n\n{TABLE}')
        if name == "used":
            projects.back_end(project)
            editable(project)
            assert generated(project) == GENERATED
        edit(project, "flat.kernels", "flat.other")
        projects.put(project, dict.fromkeys(names, "editable=True\n"))
        wheels.append(content(build_wheel(project, SOURCE_DATE_EPOCH="1700000000")))
    assert wheels[0] == wheels[1]
    assert {*names} <= wheels[0].keys()


def test_editable_build_and_clean_remove_a_renamed_module(back_end: str, tmp_path: Path) -> None:
    project = projects.copy("flat", tmp_path / "flat")
    edit(project, TABLE, f'[tool.setuptools]\npackages = ["flat"]\n\n{TABLE}')
    source = projects.project_files(project).keys()
    shutil.copytree(project, tmp_path / "inner")
    editable(tmp_path / "inner")
    shutil.move(tmp_path / "inner", project / "inner")  # another project, which must not change
    inner = projects.tree(project / "inner")
    editable(project)
    before = projects.tree(project / "flat")
    edit(project, "flat.kernels", "flat.other")
    pipe = project / "flat" / "other.pyi"
    os.mkfifo(pipe)
    with pytest.raises(AssertionError, match="is a pipe"):
        editable(project)
    pipe.unlink()
    assert projects.tree(project / "flat") == before
    editable(project)
    names = ["__init__.py", "_kernels.py", "other.aotcuda", "other.py", "other.pyi"]
    assert sorted(path.name for path in (project / "flat").glob("*.*")) == names
    setup = ("-c", "import setuptools; setuptools.setup()", "clean")
    succeed(project, *((*HATCHLING, "--clean-only") if back_end == "hatchling" else (sys.executable, *setup)))
    remaining = {name for name in projects.project_files(project) if not name.startswith(("dist/", "inner/"))}
    assert remaining == source
    assert projects.tree(project / "inner") == inner


@pytest.mark.usefixtures("no_build_cache")
def test_build_ends_with_summary_and_slowest_steps(back_end: str, tmp_path: Path) -> None:
    flat = projects.copy("flat", tmp_path / "flat")
    done = projects.forked_run(flat, *projects.command(), **projects.SHOWN, AOTCUDA_VERBOSE="1")
    summary, *slowest = [line for line in done.err.splitlines(keepends=True) if not line.startswith("aotcuda ")]
    assert SUMMARY.fullmatch(summary)
    assert any(re.fullmatch(r"aotcuda: +[\d.]+ s  flat.kernels linked for sm_80\n", line) for line in slowest)
