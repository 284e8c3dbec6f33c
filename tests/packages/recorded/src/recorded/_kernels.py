"""Kernels of every kind that a record distinguishes."""

from collections import namedtuple

import numpy as np
from numba import cuda

point = np.dtype([("x", "f4"), ("y", "i4")])
Pair = namedtuple("Pair", ["a", "b"])


@cuda.jit(device=True)
def twice(x):
    return x + x


@cuda.jit
def scale(factor, values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = twice(values[i]) * factor


@cuda.jit
def take(value, values):
    pass


@cuda.jit(fastmath=True)
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit(["void(float32[:], float32)", "void(float64[:], float64)"])
def fill(values, value):
    values[0] = value


@cuda.jit("void(int32[:])")
def never_launched(values):
    values[0] = 1


@cuda.jit
def move(points, by):
    points[0].x += by[0]


@cuda.jit
def pairs(values, pair):
    values[0] = pair[0]


@cuda.jit
def texts(values, text):
    values[0] = 1


def make(number):
    @cuda.jit
    def closure(values):
        values[0] = number

    return closure


def build():
    @cuda.jit
    def inner(values):
        values[0] = 1

    return inner


reachable = build()


class Solver:
    @staticmethod
    @cuda.jit
    def step(values):
        values[0] = 2
