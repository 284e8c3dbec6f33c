import cuda.tile as ct


@ct.kernel
def add(x, y, out, TILE: ct.Constant[int]):
    at = ct.bid(0)
    total = ct.load(x, index=(at,), shape=(TILE,)) + ct.load(y, index=(at,), shape=(TILE,))
    ct.store(out, index=(at,), tile=total)
