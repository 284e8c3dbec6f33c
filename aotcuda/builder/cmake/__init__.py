"""The folder of the CMake package, which scikit-build-core finds by an entry point."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""The value of CMake's `aotcuda_DIR`."""
