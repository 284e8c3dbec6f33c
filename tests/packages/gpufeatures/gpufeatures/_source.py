"""The kernels and device functions."""

import numpy as np
from numba import cuda, float32

from gpufeatures.helpers import device, double, eager, on_host_too, triple

TABLE = np.array([1.5, 2.5, -3.0, 4.0, 5.25], dtype=np.float32)
TILE = 16


def every_scalar(b, i8, u8, i16, u16, i32, u32, i64, u64, f16, f32, f64, out):
    out[0] = b
    out[1] = i8
    out[2] = u8
    out[3] = i16
    out[4] = u16
    out[5] = i32
    out[6] = u32
    out[7] = i64
    out[8] = u64
    out[9] = float32(f16)
    out[10] = f32
    out[11] = f64


@cuda.jit
def square(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i]


@cuda.jit
def negate(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = not x[i]


@cuda.jit
def rotate(z, x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * z


@cuda.jit
def nested(t, out):
    scale, pair, x = t
    i = cuda.grid(1)
    if i < x.size:
        out[i] = scale * x[i] + pair[0] - pair[1]


@cuda.jit
def copy_any(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = x[i, j]


@cuda.jit
def transpose(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = x[i, j]


@cuda.jit
def total(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


@cuda.jit(fastmath=True)
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    ty, tx = cuda.threadIdx.x, cuda.threadIdx.y
    value = float32(0.0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        k = tile * TILE
        left[ty, tx] = a[row, k + tx] if row < a.shape[0] and k + tx < a.shape[1] else float32(0.0)
        right[ty, tx] = b[k + ty, column] if k + ty < b.shape[0] and column < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for j in range(TILE):
            value += left[ty, j] * right[j, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = value


@cuda.jit
def reverse(x):
    shared = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    x[i] = shared[63 - i]


@cuda.jit("void(float32[:])")
def shift(x):
    shared = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    x[i] = shared[(i + 1) % 64]


@cuda.jit
def reverse_dynamic(x):
    shared = cuda.shared.array(0, float32)
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        shared[i] = x[i]
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        x[i] = shared[x.size - 1 - i]


def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = double(x[i])


def thrice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = triple(x[i])


def helped(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = eager(x[i]) + on_host_too(x[i]) + device(x[i]) + double(x[i])


@cuda.jit
def constants(out):
    table = cuda.const.array_like(TABLE)
    i = cuda.grid(1)
    if i < out.size:
        out[i] = table[i]


@cuda.jit
def grid_barrier(x, out):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] += 1
    grid.sync()
    out[i] = x[x.size - 1 - i]


def through_pointer(p, n):
    i = cuda.grid(1)
    if i < n:
        p[i] = p[i] * 3


def zero_dimensional(x):
    x[()] = x[()] + 1


@cuda.jit
def count_up(x):
    cuda.atomic.add(x, 0, 1)


def out_of_bounds(p):
    p[1 << 40] = 1
