from aotcuda.triton import tl, triton


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add two arrays."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(out + places, tl.load(x + places, mask=mask) + tl.load(y + places, mask=mask), mask=mask)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None, "EVEN": lambda args: args["n"] % 64 == 0})
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit(do_not_specialize=["n"])
def norm(x, bias, out, n, eps, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr, DT: tl.constexpr):
    places = tl.arange(0, BLOCK)
    if EVEN:
        value = tl.load(x + places).to(tl.float32)
    else:
        value = tl.load(x + places, mask=places < n, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + places, mask=places < n, other=0.0)
    value = value / tl.sqrt(tl.sum(value * value) + eps)
    tl.store(out + places, value.to(DT), mask=places < n)
