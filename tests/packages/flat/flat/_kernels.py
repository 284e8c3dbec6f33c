from numba import cuda


def fused(a, x, y):
    return a * x + y


def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = fused(a, x[i], y[i])
