"""Kernels that together use every feature of packaged kernels."""

from gpufeatures.kernels import square, twice  # the generated module

__all__ = ["square", "twice"]
