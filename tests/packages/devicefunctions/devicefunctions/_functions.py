"""Device functions of every kind of the C ABI, and kernels with every kind of argument."""

import numpy as np
from numba import cuda

particle = np.dtype([("x", "f4"), ("n", "i4"), ("v", "f4", (3,)), ("tag", [("a", "i1"), ("b", "i1")])])
aligned = np.dtype([("flag", "?"), ("mass", "f8"), ("z", "c8")], align=True)
entry = cuda.declare_device("entry", "float32(int32)", abi="c")


def add(x, y):
    return x + y


def times(x, y):
    return x * y


def scaled(x, state):
    state[1] = state[1] + x
    return x * state[0]


def split(x):
    whole = int(x)
    return whole, (x - whole, x > 0)


def polar(x):
    return x, x * 1j


def length(p):
    return p.v[0] * p.v[0] + p.v[1] * p.v[1] + p.v[2] * p.v[2]


def mass(p):
    return p.mass


def total(a):
    result = np.float32(0)
    for i in range(a.shape[0]):
        result += a[i]
    return result


def swapped(pair, z):
    return pair[1] - pair[0] + z.real * z.imag


def later(when, step):
    return when + step


def looked_up(i):
    return entry(i)


def register(x, int):  # both names are keywords of C
    return x - int


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def everything(flag, t, matrix, z, half, record, when, address):
    if flag:
        matrix[0, 1] = t[0] + t[1][0] * z.real + half + record.mass
        address[0] = t[1][1]


@cuda.jit
def nothing():
    pass
