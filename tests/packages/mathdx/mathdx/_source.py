"""A Fourier transform of each row by cuFFTDx. Only the build needs nvmath-python."""

import numpy as np
from numba import cuda
from nvmath.device import FFT, CodeType, ComputeCapability, cufftdx_numba

# It would compile for the build machine's GPU. LTOIR for the lowest target of `arch` serves all targets.
cufftdx_numba.get_default_code_type = lambda: CodeType("lto", ComputeCapability(8, 0))

SIZE, EACH = 128, 2
fft = FFT(
    size=SIZE,
    precision=np.float32,
    fft_type="c2c",
    direction="forward",
    execution="Block",
    elements_per_thread=EACH,
    ffts_per_block=1,
    sm=80,
)
VALUE, STRIDE, SHARED = fft.value_type, fft.stride, fft.shared_memory_size // 8


@cuda.jit
def transform(x, out):
    values = cuda.local.array(EACH, VALUE)
    shared = cuda.shared.array(SHARED, VALUE)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    for i in range(EACH):
        value = x[row, lane + i * STRIDE]
        values[i] = VALUE(value.real, value.imag)
    fft.execute(values, shared)
    for i in range(EACH):
        out[row, lane + i * STRIDE] = complex(values[i].x, values[i].y)
