"""Kernels that raise."""

from numba import cuda


class OddError(Exception):
    """An exception of the package's own."""


@cuda.jit
def raises(x):
    i = cuda.grid(1)
    if x[i] > 3:
        raise ValueError("too big")
    x[i] = 1 / x[i]


@cuda.jit(device=True)
def check(x):
    if x % 2:
        raise OddError("odd")
    return x // 2


@cuda.jit
def through_helper(x):
    i = cuda.grid(1)
    x[i] = check(x[i])


@cuda.jit
def fine(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1
