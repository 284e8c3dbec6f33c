"""Functions that the C++ program calls for each number of an array: one selects numbers, one changes them."""


def keep(x, state):
    # `state` points to two numbers of the program's command line: the lowest to keep, and the first above the range.
    return state[0] <= x < state[1]


def change(x):
    return x * (x - 1)
