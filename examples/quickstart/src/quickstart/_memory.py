"""GPU memory for this example, so that it needs nothing but a driver. In real life: CuPy, PyTorch, Numba, ...

aotcuda takes any object that has `__cuda_array_interface__` or speaks DLPack; the property below is all it needs.
"""

import ctypes
import functools
from array import array


class DeviceArray:
    """A copy of an `array.array` of floats or doubles in the memory of GPU 0."""

    def __init__(self, values):
        self.like = values
        self.bytes = ctypes.c_size_t(len(values) * values.itemsize)
        self.address = ctypes.c_uint64()
        check(driver().cuMemAlloc_v2(ctypes.byref(self.address), self.bytes))
        check(driver().cuMemcpyHtoD_v2(self.address, pointer(values), self.bytes))

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": (len(self.like),),
            "typestr": f"<f{self.like.itemsize}",
            "data": (self.address.value, False),  # its address, and whether it is read-only
        }

    def to_host(self):
        result = array(self.like.typecode, self.like)
        check(driver().cuMemcpyDtoH_v2(pointer(result), self.address, self.bytes))
        return result

    def __del__(self):
        if self.address:
            driver().cuMemFree_v2(self.address)


@functools.cache
def driver():
    """Return the driver, with GPU 0's primary context current: the context that aotcuda and every other library use."""
    library = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(library.cuInit(0))
    check(library.cuDeviceGet(ctypes.byref(device), 0))
    check(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(library.cuCtxSetCurrent(context))
    return library


def pointer(values):
    return ctypes.c_void_p(values.buffer_info()[0])


def check(code):
    if code:
        message = f"the CUDA driver reports error {code}"
        raise RuntimeError(message)
