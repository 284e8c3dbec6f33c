"""Functions that numba-cuda compiles, for kernels of the other front end."""

from numba import cuda

offset = cuda.declare_device("offset", "float32(float32)", abi="c")


def horner(a, x):
    return (a * x + 2) * x + offset(1.0)
