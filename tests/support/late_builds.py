"""The stand-in for the JIT fallback's builds, as a fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.builder import jit
from support import late
from support.late import Builder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    """Replace the builder of the JIT fallback, and its cache by an empty one in `tmp_path / "cache"`."""
    found = Builder()
    monkeypatch.setattr(jit, "build", found)
    late.forget_cache(monkeypatch)
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    return found
