"""Numba-CUDA compiles this module. It calls a function of the module that Numba-CUDA-MLIR compiles."""

from numba import cuda, float32

blended = cuda.declare_device("blended", "float32(float32, float32, float32)", abi="c")


@cuda.jit
def trail(rate, x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = blended(rate, x[i], float32(1))
