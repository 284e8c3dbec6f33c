"""The kernels that the benchmarks launch: four that compute something, and some that only take arguments."""

from __future__ import annotations

from numba import cuda, float32

TILE = 16
THREADS = 256


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def matmul(a, b, c):
    """Return a product of two matrices, in tiles of shared memory; extents are multiples of the tile's."""
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(a.shape[1] // TILE):
        tile_a[down, across] = a[row, tile * TILE + across]
        tile_b[down, across] = b[tile * TILE + down, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[down, k] * tile_b[k, across]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def total(x, out):
    """Return the sum of an array, added up in each block and then over the blocks."""
    parts = cuda.shared.array(THREADS, float32)
    thread = cuda.threadIdx.x
    own = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own += x[i]
    parts[thread] = own
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            parts[thread] += parts[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(out, 0, parts[0])


@cuda.jit
def stencil(x, out):
    """One step of Jacobi's iteration: the mean of the four neighbours."""
    column, row = cuda.grid(2)
    if 0 < row < x.shape[0] - 1 and 0 < column < x.shape[1] - 1:
        neighbours = x[row - 1, column] + x[row + 1, column] + x[row, column - 1] + x[row, column + 1]
        out[row, column] = float32(0.25) * neighbours


@cuda.jit
def arrays0(a):
    if a < 0:  # the compiler would not keep what is unused
        return


@cuda.jit
def arrays1(a, x0):
    i = cuda.grid(1)
    if i < x0.size:
        x0[i] = a * x0[i]


@cuda.jit
def arrays4(a, x0, x1, x2, x3):
    i = cuda.grid(1)
    if i < x0.size:
        x0[i] = a * x0[i] + x1[i] + x2[i] + x3[i]


@cuda.jit
def arrays8(a, x0, x1, x2, x3, x4, x5, x6, x7):
    i = cuda.grid(1)
    if i < x0.size:
        x0[i] = a * x0[i] + x1[i] + x2[i] + x3[i] + x4[i] + x5[i] + x6[i] + x7[i]


@cuda.jit
def arrays16(a, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    i = cuda.grid(1)
    if i < x0.size:
        rest = x8[i] + x9[i] + x10[i] + x11[i] + x12[i] + x13[i] + x14[i] + x15[i]
        x0[i] = a * x0[i] + x1[i] + x2[i] + x3[i] + x4[i] + x5[i] + x6[i] + x7[i] + rest
