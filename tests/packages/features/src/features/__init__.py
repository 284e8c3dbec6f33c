"""A package whose `__init__` imports its generated module."""

from features.kernels import helpers, reverse

__all__ = ["helpers", "reverse"]
