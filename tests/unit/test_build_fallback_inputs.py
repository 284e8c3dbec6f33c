"""Test what a wheel carries to be built once more is said as it will be where the wheel is installed."""

from __future__ import annotations

import pytest

from aotcuda.builder import assembly


@pytest.mark.parametrize(
    ("folder", "kept"),
    [("src", ["mypkg/data/*.csv", "/etc/tables"]), (".", ["src/mypkg/data/*.csv", "data/**/*.h5", "/etc/tables"])],
)
def test_watched_files_are_relative_to_the_folder_of_the_package(tmp_path, folder, kept):
    """Files outside that folder are not in the wheel."""
    table = {"watch": ["src/mypkg/data/*.csv", "data/**/*.h5", "/etc/tables"]}
    found = assembly._with_relative_globs(table, tmp_path, tmp_path / folder)
    assert found == {"watch": kept}
    assert assembly._with_relative_globs({}, tmp_path, tmp_path / folder) == {}
