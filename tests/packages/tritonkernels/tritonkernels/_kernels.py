import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, total, mask=inside)


@triton.jit
def softmax(out, x, out_stride, stride, columns, BLOCK: tl.constexpr):
    """Compute a row in each program; a row fits into a block."""
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    numbers = tl.load(x + row * stride + places, mask=inside, other=-float("inf"))
    raised = tl.exp(numbers - tl.max(numbers, axis=0))
    tl.store(out + row * out_stride + places, raised / tl.sum(raised, axis=0), mask=inside)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def scale_kernel(x, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(x + offsets, factor * tl.load(x + offsets, mask=inside), mask=inside)
