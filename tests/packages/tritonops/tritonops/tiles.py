"""Kernels that read and write tiles by tensor descriptors, from arguments or made in the kernel."""

from aotcuda.triton import tl, triton


def set_blocks(given):
    m, n, k = (given[name] for name in ("BM", "BN", "BK"))
    given["a"].block_shape, given["b"].block_shape, given["c"].block_shape = [m, k], [k, n], [m, n]


CONFIGS = [
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, pre_hook=set_blocks),
    triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_warps=8, pre_hook=set_blocks),
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        total = tl.dot(a.load([row, at]), b.load([at, column]), total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def scaled(x, y, factor):
    at = [tl.program_id(0) * x.block_shape[0], tl.program_id(1) * x.block_shape[1]]
    y.store(at, (x.load(at) * factor).to(y.dtype))


@triton.jit
def planes(x, y):
    at = tl.program_id(0)
    y.store([at, 0, 0], x.load([at, 0, 0]) + 1)


@triton.jit
def totals(x, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [m], [1], [BM])
    row = tl.program_id(0) * BM
    total = tl.zeros((BM,), tl.float32)
    for at in range(0, n, BN):
        total += tl.sum(source.load([row, at]), 1)
    target.store([row], total)
