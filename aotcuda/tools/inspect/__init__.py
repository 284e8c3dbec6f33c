"""`aotcuda inspect`: read manifests and images into a report, and print it."""

from __future__ import annotations
