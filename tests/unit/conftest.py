"""Fixtures of unit tests: the stand-in driver, the launch paths, a builder for the fallback."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.entry import jit
from aotcuda.runtime.jit import compile as compile_
from support import jit_builds, libraries
from support.launch_paths import both_paths, extension_module, general, path
from support.stand_in import cuda, stand_in_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def _freeze_older_objects(request: pytest.FixtureRequest) -> None:
    """Freeze the objects of other modules if tests collect garbage: a collection of all objects takes a second."""
    if "gc" in vars(request.module):
        gc.collect()
        gc.freeze()


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> jit_builds.Builder:
    """Replace the builder of the JIT fallback, and its cache by an empty cache in `tmp_path / "cache"`."""
    builder = jit_builds.Builder()
    monkeypatch.setattr(jit, "build", builder)
    monkeypatch.setattr(compile_, "_is_importable", lambda _package: True)
    jit_builds.forget_cache(monkeypatch)
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    return builder


@pytest.fixture
def current() -> Iterator[dict[str, int]]:
    """Install stand-ins for CuPy and PyTorch, and yield their current streams."""
    with libraries.installed() as streams:
        yield streams


__all__ = ["both_paths", "cuda", "extension_module", "general", "path", "stand_in_library"]
