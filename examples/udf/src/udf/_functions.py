"""Test what the C++ program does to an array: which numbers to keep, and what becomes of them. Plain Python."""


def keep(x, state):
    # `state` points to what the program was given on its command line: the lowest and the highest number to keep.
    return state[0] <= x < state[1]


def change(x):
    return x * (x - 1)
