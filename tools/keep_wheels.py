#!/usr/bin/env python3
"""Build the wheels of the current manifest format that later versions of aotcuda have to read.

    python tools/keep_wheels.py     # in an environment with aotcuda[cu13], build and hatchling

The wheels go to `tests/data/wheels`; `tests/unit/test_kept_wheels.py` reads, loads and launches them. Run this script
before a release that raises `FORMAT` in `aotcuda/manifest/__init__.py`. Never replace a wheel that a release has built.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_WHEELS = _ROOT / "tests" / "data" / "wheels"
_PROJECTS = ("examples/quickstart", "tests/packages/features")


def main() -> None:
    """Build the wheels."""
    for project in _PROJECTS:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "project")
            shutil.copytree(_ROOT / project, copy, ignore=shutil.ignore_patterns("*.aotcuda", "__pycache__", "dist"))
            command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
            subprocess.run([*command, "--outdir", str(_WHEELS), str(copy)], check=True)


if __name__ == "__main__":
    main()
