"""Divide a build among machines."""

MOST_SHARDS = 10_000
"""The most shards of a build."""
