"""Both ABIs, nested: kernel -> Python -> C++ (C) -> Python (C) -> Python -> C++ (Numba) -> Python (C) -> C++ (C)."""

from numba import cuda

cpp_c = cuda.declare_device("cpp_c", "float32(float32)", abi="c")
cpp_numba = cuda.declare_device("cpp_numba", "float32(float32)")
cpp_last = cuda.declare_device("cpp_last", "float32(float32)", abi="c")
cpp_failing = cuda.declare_device("cpp_failing", "float32(float32)")
flattened_c = cuda.declare_device("flattened", "float32(float32)", abi="c")
swallowed_c = cuda.declare_device("swallowed", "float32(float32)", abi="c")


def helper(x):
    return cpp_numba(x) + 10


def py_outer(x):
    return helper(x) * 3


def py_inner(x):
    return cpp_last(x) - 4


def first(x):
    return cpp_c(x)


@cuda.jit
def nested(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = first(x[i])


def maybe(x):
    if x < 0:
        return None
    return x + 1


def flattened(x):
    return maybe(x)


@cuda.jit
def optional(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = flattened_c(x[i])


def swallowed(x):
    return cpp_failing(x) + 1


@cuda.jit
def status(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = swallowed_c(x[i])
        out[i] = cpp_failing(x[i])  # a status of 1 ends this thread, as an exception does
