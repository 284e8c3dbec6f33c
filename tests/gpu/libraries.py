"""CuPy, PyTorch and Numba behind one interface, for tests that run with each of them."""

from __future__ import annotations

import cupy
import numpy as np
import torch

CYCLES = 200_000_000
"""Duration of `wait`: a tenth of a second, in which a launch that does not wait reads the old numbers."""


class CuPy:
    """CuPy: select a GPU, make an array there, fill it, read it; make a stream current; keep the GPU busy."""

    name = "cupy"
    on = staticmethod(cupy.cuda.Device)
    put = staticmethod(cupy.asarray)
    get = staticmethod(cupy.asnumpy)
    fill = staticmethod(lambda array, value: array.fill(value))
    stream = staticmethod(lambda: cupy.cuda.Stream(non_blocking=True))
    current = staticmethod(lambda stream: stream)
    handle = staticmethod(lambda stream: stream.ptr)
    done = staticmethod(lambda stream: stream.done)
    _busy = cupy.RawKernel(
        'extern "C" __global__ void busy(long long n) { long long begin = clock64(); while (clock64() - begin < n) ; }',
        "busy",
    )

    @classmethod
    def wait(cls) -> None:
        cls._busy((1,), (1,), (np.int64(CYCLES),))


class Torch:
    """PyTorch."""

    name = "torch"
    on = staticmethod(torch.cuda.device)
    put = staticmethod(lambda values: torch.from_numpy(values).cuda())
    get = staticmethod(lambda array: array.cpu().numpy())
    fill = staticmethod(lambda array, value: array.fill_(value))
    stream = staticmethod(torch.cuda.Stream)
    current = staticmethod(torch.cuda.stream)
    handle = staticmethod(lambda stream: stream.cuda_stream)
    done = staticmethod(lambda stream: stream.query())
    wait = staticmethod(lambda: torch.cuda._sleep(CYCLES))


class Numba:
    """Numba, without streams; `cuda` is its module."""

    name = "numba"

    def __init__(self, cuda) -> None:
        self.on = lambda gpu: cuda.gpus[gpu]
        self.put = cuda.to_device
        self.get = lambda array: array.copy_to_host()
