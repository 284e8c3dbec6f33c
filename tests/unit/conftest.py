"""Fixtures of unit tests: the stand-in driver, the launch paths, a builder for the fallback."""

from __future__ import annotations

import gc

import pytest

from support.late_builds import builder
from support.quick import extension_module, general, path, quick
from support.stand_in import cuda, stand_in_library


@pytest.fixture(scope="module", autouse=True)
def _older_objects_are_not_collected_again(request: pytest.FixtureRequest) -> None:
    """Modules whose tests collect garbage look at their own objects alone; a large process takes a second for all."""
    if "gc" in vars(request.module):
        gc.collect()
        gc.freeze()


__all__ = ["builder", "cuda", "extension_module", "general", "path", "quick", "stand_in_library"]
