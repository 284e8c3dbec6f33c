import cuda.tile as ct


@ct.kernel
def add(x, y, out, TILE: ct.Constant[int]):
    at = ct.bid(0)
    total = ct.load(x, index=(at,), shape=(TILE,)) + ct.load(y, index=(at,), shape=(TILE,))
    ct.store(out, index=(at,), tile=total)


@ct.kernel
def scale(x, factor, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """Scale an array with any strides, in place."""
    at = ct.bid(0), ct.bid(1)
    ct.store(x, index=at, tile=factor * ct.load(x, index=at, shape=(ROWS, COLUMNS)))


@ct.kernel
def softmax(out, x, COLUMNS: ct.Constant[int]):
    """Compute a row in each block; a row fits into a tile."""
    row = ct.bid(0)
    numbers = ct.load(x, index=(row, 0), shape=(1, COLUMNS), padding_mode=ct.PaddingMode.NEG_INF)
    raised = ct.exp(numbers - ct.max(numbers, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=raised / ct.sum(raised, axis=1, keepdims=True))


@ct.kernel
def matmul(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(row, column), tile=total)
