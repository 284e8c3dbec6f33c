from aotcuda.triton import tl, triton  # was: import triton; import triton.language as tl


@triton.jit
def rms_rows(x, weight, out, columns, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    row = tl.load(x + start + places, mask=places < columns, other=0.0)
    root = tl.sqrt(tl.sum(row * row) / columns + 1e-6)
    tl.store(out + start + places, row / root * tl.load(weight + places, mask=places < columns), mask=places < columns)


def rms_norm(x, weight, out):
    rows, columns = x.shape
    rms_rows[(rows,)](x, weight, out, columns, BLOCK=triton.next_power_of_2(columns))
