"""Tests of optional modules are skipped by name, and unexplained skips fail a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import skips

TESTS = Path(skips.__file__).parent
TABLE = """
[modules]
absent_module = "extra none"
tomllib = "Python"

[environments.one]
modules = {modules}

[environments.one.skips]
"test_a*.py" = {{ most = {most}, reason = "It shows the count." }}
"""
FILES = {
    "test_a.py": "import pytest\n@pytest.mark.needs('absent_module')\ndef test_one(): ...\n"
    "def test_two():\n    import absent_module\n"
    "def test_three():\n    try:\n        import absent_module.inner\n    except ImportError as e:\n"
    "        raise RuntimeError from e\ndef test_four(): ...\n@pytest.mark.needs('tomllib')\ndef test_five(): ...\n",
    "test_ab.py": "import absent_module\n",
}


def run(folder: Path, *options: str, most: int = 3, modules: str = '["tomllib"]', **files: str) -> tuple[int, str]:
    """Return exit status and output of pytest for files in a folder."""
    for name, text in (FILES | {f"{name}.py": text for name, text in files.items()}).items():
        (folder / name).write_text(text)
    (folder / "skips.py").write_bytes((TESTS / "skips.py").read_bytes())
    (folder / "skips.toml").write_text(TABLE.format(most=most, modules=modules))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs(*modules): modules\n")
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "-p", "skips", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("most", "expected"), [(3, 0), (2, 1)])
def test_tests_without_their_module_are_skipped_up_to_the_explained_number(
    most: int, expected: int, tmp_path: Path
) -> None:
    status, output = run(tmp_path, "--environment=one", most=most)
    assert status == expected, output
    assert "2 passed, 4 skipped" in output
    assert output.count("absent_module is not installed (extra none)") >= 2
    assert ("test_a.py: 3 skipped, and tests/skips.toml explains 2 in one" in output) == (expected == 1)


def test_environment_without_a_module_is_refused(tmp_path: Path) -> None:
    status, output = run(tmp_path, "--environment=one", modules='["tomllib", "absent_module"]')
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "the environment one lacks absent_module; install its extras again" in output


def test_import_that_the_table_does_not_explain_fails(tmp_path: Path) -> None:
    status, output = run(tmp_path, test_b="import other_module\n", test_c="import tomllib.inner\n")
    assert status == 2, output
    assert "2 errors" in output


def test_each_explained_file_exists_and_has_a_reason() -> None:
    for environment in skips.table()["environments"].values():
        for pattern, entry in environment["skips"].items():
            assert list(TESTS.parent.glob(pattern)), pattern
            assert entry["most"] > 0
            assert entry["reason"].endswith(".")
