"""The C header of a module."""
