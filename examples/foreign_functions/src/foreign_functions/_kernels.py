"""The kernels, and the declarations of the CUDA C++ functions that they call."""

import cffi
from numba import cuda

# File names are relative to the folder of pyproject.toml, where the build runs.
mul = cuda.declare_device("mul_f32_f32", "float32(float32, float32)", link="csrc/functions.cu")
sum_reduce = cuda.declare_device("sum_reduce", "float32(CPointer(float32), int32)", link=["csrc/functions.cu"])
saxpy = cuda.declare_device("saxpy", "float32(float32, float32, float32)", link="csrc/saxpy.cu", abi="c")
weight = cuda.declare_device("weight", "float32(int32)", abi="c")  # linked by the configuration

ffi = cffi.FFI()


@cuda.jit
def multiply_vectors(r, x, y):
    i = cuda.grid(1)
    if i < len(r):
        r[i] = mul(x[i], y[i])


@cuda.jit
def reduce_sum(result, array):
    result[0] = sum_reduce(ffi.from_buffer(array), len(array))


@cuda.jit
def saxpy_vectors(r, a, x, y):
    i = cuda.grid(1)
    if i < len(r):
        r[i] = saxpy(a, x[i], y[i])


@cuda.jit
def weigh(r, x):
    i = cuda.grid(1)
    if i < len(r):
        r[i] = weight(i) * x[i]
