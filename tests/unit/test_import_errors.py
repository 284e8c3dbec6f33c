"""Test that `aotcuda.errors` is an attribute of the package after any import, also during its own import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aotcuda
from aotcuda import errors


def test_errors_are_found_while_another_thread_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import system sets the attribute of the package after the import, when no thread waits any more."""
    monkeypatch.delattr(aotcuda, "errors")
    assert aotcuda.errors is errors
    assert aotcuda.ImageError is errors.ImageError


@pytest.mark.parametrize(
    "first",
    [
        "import aotcuda",
        "from aotcuda.errors import LaunchError",
        "import aotcuda.runtime.driver",
    ],
)
def test_errors_are_found_after_any_first_import(first: str) -> None:
    script = f"{first}\nimport aotcuda\nprint(aotcuda.errors.LaunchError is aotcuda.LaunchError)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
