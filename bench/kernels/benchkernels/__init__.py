"""Packaged kernels for measuring."""
