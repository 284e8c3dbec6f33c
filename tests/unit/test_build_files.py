"""Files of a build on disk: written whole, replaced, removed again, and never over a person's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.build import api, artifacts, tree
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "pkg/k.py": f"{artifacts.MARK} 1.0\n".encode(),
    "pkg/k.pyi": f"{artifacts.MARK} 1.0\n".encode(),
    "pkg/k.aotcuda/manifest.json": b"{}",
    "pkg/k.aotcuda/kernels.fatbin": b"images",
}
TABLE = {"arch": ["sm_80"], "modules": {"pkg.k": {"source": "pkg._k", "kernels": {"f": "void(int32)"}}}}


def listed(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_written_where_they_belong_and_told(tmp_path: Path) -> None:
    written = api.write(FILES, tmp_path)
    assert listed(tmp_path) == FILES
    assert written == [tmp_path / name for name in FILES]


def test_a_data_folder_holds_nothing_of_the_build_before(tmp_path: Path) -> None:
    api.write(FILES | {"pkg/k.aotcuda/functions.fatbin": b"old"}, tmp_path)
    (tmp_path / "pkg" / "mine.py").write_bytes(b"mine")
    api.write(FILES, tmp_path)
    assert listed(tmp_path) == FILES | {"pkg/mine.py": b"mine"}


def test_cleaning_removes_what_was_generated_and_nothing_that_a_person_wrote(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "src"):
        api.write(FILES, root)
    (tmp_path / "src/pkg/k.py").write_bytes(b"mine")
    (tmp_path / "src/pkg/k.aotcuda/manifest.json").unlink()
    (tmp_path / "pkg/other.py").write_bytes(b"mine")
    tree.clean(TABLE, tmp_path)
    assert listed(tmp_path) == {
        "src/pkg/k.py": b"mine",
        "src/pkg/k.aotcuda/kernels.fatbin": b"images",
        "pkg/other.py": b"mine",
    }


@pytest.mark.parametrize("table", [{}, {"modules": 3}, {"modules": {"not.there": 1}}])
def test_cleaning_takes_any_table(table: dict[str, object], tmp_path: Path) -> None:
    tree.clean(table, tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "does not exist; name a folder with a pyproject.toml"),
        ("[tool", "is not valid TOML: "),
        ("[tool.other]", r"has no \[tool.aotcuda\] table; "),
        ("tool.aotcuda = 3", r"has no \[tool.aotcuda\] table; "),
    ],
)
def test_a_project_file_that_cannot_be_used_is_named(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/pyproject.toml {problem}"):
        api.build_project(tmp_path)


def test_a_generated_module_may_be_built_again_and_another_may_not(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    target = tmp_path / "pkg" / "k.py"
    target.write_text("mine = True\n")
    with pytest.raises(ConfigError, match=r"the project already has pkg/k\.py, where the generated module would go"):
        api.build(TABLE, tmp_path)
    target.write_bytes(FILES["pkg/k.py"])
    assert api.is_generated(target)
