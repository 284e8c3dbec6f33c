import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, m, n, k, am, ak, bk, bn, cm, cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`c = a @ b`; strides in elements."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, k, BLOCK_K):
        left = a + rows[:, None] * am + (first + inner)[None, :] * ak
        right = b + (first + inner)[:, None] * bk + columns[None, :] * bn
        more = first + inner < k
        total = tl.dot(
            tl.load(left, mask=(rows < m)[:, None] & more[None, :], other=0.0),
            tl.load(right, mask=more[:, None] & (columns < n)[None, :], other=0.0),
            total,
        )
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(tl.float16), mask=inside)


@triton.jit
def attention(q, k, v, out, scale, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):
    """Softmax of `scale * q @ k.T`, times `v`, without the matrix between; `(heads, length, HEAD)`, contiguous."""
    start = tl.program_id(1) * length * HEAD
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    places = tl.arange(0, HEAD)
    query = tl.load(q + start + rows[:, None] * HEAD + places[None, :], mask=(rows < length)[:, None], other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weights = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        block = start + columns[:, None] * HEAD + places[None, :]
        inside = columns < length
        keys = tl.load(k + block, mask=inside[:, None], other=0.0)
        scores = tl.where(inside[None, :], scale * tl.dot(query, tl.trans(keys)), -float("inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))
        shares = tl.exp(scores - highest[:, None])
        shrunk = tl.exp(largest - highest)
        weights = weights * shrunk + tl.sum(shares, axis=1)
        values = tl.load(v + block, mask=inside[:, None], other=0.0)
        total = tl.dot(shares.to(tl.float16), values, total * shrunk[:, None])
        largest = highest
    result = (total / weights[:, None]).to(tl.float16)
    tl.store(out + start + rows[:, None] * HEAD + places[None, :], result, mask=(rows < length)[:, None])
