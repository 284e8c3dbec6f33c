"""Numba-CUDA-MLIR compiles this module. It calls a function of the module that Numba-CUDA compiles."""

from numba_cuda_mlir import cuda

relaxed = cuda.declare_device("relaxed", "float32(float32, float32)", abi="c")


def blended(rate, x, y):
    return relaxed(rate, x) * y + relaxed(rate, y) * x


@cuda.jit
def blend(rate, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = blended(rate, x[i], y[i])
