"""Names that a generated module cannot have: an installed one must be what Python imports, and hide nothing."""

from __future__ import annotations

import importlib.machinery
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder import output_conflicts, wheel_files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

GENERATED = f"{wheel_files.MARK} 1.0\n"
SUFFIXES = (
    *importlib.machinery.EXTENSION_SUFFIXES,
    ".so",
    *(".abi3.so", ".abi3t.so", ".cpython-314t-aarch64-linux-gnu.so", ".cpython-313-darwin.so"),
    *(".pypy311-pp73-x86_64-linux-gnu.so", ".graalpy250-312-native-x86_64-linux.so"),
    *(".pyd", ".cp313-win_amd64.pyd", ".cp314t-win_arm64.pyd"),
)
TAKEN = ("k.py", "k.pyi", "k/__init__.py", "k/inner.py", "k/deep/inner.py", *(f"k{suffix}" for suffix in SUFFIXES))
TAKEN += tuple(f"k/inner{suffix}" for suffix in SUFFIXES)
FREE = (
    "_k.py", "kk.abi3.so", "k.cu", "k.so.1", "k.other.so", "k/sources/a.cu", "k/not-a-name.py", "k/no-name/inner.py",
)  # fmt: skip
FREE += ("k.aotcuda/sources/pkg/_k.py", "k/__pycache__/inner.cpython-311.pyc", "sub/k.py", "sub/k.abi3.so")


def why_refused(root: Path, *roots: str, extensions: tuple[str, ...] = ()) -> str | None:
    try:
        output_conflicts.check_module("pkg.k", "KEY", [root / name for name in roots or (".",)], root, extensions)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["json", "sys", "math"])
def test_python_has_modules_of_its_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^KEY: import {name} finds Python's own module; choose another name"):
        output_conflicts.check_module(name, "KEY", [tmp_path], tmp_path)
    output_conflicts.check_module(f"pkg.{name}", "KEY", [tmp_path], tmp_path)


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refusal(name: str) -> str:
    return f"KEY: the project already has {name}, where the generated module would go; choose another module name"


@pytest.mark.parametrize("folder", ["pkg", "src/pkg"])
def test_module_that_python_imports_by_the_name_is_refused(folder: str, tmp_path: Path) -> None:
    for at, name in enumerate(TAKEN):
        put(tmp_path / str(at) / folder / name)
        assert why_refused(tmp_path / str(at), "src", ".") == refusal(f"{folder}/{name}")


def test_files_that_python_imports_by_other_names_are_no_conflict(tmp_path: Path) -> None:
    for name in FREE:
        put(tmp_path / "pkg" / name)
        assert why_refused(tmp_path) is None, name


@pytest.mark.parametrize("name", ["k.py", "k.pyi", "k/inner.py", "k/__init__.py"])
def test_generated_files_of_an_earlier_build_are_no_conflict(name: str, tmp_path: Path) -> None:
    put(tmp_path / "pkg" / name, GENERATED)
    assert why_refused(tmp_path) is None
    put(tmp_path / "pkg" / "k.abi3.so")
    assert why_refused(tmp_path) == refusal("pkg/k.abi3.so")


def test_an_extension_module_that_is_compiled_along_with_it(tmp_path: Path) -> None:
    assert why_refused(tmp_path, extensions=("pkg.other", "k")) is None
    assert why_refused(tmp_path, extensions=("pkg.k",)) == refusal("an extension module pkg.k")


def test_a_folder_of_packages_outside_the_project(tmp_path: Path) -> None:
    put(tmp_path / "lib" / "pkg" / "k.py")
    (tmp_path / "project").mkdir()
    assert why_refused(tmp_path / "project", "../lib") == refusal("../lib/pkg/k.py")


@pytest.mark.parametrize("name", [*importlib.machinery.all_suffixes(), "/__init__.py"])
def test_files_that_this_python_prefers_to_the_module_are_refused(name: str, tmp_path: Path) -> None:
    """Python looks for bytecode without its source last."""
    module = tmp_path / "pkg" / "k.py"
    put(module, GENERATED)
    other = tmp_path / "pkg" / f"k{name}"
    if other != module:
        put(other)
    found = importlib.machinery.PathFinder.find_spec("k", [str(module.parent)])
    assert found is not None
    assert (why_refused(tmp_path) is None) == (found.origin == str(module))
