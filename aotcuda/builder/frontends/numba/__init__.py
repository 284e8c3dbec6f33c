"""The common part of the front ends for Numba's compilers: types, units, messages.

Numba-CUDA-MLIR began as a copy of Numba-CUDA, so both compilers have classes with equal names and meaning. The modules
of this package get the classes of one compiler as arguments, and import neither compiler.
"""
