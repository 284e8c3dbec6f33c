"""What unit tests share, as fixtures: the stand-in driver, the fast paths of a launch, a builder for the fallback."""

from __future__ import annotations

from support.late_builds import builder
from support.quick import extension_module, general, path, quick
from support.stand_in import cuda, stand_in_library

__all__ = ["builder", "cuda", "extension_module", "general", "path", "quick", "stand_in_library"]
