"""Test that a missing build hook is reported, wherever hatchling looks for its table."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import targets
from aotcuda.cli import main
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


ADD = (
    "pyproject.toml has [tool.aotcuda], and does not turn the build hook on: add the table "
    "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
)
SETUPTOOLS = (
    '[build-system]\nbuild-backend = "setuptools.build_meta"\nrequires = {}\n[tool.aotcuda]\narch = ["sm_80"]\n'
)
REQUIRE = (
    'pyproject.toml has [tool.aotcuda], and setuptools builds it without: add "aotcuda[cu13]" to build-system.requires'
)


@pytest.mark.parametrize(
    ("pyproject", "hatch", "message"),
    [
        pytest.param(CONFIGURED, None, ADD, id="no table"),
        pytest.param(CONFIGURED + "[tool.hatch.build.targets.sdist.hooks.aotcuda]", None, ADD, id="a table for sdists"),
        pytest.param(CONFIGURED + "[tool.hatch]\nbuild = 3", None, ADD, id="no tables"),
        pytest.param(
            CONFIGURED,
            "[build.targets.sdist]\n",
            "add the table [build.targets.wheel.hooks.aotcuda] to hatch.toml",
            id="hatch.toml",
        ),
        pytest.param(
            CONFIGURED + WHEEL.format("aot_cuda"),
            None,
            f": its table for a hook aot_cuda is misspelt, write {uninstalled_hook.TABLE}",
            id="a misspelt table",
        ),
        pytest.param(SETUPTOOLS.format('["setuptools", "aotcuda-like"]'), None, REQUIRE, id="setuptools"),
        pytest.param(SETUPTOOLS.format("3"), None, REQUIRE, id="setuptools with a number"),
    ],
)
def test_missing_hook_is_reported_with_the_table_to_add(
    pyproject: str, hatch: str | None, message: str, tmp_path: Path
) -> None:
    found = uninstalled_hook.in_project(project(tmp_path, pyproject, hatch))
    assert found is not None
    assert found.startswith(f"{tmp_path}/pyproject.toml has [tool.aotcuda], and ")
    assert found.endswith(message)


@pytest.mark.parametrize(
    ("pyproject", "hatch"),
    [
        pytest.param(CONFIGURED + WHEEL.format("aotcuda"), None, id="the wheel's own table"),
        pytest.param(CONFIGURED + "[tool.hatch.build.hooks.aotcuda]", None, id="that for all targets"),
        pytest.param(CONFIGURED, "[build.targets.wheel.hooks.aotcuda]", id="one in hatch.toml"),
        pytest.param(HATCHLING, None, id="no configuration"),
        pytest.param("[tool.aotcuda]\narch = []", None, id="another build system"),
        pytest.param(SETUPTOOLS.format('["setuptools", "aotcuda[cu13]>=0.1"]'), None, id="setuptools with aotcuda"),
        pytest.param("[tool.aotcuda", None, id="no TOML"),
        pytest.param("tool = 3", None, id="another shape"),
    ],
)
def test_other_projects_get_no_message(pyproject: str, hatch: str | None, tmp_path: Path) -> None:
    assert uninstalled_hook.in_project(project(tmp_path, pyproject, hatch)) is None


@pytest.mark.parametrize(
    ("requirement", "named"),
    [
        ("aotcuda", True),
        ("aotcuda[fast] ; python_version > '3.10'", True),
        ("aotcuda (>=0.1)", True),
        ("aotcuda[cu13]; extra == 'build'", False),
        ("aotcuda-others", False),
    ],
)
def test_metadata_that_names_aotcuda_gives_a_hint(requirement: str, named: bool) -> None:
    head = f"Metadata-Version: 2.4\nName: mypkg\nRequires-Dist: numpy\nRequires-Dist: {requirement}\n"
    text = f"{head}\nRequires-Dist: aotcuda, says the readme"
    found = uninstalled_hook.in_metadata(text)
    assert (found is not None) == named
    assert found is None or uninstalled_hook.TABLE in found


def installed(folder: Path) -> Path:
    """Install a package without packaged modules, with the metadata that an installer writes."""
    (folder / "barepkg").mkdir()
    (folder / "barepkg" / "__init__.py").touch()
    info = folder / "barepkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: barepkg\nVersion: 1.0\nRequires-Dist: aotcuda\n")
    (info / "RECORD").write_text("barepkg/__init__.py,,\nbarepkg-1.0.dist-info/METADATA,,\n")
    return folder


def test_inspect_of_an_installed_package_has_the_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path))
    with pytest.raises(TargetError, match=r"it depends on aotcuda, so it may .*: add the table \[tool\.hatch\.build"):
        list(targets.find("barepkg.kernels"))


def test_inspect_of_a_wheel_is_one_line_with_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "barepkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("barepkg/__init__.py", "")
        archive.writestr("barepkg-1.0.dist-info/METADATA", "Name: barepkg\nRequires-Dist: aotcuda>=0.1\n")
    assert main(["inspect", str(wheel)]) == 1
    error = capsys.readouterr().err
    assert uninstalled_hook.TABLE in error
    assert error.count("\n") == 1


def test_load_of_an_installed_package_names_the_missing_table(tmp_path: Path) -> None:
    script = "import aotcuda; aotcuda.load('barepkg.kernels')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=installed(tmp_path), capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: there is no module barepkg.kernels in the package barepkg. ")
    assert f"add the table {uninstalled_hook.TABLE} to its pyproject.toml" in last


def test_hatchling_plugin_reports_a_misspelt_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hatch_aotcuda import hooks

    monkeypatch.chdir(project(tmp_path, CONFIGURED + WHEEL.format("aot-cuda")))
    hooks.hatch_register_build_hook()
    assert capsys.readouterr().err.startswith(f"aotcuda: {tmp_path}/pyproject.toml has [tool.aotcuda], and does not ")
    project(tmp_path, CONFIGURED + WHEEL.format("aotcuda"))
    hooks.hatch_register_build_hook()
    assert capsys.readouterr().err == ""
