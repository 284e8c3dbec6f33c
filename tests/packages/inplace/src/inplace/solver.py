"""Kernels beside the code that launches them."""

from aotcuda.numba import cuda, float32

from inplace.helpers import fill, on_the_processor, twice

BLOCK = 64


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = twice(x[i]) + y[i]


@cuda.jit(fastmath=True)
def scale(factor, values):
    """Multiply."""
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


@cuda.jit("void(float32, float32[:])")
def shift(by, values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += by


@cuda.jit
def tile(values):
    shared = cuda.shared.array(BLOCK, float32)
    i = cuda.threadIdx.x
    shared[i] = values[i]
    cuda.syncthreads()
    values[i] = shared[BLOCK - 1 - i]


@cuda.jit
def never_packaged(values):
    values[0] = 1


def has_gpu():
    return cuda.is_available()


def launch_all(x, y, out):
    """Launch each kernel once."""
    blocks = 1
    add[blocks, BLOCK](x, y, out)
    scale[blocks, BLOCK](2.0, out)
    shift[blocks, BLOCK](1, out)
    tile[blocks, BLOCK](out)
    scale.forall(BLOCK)(2.0, out)
