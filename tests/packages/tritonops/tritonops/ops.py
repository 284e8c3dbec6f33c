from aotcuda.triton import tl, triton

from tritonops.cache import cached_autotune

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 2), (256, 4), (1024, 8))]


@triton.jit
def activate(x, ACT: tl.constexpr):
    return tl.maximum(x, 0.0) if ACT == "relu" else x


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, ACT: tl.constexpr = None):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n) + tl.load(y + places, mask=places < n)
    tl.store(out + places, activate(value, ACT), mask=places < n)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None})
@triton.jit(do_not_specialize=["eps"])
def norm(x, bias, out, n, eps, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    places = tl.arange(0, BLOCK)
    value = tl.load(x + row + places, mask=places < n, other=0.0).to(tl.float32)
    value = value / tl.sqrt(tl.sum(value * value) / n + eps)
    if HAS_BIAS:
        value += tl.load(bias + places, mask=places < n, other=0.0)
    tl.store(out + row + places, value, mask=places < n)


@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["n"]),
        "EVEN": lambda args: args["n"] == args["BLOCK"],
        "num_warps": lambda args: 8 if args["BLOCK"] >= 1024 else 2,
    }
)
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0) * n
    places = tl.arange(0, BLOCK)
    if EVEN:
        value = tl.load(x + row + places)
    else:
        value = tl.load(x + row + places, mask=places < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value))
    tl.store(out + row + places, value / tl.sum(value), mask=places < n)


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["out"])
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + places, mask=places < n, other=0.0)))


@triton.heuristics({"HAS_SCALE": lambda args: args["scale"] is not None})
@cached_autotune(configs=CONFIGS, key=["n"])
@triton.jit
def scaled(x, scale, out, n, BLOCK: tl.constexpr, HAS_SCALE: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    if HAS_SCALE:
        value *= tl.load(scale)
    tl.store(out + places, value, mask=places < n)


def copied(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n), mask=places < n)


copy = triton.jit(copied)
copy_of_any = triton.jit(copied, do_not_specialize=["n"])
