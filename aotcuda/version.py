"""The version of aotcuda: of the run time, of the builder, and of what both write."""

from __future__ import annotations

__version__ = "0.1.0"
