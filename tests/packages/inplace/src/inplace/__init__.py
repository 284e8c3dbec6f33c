"""A package with kernels in place."""
