"""A package that needs its compiled extension module."""

from native._factor import factor

FACTOR = factor()
