"""GPU memory through the driver alone, for processes that must import nothing else."""

from __future__ import annotations

import array
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    """Raise if the driver reports an error."""
    if code:
        message = f"CUresult {code}"
        raise RuntimeError(message)


class Buffer:
    """A one-dimensional device array with `__cuda_array_interface__`, filled from an iterable of numbers."""

    def __init__(self, typecode: str, values: object) -> None:
        self.host = array.array(typecode, values)  # type: ignore[arg-type]
        size = len(self.host) * self.host.itemsize
        self.pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(max(size, 1))))
        check(cuda.cuMemcpyHtoD_v2(self.pointer, ctypes.c_void_p(self.host.buffer_info()[0]), ctypes.c_size_t(size)))

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        kind = {"f": "f", "d": "f", "i": "i", "q": "i"}[self.host.typecode]
        return {
            "shape": (len(self.host),),
            "typestr": f"<{kind}{self.host.itemsize}",
            "data": (self.pointer.value, False),
            "version": 3,
        }

    def read(self) -> list[float]:
        """Return the array's values now; waits for the GPU."""
        check(cuda.cuCtxSynchronize())
        size = len(self.host) * self.host.itemsize
        check(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(self.host.buffer_info()[0]), self.pointer, ctypes.c_size_t(size)))
        return list(self.host)


def primary_context() -> None:
    """Make the primary context of GPU 0 current."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
