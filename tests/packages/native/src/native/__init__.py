"""A package that cannot be imported before its extension module is compiled."""

from native._factor import factor

FACTOR = factor()
