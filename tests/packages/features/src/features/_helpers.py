"""Helpers of every kind that a kernel may call; pyproject.toml names none of them."""

import enum
import math

from numba import cuda, njit

SCALE = 3.0


class Colour(enum.IntEnum):
    RED = 7
    GREEN = 11


@cuda.jit("float32(float32)", device=True)
def eager(x):
    return x * 2


@njit
def for_cpu_too(x):
    return inner(x) + 1


@njit
def inner(x):
    return x * x


def plain(x):
    return deeper(x) + SCALE


def deeper(x):
    return math.sqrt(x)


@cuda.jit(device=True)
def on_device(x):
    return plain(x) - 1


def make(factor):
    def times(x):
        return x * factor

    return times


twice = make(1002)
thrice = make(1003)


def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)
