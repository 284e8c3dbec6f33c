"""A project that does not install the build hook gets a hint, wherever hatchling looks for the table."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import targets
from aotcuda.common import uninstalled_hook
from aotcuda.errors import TargetError

if TYPE_CHECKING:
    from pathlib import Path

HATCHLING = '[build-system]\nbuild-backend = "hatchling.build"\n'
CONFIGURED = f"{HATCHLING}[tool.aotcuda]\narch = ['sm_80']\n"
WHEEL = "[tool.hatch.build.targets.wheel.hooks.{}]\n"


def project(folder: Path, pyproject: str, hatch: str | None = None) -> str:
    (folder / "pyproject.toml").write_text(pyproject)
    if hatch is not None:
        (folder / "hatch.toml").write_text(hatch)
    return str(folder)


ADD = ", and does not enable the build hook: add the table [tool.hatch.build.targets.wheel.hooks.aotcuda]"
IN_HATCH_TOML = ", and does not enable the build hook: add the table [build.targets.wheel.hooks.aotcuda] to hatch.toml"
REQUIRE = ', and setuptools builds the project without aotcuda; add "aotcuda[cu13]" to build-system.requires'
SETUPTOOLS = (
    '[build-system]\nbuild-backend = "setuptools.build_meta"\nrequires = {}\n[tool.aotcuda]\narch = ["sm_80"]\n'
)
PROJECTS = {
    "no table": (CONFIGURED, None, ADD),
    "a table in the wrong place": (CONFIGURED + "[tool.hatch.hooks.aotcuda]", None, ADD),
    "a table for sdists": (CONFIGURED + "[tool.hatch.build.targets.sdist.hooks.aotcuda]", None, ADD),
    "no tables at all": (CONFIGURED + "[tool.hatch]\nbuild = 3", None, ADD),
    "hatch.toml without the table": (CONFIGURED, "[build.targets.sdist]\n", IN_HATCH_TOML),
    "setuptools alone": (SETUPTOOLS.format('["setuptools"]'), None, REQUIRE),
    "another requirement": (SETUPTOOLS.format('["setuptools", "aotcuda-like"]'), None, REQUIRE),
    "requirements of another shape": (SETUPTOOLS.format("3"), None, REQUIRE),
    "setuptools with aotcuda": (SETUPTOOLS.format('["setuptools", "aotcuda[cu13]>=0.1"]'), None, None),
    "the table for wheels": (CONFIGURED + WHEEL.format("aotcuda"), None, None),
    "the table for all targets": (CONFIGURED + "[tool.hatch.build.hooks.aotcuda]", None, None),
    "the table in hatch.toml": (CONFIGURED, "[build.targets.wheel.hooks.aotcuda]", None),
    "no configuration": (HATCHLING, None, None),
    "another build system": ("[tool.aotcuda]\narch = []", None, None),
    "no TOML": ("[tool.aotcuda", None, None),
    "another shape": ("tool = 3", None, None),
}
"""pyproject.toml, hatch.toml, and the hint."""


@pytest.mark.parametrize(("pyproject", "hatch", "hint"), PROJECTS.values(), ids=PROJECTS)
def test_a_project_without_the_hook_gets_a_hint(
    pyproject: str, hatch: str | None, hint: str | None, tmp_path: Path
) -> None:
    expected = hint and f"{tmp_path}/pyproject.toml has [tool.aotcuda]{hint}"
    assert uninstalled_hook.project_fault(project(tmp_path, pyproject, hatch)) == expected


@pytest.mark.parametrize(
    ("requirement", "named"),
    [
        ("aotcuda", True),
        ("aotcuda>=0.1,<1", True),
        ("aotcuda[fast] ; python_version > '3.10'", True),
        ("aotcuda[cu13]; extra == 'build'", False),
        ("aotcuda-others", False),
        ("numpy", False),
    ],
)
def test_metadata_that_names_aotcuda_gives_a_hint(requirement: str, named: bool) -> None:
    head = f"Metadata-Version: 2.4\nName: mypkg\nRequires-Dist: numpy\nRequires-Dist: {requirement}\n"
    text = f"{head}\nRequires-Dist: aotcuda, says the readme"
    hint = uninstalled_hook.metadata_fault(text)
    assert (hint is not None) == named
    assert hint is None or uninstalled_hook.TABLE in hint


def installed(folder: Path, metadata: str = "Requires-Dist: aotcuda\n") -> Path:
    """Return a package without modules that aotcuda built, with the metadata that an installer writes."""
    (folder / "barepkg").mkdir()
    (folder / "barepkg" / "__init__.py").touch()
    info = folder / "barepkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: barepkg\nVersion: 1.0\n{metadata}")
    (info / "RECORD").write_text("barepkg/__init__.py,,\nbarepkg-1.0.dist-info/METADATA,,\n")
    return folder


@pytest.mark.parametrize("target", ["barepkg", "barepkg.kernels"])
def test_inspect_of_an_installed_package_has_the_hint(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path))
    with pytest.raises(TargetError, match=r"it depends on aotcuda, so it may .*: add the table \[tool\.hatch\.build"):
        list(targets.find(target))


def test_a_load_of_an_installed_package_says_what_is_missing(tmp_path: Path) -> None:
    script = "import aotcuda; aotcuda.load('barepkg.kernels')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=installed(tmp_path), capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: there is no module barepkg.kernels in the package barepkg. ")
    assert f"add the table {uninstalled_hook.TABLE} to its pyproject.toml" in last


def test_the_hatchling_plugin_names_a_misspelt_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hatch_aotcuda import hooks

    monkeypatch.chdir(project(tmp_path, CONFIGURED + WHEEL.format("aot-cuda")))
    hooks.hatch_register_build_hook()
    error = capsys.readouterr().err
    assert error.startswith(f"aotcuda: {tmp_path}/pyproject.toml has [tool.aotcuda], and does not ")
    assert error.endswith(f": its table for a hook aot-cuda is misspelt; write {uninstalled_hook.TABLE}\n")
    project(tmp_path, CONFIGURED + WHEEL.format("aotcuda"))
    hooks.hatch_register_build_hook()
    assert capsys.readouterr().err == ""
