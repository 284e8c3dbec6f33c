"""The version of aotcuda: the one place that has it. The build of its own wheel reads it from here."""

__version__ = "0.1.0"
