"""Kernels that raise."""

from numba import cuda


class OddError(Exception):
    """An exception of the package."""


@cuda.jit
def raises(x):
    i = cuda.grid(1)
    if x[i] > 3:
        raise ValueError("too big")
    x[i] = 1 / x[i]


@cuda.jit
def odd(x):
    i = cuda.grid(1)
    if x[i] % 2:
        raise OddError("odd")
    x[i] = x[i] // 2


@cuda.jit
def fine(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1
