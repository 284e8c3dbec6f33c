"""Reads manifests and images into a report, and prints it: what `aotcuda inspect` does."""

from __future__ import annotations
