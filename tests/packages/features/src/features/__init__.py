"""A package whose `__init__` imports the module that its own wheel gains."""

from features.kernels import helpers, reverse

__all__ = ["helpers", "reverse"]
