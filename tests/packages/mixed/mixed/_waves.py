"""Kernels and functions that numba-cuda-mlir compiles. The kernels call functions of the other front end."""

from numba_cuda_mlir import cuda
from numba_cuda_mlir.types import float32

horner = cuda.declare_device("horner_f32", "float32(float32, float32)", abi="c")


def damped(a, x):
    return horner(a, x) / (1 + x * x)


def mirrored(x):
    """Return the argument of the thread at the other end of the block, which has 64."""
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x
    cuda.syncthreads()
    return tile[63 - i]


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def evaluate(a, x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = horner(a, x[i])


@cuda.jit
def reverse(x):
    i = cuda.grid(1)
    x[i] = mirrored(x[i])
