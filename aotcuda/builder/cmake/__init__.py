"""The folder of the CMake package, which scikit-build-core finds by an entry point."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""What `aotcuda_DIR` is for CMake."""
