"""Helpers of every kind that a kernel may call."""

import math

from numba import cuda, njit

OFFSET = 3.0


@cuda.jit("float32(float32)", device=True)
def eager(x):
    return x * 2


@njit
def on_host_too(x):
    return nested(x) + 1


@njit
def nested(x):
    return x * x


def plain(x):
    return deeper(x) + OFFSET


def deeper(x):
    return math.sqrt(x)


@cuda.jit(device=True)
def device(x):
    return plain(x) - 1


def scaled_by(factor):
    def scale(x):
        return x * factor

    return scale


double = scaled_by(2)
triple = scaled_by(3)
