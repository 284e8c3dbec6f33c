from numba import cuda

from native import FACTOR

scaled = cuda.declare_device("scaled", "float32(float32)", abi="c")


@cuda.jit
def scale(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = FACTOR * scaled(x[i])
