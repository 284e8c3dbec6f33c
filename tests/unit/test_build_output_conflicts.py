"""Refuse outputs that replace foreign files, and modules that Python would not import."""

from __future__ import annotations

import importlib.machinery
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli
from aotcuda.builder.emit import wheel_files
from aotcuda.builder.project import output_conflicts
from aotcuda.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILES = ["pkg/k.py", "pkg/k.pyi", "pkg/k.aotcuda/manifest.json", "pkg/k.aotcuda/sources/_prelude.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "_k.py").write_text("try:\n    pass\nfinally: pass\n")
    (tmp_path / "out").mkdir()
    return tmp_path


def option_refusal(project: Path, **options: str) -> str | None:
    """Return the error of a build with these options, which writes nothing; None if the build succeeds."""
    options_with_paths = {f"--{name}": project / path for name, path in options.items()}
    read = [project / "pkg" / "__init__.py", project / "pkg" / "_k.py", project / "pkg"]
    try:
        output_conflicts.check_options(options_with_paths, project / "pyproject.toml")
        output_conflicts.check_files(options_with_paths, project / "out", FILES, read)
    except BuildError as error:
        return str(error).replace(f"{project}/", "")
    return None


@pytest.mark.parametrize(
    "path",
    ["pyproject.toml", "pkg/_k.py", "pkg/../pkg/_k.py", "out/pkg/k.py", "out/pkg/k.aotcuda/d"],
)
def test_option_cannot_name_files_that_the_build_uses(project: Path, path: str) -> None:
    (project / "out" / "pkg").mkdir()
    for option in ("stamp", "depfile", "sbom"):
        error = option_refusal(project, **{option: path})
        assert error is not None
        assert error.startswith(f"--{option} {path} ")
        assert "\n" not in error


def test_two_options_cannot_name_one_file(project: Path) -> None:
    assert option_refusal(project, depfile="out/x", stamp="out/../out/x") == (
        "--stamp out/../out/x would overwrite the file of --depfile; name another file"
    )


def test_stamp_replaces_only_stamps(project: Path) -> None:
    (project / "notes.txt").write_text("mine")
    assert option_refusal(project, stamp="notes.txt") == (
        "--stamp notes.txt would overwrite a file that no such build wrote; name another one, or remove it"
    )


def test_files_of_an_earlier_build_may_be_replaced(project: Path) -> None:
    (project / "k.d").write_bytes(b"k.s: \\\n  /p/a.py\n/p/a.py:\n")
    (project / "k.s").write_text('{"folder": "."}')
    (project / "touched").touch()
    options = {"--depfile": project / "k.d", "--stamp": project / "k.s", "--sbom": project / "touched"}
    output_conflicts.check_options(options, project / "pyproject.toml")
    del options["--sbom"]
    output_conflicts.check_files(options, project / "out", FILES, options.values())
    assert option_refusal(project, depfile="k.d", stamp="k.s", sbom="touched") is None


def test_foreign_module_in_the_output_folder_is_kept(project: Path) -> None:
    path = project / "out" / "pkg" / "k.py"
    path.parent.mkdir()
    path.write_text("mine = True\n")
    assert option_refusal(project) == (
        "out/pkg/k.py is there, and aotcuda did not write it; name another folder, or remove it"
    )
    path.write_text(f"{wheel_files.MARK} 1.0\n")
    assert option_refusal(project) is None


def test_build_checks_options_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = project / "pyproject.toml"
    config.write_text('[tool.aotcuda]\narch = ["sm_80"]\n')
    assert cli.main(["build", str(project), "--stamp", str(config)]) == 1
    assert capsys.readouterr().err == (
        f"aotcuda: --stamp {config} would overwrite the project's pyproject.toml; name another file\n"
    )


GENERATED = f"{wheel_files.MARK} 1.0\n"
SUFFIXES = (
    *importlib.machinery.EXTENSION_SUFFIXES,
    ".so",
    *(".abi3.so", ".cpython-314t-aarch64-linux-gnu.so", ".pypy311-pp73-x86_64-linux-gnu.so"),
    *(".pyd", ".cp314t-win_arm64.pyd"),
)
TAKEN = (
    "k.py",
    "k.pyi",
    "K.py",
    "K.pyi",
    "K.abi3.so",
    "k/__init__.py",
    "k/inner.py",
    "k/deep/inner.py",
    *(f"k{suffix}" for suffix in SUFFIXES),
)
TAKEN += tuple(f"k/inner{suffix}" for suffix in SUFFIXES)
FREE = (
    "_k.py", "kk.abi3.so", "k.cu", "k.so.1", "k.other.so", "k/sources/a.cu", "k/not-a-name.py", "k/no-name/inner.py",
)  # fmt: skip
FREE += ("k.aotcuda/sources/pkg/_k.py", "k/__pycache__/inner.cpython-311.pyc", "sub/k.py", "sub/k.abi3.so")


def module_refusal(root: Path, *roots: str, extensions: tuple[str, ...] = ()) -> str | None:
    try:
        output_conflicts.check_module("pkg.k", "KEY", [root / name for name in roots or (".",)], root, extensions)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["json", "sys"])
def test_names_of_pythons_own_modules_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^KEY: import {name} finds Python's own module; choose another name"):
        output_conflicts.check_module(name, "KEY", [tmp_path], tmp_path)
    output_conflicts.check_module(f"pkg.{name}", "KEY", [tmp_path], tmp_path)


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refusal(name: str) -> str:
    return f"KEY: the project already has {name}, where the generated module would go; choose another module name"


def test_names_of_existing_modules_are_refused(tmp_path: Path) -> None:
    folder = "src/pkg"
    for at, name in enumerate(TAKEN):
        write(tmp_path / str(at) / folder / name)
        assert module_refusal(tmp_path / str(at), "src", ".") == refusal(f"{folder}/{name}")


def test_files_of_other_modules_are_accepted(tmp_path: Path) -> None:
    for name in FREE:
        write(tmp_path / "pkg" / name)
        assert module_refusal(tmp_path) is None, name


def test_generated_files_of_an_earlier_build_are_accepted(tmp_path: Path) -> None:
    for name in ("k.py", "k.pyi", "k/inner.py", "k/__init__.py"):
        write(tmp_path / "pkg" / name, GENERATED)
    assert module_refusal(tmp_path) is None
    write(tmp_path / "pkg" / "k.abi3.so")
    assert module_refusal(tmp_path) == refusal("pkg/k.abi3.so")


def test_name_of_an_extension_module_is_refused(tmp_path: Path) -> None:
    assert module_refusal(tmp_path, extensions=("pkg.other", "k")) is None
    assert module_refusal(tmp_path, extensions=("pkg.k",)) == refusal("an extension module pkg.k")


def test_packages_outside_the_project_are_searched(tmp_path: Path) -> None:
    write(tmp_path / "lib" / "pkg" / "k.py")
    (tmp_path / "project").mkdir()
    assert module_refusal(tmp_path / "project", "../lib") == refusal("../lib/pkg/k.py")
