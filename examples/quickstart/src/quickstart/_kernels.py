"""The functions that the wheel's GPU code is built from. Nothing imports this module at run time."""

from numba import cuda


def fused(a, x, y):
    return a * x + y  # a helper: it comes along by itself


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = fused(a, x[i], y[i])


def add(x, y):
    return x + y


def clamp(x, low, high):
    return min(max(x, low), high)
