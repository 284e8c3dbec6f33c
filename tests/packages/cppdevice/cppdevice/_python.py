"""Kernels of Numba: one synchronizes the grid in a linked function, one has no fused multiply-add."""

from numba import cuda

meet = cuda.declare_device("meet", "int32(int32)")


@cuda.jit
def synced(numbers, following):
    block = cuda.blockIdx.x
    numbers[block] = block
    meet(block)
    following[block] = numbers[(block + 1) % cuda.gridDim.x]


@cuda.jit
def multiply_add(x, out):
    out[0] = x[0] * x[1] + x[2]
