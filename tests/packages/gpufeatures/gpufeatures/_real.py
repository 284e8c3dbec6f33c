"""Kernels with records, random numbers, warps, local memory, text, recursion, libdevice and bfloat16."""

import enum
import math

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice
from numba.cuda.random import xoroshiro128p_type, xoroshiro128p_uniform_float32

particle = np.dtype([("x", "f4"), ("id", "i8")], align=True)  # named in a signature

__all__ = ["xoroshiro128p_type"]  # named in a signature, too


class Colour(enum.IntEnum):
    """Members that are stored as numbers."""

    RED = 7
    BLUE = 9


named = np.dtype([("id", "i4"), ("name", "U12"), ("code", "S12")])


@cuda.jit
def records(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i].x * a[i].id
        a[i].id += 1


@cuda.jit
def one_record(r, out):
    out[0] = r.x + r.id


@cuda.jit
def dates(day, step, days, out):
    i = cuda.grid(1)
    if i < days.size:
        out[i] = days[i] + step
        if i == 0:
            out[i] = day


@cuda.jit
def random_numbers(states, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = xoroshiro128p_uniform_float32(states, i)


@cuda.jit
def warps(x, out):
    i = cuda.threadIdx.x
    shifted = cuda.shfl_down_sync(0xFFFFFFFF, x[i], 1)
    votes = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, x[i] > 10))
    out[i] = shifted * 100 + votes


@cuda.jit
def local_array(x, out):
    window = cuda.local.array(8, float32)
    i = cuda.grid(1)
    for j in range(8):
        window[j] = x[(i + j) % x.size]
    total = float32(0)
    for j in range(8):
        total += window[(i + j * 3) % 8]
    out[i] = total


@cuda.jit
def reshaped(x, out):
    rows = x.reshape(2, 3)
    out[0] = rows[1, 2]
    out[1] = rows.shape[0]


@cuda.jit
def reshaped_in_every_way(x, n, out):
    rows = x.reshape((2, -1))
    cube = x.reshape(n, 3, n)
    out[0] = rows[1, 5]
    out[1] = rows.shape[1]
    out[2] = cube[1, 2, 0]
    out[3] = cube.size
    cube[0, 1, 1] = -1


@cuda.jit
def colours(x):
    x[0] = Colour.RED
    x[1] = Colour.BLUE


@cuda.jit
def half_norms(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = cuda.fp16.hsqrt(x[i] * x[i]) + cuda.fp16.hfma(x[i] + x[i], x[i], x[i] - x[i])


@cuda.jit
def records_turned(a, b):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[j, i] = a[i, j]
        b[j, i].x = a[-1 - i, j].x


@cuda.jit
def records_from_the_end(a, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[1:][-1 - i].x


@cuda.jit(device=True)
def positive(x):
    if x <= 0:
        raise ValueError("not positive")
    return x * 2


@cuda.jit
def ended_by_a_helper(x):
    i = cuda.grid(1)
    if i < x.size:
        y = positive(x[i])
        x[i] = y


@cuda.jit
def says(x):
    print("the answer is", x[0])


@cuda.jit(device=True)
def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)


@cuda.jit
def recursive(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = factorial(x[i])


@cuda.jit
def special_functions(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = libdevice.fast_expf(x[i]) + math.erf(x[i])


@cuda.jit
def brain_floats(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


@cuda.jit
def limited(x, out):
    i = cuda.grid(1)
    total = float32(0)
    for j in range(32):
        total += math.sin(x[(i + j) % x.size]) * math.cos(x[(i * j) % x.size])
    out[i] = total


@cuda.jit
def rounded(t, x, out):
    """Round numbers to type `t`, and copy them through shared memory of that type."""
    tile = cuda.shared.array(64, t)
    i = cuda.grid(1)
    if i < x.size:
        tile[cuda.threadIdx.x] = t(x[i])
        out[i] = tile[cuda.threadIdx.x]


@cuda.jit
def strings(texts, codes, equal):
    i = cuda.grid(1)
    if i < equal.size:
        equal[i] = texts[i] == "three"
        texts[i] = "XYZ"
        codes[i] = b"ABC"


@cuda.jit
def strings_in_records(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i]["id"] = i
        a[i]["name"] = "XYZ"
        a[i]["code"] = b"ABC"
