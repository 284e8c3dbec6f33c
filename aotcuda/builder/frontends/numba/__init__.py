"""The common part of the front ends for Numba's compilers: types, units, messages.

Numba-CUDA-MLIR began as a copy of Numba-CUDA, so the two have classes of the same names and meaning that are not the
same classes. What is here is given those classes, and imports neither compiler.
"""
