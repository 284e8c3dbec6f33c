"""Kernels that numba-cuda compiles. They call functions of the other front end."""

from numba import cuda, float32

damped = cuda.declare_device("damped", "float32(float32, float32)", abi="c")
mirrored = cuda.declare_device("mirrored", "float32(float32)", abi="c")


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def damp(a, x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = damped(a, x[i])


@cuda.jit
def differences(x):
    """Subtract the number at the other end of a block of 64; each front end has a shared array."""
    tile = cuda.shared.array(64, float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    other = mirrored(x[i] * 2)
    x[i] = tile[cuda.threadIdx.x] - other
