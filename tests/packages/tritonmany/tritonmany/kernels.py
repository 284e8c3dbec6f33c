import itertools

from aotcuda.triton import tl, triton

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 2), (128, 4), (256, 8))]
CONFIGS += [triton.Config({"BLOCK": 128}, num_stages=2, maxnreg=64)]
TIMES = itertools.cycle((3.0, 2.0, 1.0, 4.0, 2.0, 1.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0))


def timed(call, quantiles):
    call()
    return [next(TIMES)] * 3


def body(x, y, n, factor, BLOCK: tl.constexpr, K: tl.constexpr = None):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if x is not None:
        value = tl.load(x + places, mask=places < n).to(tl.float32) * factor
    else:
        value = places.to(tl.float32) * factor + n
    if K == "relu":
        value = tl.maximum(value, 0.0)
    elif K == "1":
        value = value * value
    elif K is not None:
        value = value * value + K
    tl.store(y + places, value.to(y.dtype.element_ty), mask=places < n)


every = triton.jit(body)
rigid = triton.jit(body, do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])


@triton.jit
def typed(x, n: tl.int64, m: tl.uint32, f: tl.float64, flag: tl.int1, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(x + places, (places + n + m) * f, mask=(places < n) & flag)


@triton.jit
def cast(x, y, DT: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places).to(DT).to(tl.float32))


@triton.jit
def stages(x, y, n, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for at in tl.range(0, n, BLOCK, num_stages=num_stages):
        total += tl.load(x + at + tl.arange(0, BLOCK))
    tl.store(y + tl.arange(0, BLOCK), total)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None, "PLAIN": lambda args: args["bias"] is None})
@triton.jit
def optional(x, bias, y, n, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, PLAIN: tl.constexpr):
    places = tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    if HAS_BIAS:
        value += tl.load(bias + places, mask=places < n)
    if PLAIN:
        value = value * 2
    tl.store(y + places, value, mask=places < n)


@triton.heuristics(
    {
        "BLOCK": lambda args: max(32, triton.next_power_of_2(args["n"])),
        "EVEN": lambda args: args["n"] == args["BLOCK"],
        "num_warps": lambda args: 8 if args["BLOCK"] >= 512 else 2,
    }
)
@triton.jit
def sized(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    places = tl.arange(0, BLOCK)
    value = tl.load(x + places) if EVEN else tl.load(x + places, mask=places < n)
    tl.store(y + places, value + 1, mask=places < n)


@triton.autotune(configs=CONFIGS, key=["n"], do_bench=timed)
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places, mask=places < n), mask=places < n)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None, "EVEN": lambda args: args["n"] % 128 == 0})
@triton.autotune(configs=CONFIGS, key=["n"], do_bench=timed)
@triton.jit
def both(x, bias, y, n, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    if HAS_BIAS:
        value += tl.load(bias + places, mask=places < n)
    tl.store(y + places, value * (2 if EVEN else 3), mask=places < n)


@triton.jit
def summed(x, y, at):
    tl.store(y, tl.sum(x.load([at, at]).to(tl.float32)))


@triton.jit
def summed_1(x, y, at):
    tl.store(y, tl.sum(x.load([at]).to(tl.float32)))


@triton.jit
def summed_3(x, y, at):
    tl.store(y, tl.sum(x.load([0, at, at]).to(tl.float32)))


@triton.jit
def summed_4(x, y, at):
    tl.store(y, tl.sum(x.load([0, 0, at, at]).to(tl.float32)))


@triton.jit
def summed_5(x, y, at):
    tl.store(y, tl.sum(x.load([0, 0, 0, at, at]).to(tl.float32)))


@triton.jit
def product(a, b, c, k):
    row, column = tl.program_id(0) * 64, tl.program_id(1) * 64
    total = tl.zeros((64, 64), tl.float32)
    for at in range(0, k, b.block_shape[0]):
        total = tl.dot(a.load([row, at]), b.load([at, column]), total)
    c.store([row, column], total.to(c.dtype))


def set_blocks(given):
    given["x"].block_shape = given["y"].block_shape = [given["BM"], given["BN"]]


BLOCKS = [triton.Config({"BM": m, "BN": n}, num_warps=w, pre_hook=set_blocks) for m, n, w in ((32, 64, 2), (64, 32, 4))]


@triton.autotune(configs=BLOCKS, key=["n"], do_bench=timed)
@triton.jit
def chosen(x, y, n, BM: tl.constexpr, BN: tl.constexpr):
    y.store([tl.program_id(0) * BM, n], x.load([tl.program_id(0) * BM, n]))


@triton.jit
def made(x, y, m, n, BM: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, 64], padding_option="nan")
    target = tl.make_tensor_descriptor(y, [m, n], [n, 1], [BM, 64])
    at = tl.program_id(0) * BM
    target.store([at, 0], source.load([at, 0]).to(target.dtype))
