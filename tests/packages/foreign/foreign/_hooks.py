"""Callbacks, which record their calls."""

import array

calls = []
VALUES = [float(i * i) for i in range(8)]


def upload(code):
    from cuda.bindings import driver

    calls.append(("setup", type(code).__module__, type(code).__name__))
    values = array.array("f", VALUES)
    error, pointer, size = driver.cuLibraryGetGlobal(code.handle, b"table")
    assert error == 0, error
    assert size == 32
    assert driver.cuMemcpyHtoD(pointer, values.buffer_info()[0], size)[0] == 0


def release(code):
    calls.append(("teardown", type(code).__module__, type(code).__name__))
