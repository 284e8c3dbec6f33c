"""The hatchling build hook `aotcuda`."""
