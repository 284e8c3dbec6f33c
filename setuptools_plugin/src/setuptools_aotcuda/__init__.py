"""The setuptools plugin `aotcuda`."""
