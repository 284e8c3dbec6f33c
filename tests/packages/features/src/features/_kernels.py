"""Kernels and device functions that use the features of the front end."""

import math

import numpy as np
from numba import complex64, cuda, float32, float64, int8, int32

from features._helpers import Colour, eager, fib, for_cpu_too, on_device, plain, thrice, twice

TABLE = np.array([1.5, 2.5, 3.5, 4.5], dtype=np.float32)


@cuda.jit
def reverse(x):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[63 - i]


@cuda.jit("void(float32[::1])")
def rotate(x):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[(i + 1) % 64]


def reverse_dynamic(x):
    tile = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[x.size - 1 - i]


def helpers(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = eager(x[i]) + for_cpu_too(x[i]) + on_device(x[i]) + plain(x[i])


def times_two(x):
    x[0] = twice(x[0])


def times_three(x):
    x[0] = thrice(x[0])


def both_closures(x):
    x[0] = twice(x[0]) + thrice(x[1])


def table(x):
    constant = cuda.const.array_like(TABLE)
    i = cuda.grid(1)
    if i < 4:
        x[i] = constant[i] + TABLE[3 - i]


def colours(x):
    x[0] = Colour.RED
    x[1] = Colour.GREEN


@cuda.jit(launch_bounds=(128, 2), max_registers=32, fastmath=True, shared_memory_carveout="maxshared")
def decorated(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] / float32(3.7)


def plain_kernel(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def half_square(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i]


def half_root(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.fp16.hsqrt(x[i] * x[i] + x[i])


def grid_sync(x):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] += 1
    grid.sync()
    x[i] += x[0]


def nested(t, z, w, out):
    out[0] = t[0] * z.real + t[1][0] * z.imag + t[1][1] * w.real + t[2] * w.imag


def scalars(flag, i8, u8, i16, u16, i32, u32, i64, u64, f16, f32, f64, pointer, out):
    out[0] = flag + i8 + u8 + i16 + u16 + i32 + u32 + i64 + u64 + float32(f16) + f32 + f64 + pointer[0]


def layouts(c, f, a, readonly, out):
    i, j = cuda.grid(2)
    out[i, j] = c[i, j] + f[i, j] + a[i, j] + readonly[i]


def fibonacci(x):
    x[0] = fib(x[0])


def histogram(x, counts):
    local = cuda.shared.array(256, int32)
    i = cuda.threadIdx.x
    local[i] = 0
    cuda.syncthreads()
    cuda.atomic.add(local, x[cuda.grid(1)], 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, i, local[i])


def speak(n):
    print("thread", cuda.threadIdx.x, n)


def scratch(x, n):
    values = cuda.local.array(32, float64)
    for i in range(32):
        values[i] = x[i]
    for i in range(n):
        values[(i * 7) % 32] += values[(i * i) % 32]
    x[0] = math.sin(values[n % 32])


def doubled(x):
    return x * 2


def is_positive(x):
    return x > 0


def negate_i8(x):
    return -x


def wide(a, b, c, d):
    return a + b + c + d


def square_c64(z):
    return z * z


def square_c128(z):
    return z * z


def store(pointer, value):
    pointer[0] = value


def second(pointer):
    return pointer


def answer():
    return 42


def sum_pair(pair):
    return pair[0] + pair[1]


def uneven(x):
    return int8(1), (x, complex64(x), int8(2)), int8(3)


def first_item(x):
    return x[0]


def root(x):
    return plain(x)
