"""Compare modules that a build imports with the files of the wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.project import wheel_content
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KEY = 'tool.aotcuda.modules."pkg.k"'
REMEDY = "add {} to it"


def checked(root: Path, content: dict[str, str], source: object = "pkg._k", name: str = "pkg.k") -> str:
    """Return the error for a wheel with files of the project by their names in the wheel; "" without an error."""
    table = {"modules": {name: {"source": source}}}
    try:
        wheel_content.check(table, root, {file: root / place for file, place in content.items()}, REMEDY)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("folder", ["pkg", "src/pkg"])
def test_package_that_the_wheel_lacks_is_refused(folder: str, tmp_path: Path) -> None:
    assert checked(tmp_path, {"other/a.py": "other/a.py"}) == "", "a package that is nowhere is misspelt"
    (tmp_path / folder).mkdir(parents=True)
    expected = f"{KEY}: the package pkg is missing from the wheel; add {folder} to it"
    assert checked(tmp_path, {"other/a.py": "other/a.py"}) == expected
    assert checked(tmp_path, {"pkg/a.txt": "pkg/a.txt"}) == ""
    assert checked(tmp_path, {}, name="k") == "", "a module outside packages needs none"


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"pkg/a.py": "lib/a.py"}, True),
        ({"pkg/a.py": "lib/a.py", "pkg/b.py": "lib/b.py"}, True),
        ({"pkg/a.py": "lib/a.py", "pkg/b.py": "src/pkg/b.py"}, False),  # one module can be imported
        ({"pkg/a.py": "lib/a.py", "pkg/data.txt": "src/pkg/data.txt"}, True),  # data files do not count
        ({"pkg/a.py": "src/pkg/a.py", "pkg/data.txt": "lib/data.txt"}, False),
        ({"pkg/data.txt": "lib/data.txt"}, False),
    ],
)
def test_package_under_another_folder_is_refused_if_no_module_fits(files, refused, tmp_path) -> None:
    message = checked(tmp_path, files, source=None)
    assert ("the wheel has lib/a.py as pkg/a.py" in message) == refused
    assert bool(message) == refused


@pytest.mark.parametrize(
    ("files", "in_wheel"),
    [
        ({"pkg/_k.py": "pkg/_k.py"}, ""),
        ({"pkg/_k/__init__.py": "pkg/_k/__init__.py"}, ""),
        ({"pkg/a.py": "pkg/a.py", "pkg/inner/_k.py": "pkg/_k.py"}, "pkg.inner._k"),
        ({"pkg/a.py": "pkg/a.py", "pkg/x/__init__.py": "pkg/_k/__init__.py"}, "pkg.x"),
        ({"pkg/_k.py": "pkg/_k.py", "pkg/copy.py": "pkg/_k.py"}, ""),  # the wheel has it twice
        ({"pkg/a.py": "pkg/a.py"}, ""),  # the source is no file of the project; the build reports it
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_source_that_the_wheel_renames_is_refused(files, in_wheel, as_list, tmp_path) -> None:
    message = checked(tmp_path, files, source=["pkg.a", "pkg._k"] if as_list else "pkg._k")
    expected = f'{KEY}.source: the wheel has pkg._k as {in_wheel}; write source = "{in_wheel}"'
    assert message == (expected if in_wheel else "")


def test_roots_are_the_folders_from_which_modules_are_imported(tmp_path: Path) -> None:
    content = {
        "pkg/a.py": tmp_path / "src/pkg/a.py",
        "pkg/b.py": tmp_path / "src/pkg/b.py",
        "top.py": tmp_path / "top.py",
        "moved/c.py": tmp_path / "lib/c.py",
        "pkg/data.txt": tmp_path / "elsewhere/pkg/data.txt",
    }
    assert wheel_content.import_roots(content) == [tmp_path / "src", tmp_path]
