"""Device functions, and a kernel, that other modules of the package use."""

import aotcuda.numba as nb


@nb.cuda.jit(device=True)
def twice(x):
    return x + x


@nb.cuda.jit
def fill(values, value):
    i = nb.cuda.grid(1)
    if i < values.size:
        values[i] = value


@nb.njit
def on_the_processor(x):
    return x * 2
