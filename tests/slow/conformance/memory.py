"""Cases about memory: indices, loops, slices, strides, records, views, atomics, and the numbers of threads."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from slow.conformance.case import RECORDS, Case
from slow.conformance.numbers import FLOATS, INTEGERS, KEEPS_TYPE, SIGNED, UNSIGNED

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDE = ("int32", "uint32", "int64", "uint64")


def make_case(name: str, body: str, *, threads: int = 1, **more: Any) -> Case:
    fields = {
        key: more.pop(key) for key in ("oracle", "why", "reference", "ulps", "first", "gpu", "block") if key in more
    }
    return Case(name=name, body=body, arguments=more, threads=threads, **fields)


def threaded(name: str, statement: str, count: int, **more: Any) -> Case:
    """Return a case in which each thread runs a statement."""
    return make_case(name, f"i = cuda.grid(1)\nif i < {count}:\n    {statement}", threads=count, **more)


def _places(kind: str) -> np.ndarray:
    """Return different indices of a type into 256 elements: both ends, and the middle of an 8-bit type."""
    if kind in UNSIGNED:
        return np.array([0, 1, 5, 255, 254, 200, 128], kind)
    if kind == "int8":
        return np.array([0, 1, 5, 127, 126, 100, 90, -1, -2, -128], kind)
    return np.array([3, 1, 5, 253, 252, 100, 127, -1, -2, -256], kind)


def _indices() -> Iterator[Case]:
    size = 256
    x = np.arange(1000, 1000 + size, dtype="int64")
    for kind in INTEGERS:
        places = _places(kind)
        count = places.size
        out = np.zeros(count, "int64")
        yield threaded(f"index/read-{kind}", "out[i] = x[p[i]]", count, x=x, p=places, out=out)
        values = np.arange(1, count + 1, dtype="int64")
        yield threaded(f"index/write-{kind}", "x[p[i]] = v[i]", count, x=x, p=places, v=values)
        yield threaded(f"index/add-{kind}", "x[p[i]] += v[i]", count, x=x, p=places, v=values)
        grid = np.arange(256 * 4, dtype="int32").reshape(256, 4)
        column = np.arange(count, dtype=kind) % 4
        yield threaded(
            f"index/two-dimensions-{kind}", "out[i] = x[p[i], q[i]]", count, x=grid, p=places, q=column, out=out
        )
        yield threaded(f"index/row-{kind}", "out[i] = x[p[i]][2]", count, x=grid, p=places, out=out)
        turned = np.arange(4 * 256, dtype="int32").reshape(4, 256).T
        yield threaded(f"index/strided-{kind}", "out[i] = x[p[i], q[i]]", count, x=turned, p=places, q=column, out=out)
        place = np.dtype(kind).type(-56 if kind == "int8" else 200)
        yield make_case(f"index/scalar-{kind}", "out[0] = x[p]", x=x, p=place, out=np.zeros(1, "int64"))
        small = np.array([100, 28, 3], kind)
        yield threaded(f"index/sum-{kind}", "out[i] = x[p[i] + p[i]]", 3, x=x, p=small, out=np.zeros(3, "int64"))
        local = "t = cuda.local.array(256, cuda.int32)\nfor k in range(256):\n    t[k] = 3 * k\nout[0] = t[p]"
        yield make_case(f"index/local-{kind}", local, p=place, out=np.zeros(1, "int64"))
        yield make_case(
            f"index/record-{kind}", "out[0] = r[p].n", r=_records("particle", 256), p=place, out=np.zeros(1, "int64")
        )
        columns = _records("same", 256)
        yield make_case(f"index/field-{kind}", "out[0] = r.b[p]", r=columns, p=place, out=np.zeros(1, "int64"))
    for name, index in (("minus-one", "-1"), ("minus-three", "-3"), ("last", "x.size - 1")):
        yield make_case(f"index/literal-{name}", f"out[0] = x[{index}]\nx[{index}] = 7", x=x, out=np.zeros(1, "int64"))
    # The elements are far apart and all others are zero, so a wrong index does not find a right value by chance.
    for kind in ("int32", "uint32", "int64", "uint64"):
        far = [5, 2**31 - 1, *([2**31, 3_000_000_000] if kind != "int32" else [])]
        yield threaded(f"index/far-{kind}", "x[p[i]] = i + 1", len(far), x=_FAR, p=np.array(far, kind), gpu=True)


_FAR = np.broadcast_to(np.zeros((), "int8"), 3_000_000_008)
"""A stand-in for an array of this size; `outcome` makes the memory."""


def _loops() -> Iterator[Case]:
    for kind in INTEGERS:
        count = np.dtype(kind).type(200 if kind != "int8" else 120)
        one = np.zeros(2, "int64")
        body = "for k in range(n):\n    out[0] += 1\n    out[1] = k"
        yield make_case(f"loop/range-{kind}", body, n=count, out=one)
        body = "k = n\nwhile k > 100:\n    k -= 3\n    out[0] += 1\nout[1] = k"
        yield make_case(f"loop/while-{kind}", body, n=count, out=one)
        body = "for k in range(n, 250, 7):\n    out[0] += k"
        yield make_case(f"loop/range-from-{kind}", body, n=count, out=one)
        body = "for k in range(n, 3, -50):\n    out[0] += k\n    out[1] += 1"
        yield make_case(f"loop/range-down-{kind}", body, n=count, out=one)
        values = np.array([100, 100, 27, 90], kind)
        body = "s = cuda.int64(0)\nfor k in range(a.size):\n    s += a[k]\nout[0] = s"
        yield make_case(f"loop/sum-{kind}", body, a=values, out=one)
        body = "best = a[0]\nfor k in range(a.size):\n    best = max(best, a[k])\nout[0] = best\nout[1] = best + 1"
        edges = np.array([1, np.iinfo(kind).max, np.iinfo(kind).min, 3], kind)
        if kind not in ("int64", "uint64"):
            yield make_case(f"loop/maximum-{kind}", body, a=edges, out=one)
        body = "s = 0\nfor v in a:\n    s += v\nout[0] = s"
        yield make_case(f"loop/over-array-{kind}", body, a=values, out=one)


_SLICES = (
    *[
        "1:-1",
        "-3:",
        ":-3",
        "-5:-2",
        "2:5",
        ":",
        "0:0",
        "5:2",
        "3:100",
        "-100:3",
        "100:",
        ":-100",
        "::2",
        "1::3",
        "1:-1:2",
    ],
    *("::-1", "::-2", "5::-1", ":2:-1", "-2:1:-1", "-1:-4:-1", "7:2:-2", "2:7:-1"),
)


def _read(view: str) -> str:
    return f"y = {view}\nout[0] = y.shape[0]\nfor k in range(min(y.shape[0], 12)):\n    out[k + 1] = y[k]"


def _slices() -> Iterator[Case]:
    x, out = np.arange(10, 20, dtype="int32"), np.full(16, -7, "int64")
    for text in _SLICES:
        yield make_case(f"slice/{_slice_name(text)}", _read(f"x[{text}]"), x=x, out=out)
    every = np.arange(30, dtype="int32")[::3]
    for text in ("1:-1", "-3:", "::-1", "::2"):
        yield make_case(f"slice/strided-{_slice_name(text)}", _read(f"x[{text}]"), x=every, out=out)
        yield make_case(f"slice/reversed-argument-{_slice_name(text)}", _read(f"x[{text}]"), x=x[::-1], out=out)
    yield make_case("slice/twice", _read("x[1:][::2]"), x=x, out=out)
    yield make_case("slice/twice-negative", _read("x[1:-1][:-1]"), x=x, out=out)
    for kind in INTEGERS:
        a, b = np.dtype(kind).type(2), np.dtype(kind).type(7)
        yield make_case(f"slice/bounds-{kind}", _read("x[a:b]"), x=x, a=a, b=b, out=out)
        long, out64 = np.arange(256, dtype="int64"), out
        if kind != "int8":
            high = np.dtype(kind).type(200)
            yield make_case(f"slice/high-bounds-{kind}", _read("x[a:a + 3]"), x=long, a=high, out=out64)
        if kind in SIGNED:
            negative, minus = np.dtype(kind).type(-4), np.dtype(kind).type(-1)
            yield make_case(f"slice/negative-bound-{kind}", _read("x[a:]"), x=x, a=negative, out=out)
            yield make_case(f"slice/negative-stop-{kind}", _read("x[:a]"), x=x, a=negative, out=out)
            yield make_case(f"slice/negative-step-{kind}", _read("x[::a]"), x=x, a=minus, out=out)
        far = np.dtype(kind).type(100)
        yield make_case(f"slice/stop-outside-{kind}", _read("x[5:a]"), x=x, a=far, out=out)
        yield make_case(f"slice/start-outside-{kind}", _read("x[a:]"), x=x, a=far, out=out)
    grid = np.arange(35, dtype="int32").reshape(5, 7)
    texts = (
        "1:-1, 2; ::-1, 0; 2, 1:-1; 3, ::-1; 1; -1; :, -1; ..., 1; -2:, 3; 1:4, 1:6; ::2, ::3; ::-1, ::-1; 1:-1, 1:-1"
    )
    for text in texts.split("; "):
        rank = len(np.empty((5, 7))[_index(text)].shape)
        body = _read(f"x[{text}]") if rank == 1 else _READ_GRID.format(text)
        yield make_case(f"slice/grid-{_slice_name(text)}", body, x=grid, out=out)
    for text in ("1:4", "-3:", ":-7", "::2", "::-3", "1:-1"):
        yield make_case(f"slice/fill-{_slice_name(text)}", f"x[{text}] = 5", x=x)
        yield make_case(
            f"slice/assign-{_slice_name(text)}", f"y = x[{text}]\nfor k in range(y.shape[0]):\n    y[k] = k", x=x
        )
    yield make_case("slice/copy", "x[2:5] = v[1:4]", x=x, v=np.arange(100, 108, dtype="int32"))
    yield make_case("slice/copy-reversed", "x[2:5] = v[::-1][1:4]", x=x, v=np.arange(100, 108, dtype="int32"))
    yield make_case(
        "slice/length", "out[0] = len(x)\nout[1] = len(x[2:])\nout[2] = x.size\nout[3] = x.ndim", x=x, out=out
    )
    yield make_case("slice/offset-atomic", "cuda.atomic.add(x[3:], 1, 5)", x=x)
    for name, body in {
        "transposed": "y = x.T\nout[0] = y.shape[0]\nout[1] = y[6, 4]\nout[2] = y[-1, -2]",
        "sum-of-strides": "out[0] = x.strides[0]\nout[1] = x.strides[1]\nout[2] = x.itemsize",
        "strides-of-slice": "y = x[::2, ::3]\nout[0] = y.strides[0]\nout[1] = y.strides[1]",
        "last-rows": "y = x[-2:]\nout[0] = y.shape[0]\nout[1] = y[1, 2]",
    }.items():
        yield make_case(f"slice/{name}", body, x=grid, out=out)
    turned = grid[::-1, ::-1]
    yield make_case(
        "strides/negative-argument", "out[0] = x[0, 0]\nout[1] = x[4, 6]\nout[2] = x[-1, 1]", x=turned, out=out
    )
    yield make_case(
        "strides/broadcast", "out[0] = x[2, 3]\nout[1] = x[-1, -2]", x=np.broadcast_to(x[:7], (5, 7)), out=out
    )
    yield make_case("strides/fortran", "out[0] = x[2, 3]\nout[1] = x[-1, -2]\nx[1, 0] = 9", x=grid.T, out=out)
    yield make_case("strides/every-third", "out[0] = x[2]\nout[1] = x[-2]\nx[1] = 9", x=every, out=out)
    body = "t = 0\nfor k in range(x.shape[0]):\n    for m in range(7):\n        t += x[k, m] * (k + 1)\nout[0] = t"
    yield make_case("strides/sum", body, x=turned, out=out)


_READ_GRID = """\
y = x[{}]
out[0] = y.shape[0]
out[1] = y.shape[1]
for k in range(min(y.shape[0], 3)):
    for m in range(min(y.shape[1], 4)):
        out[2 + 4 * k + m] = y[k, m]
"""


def _index(text: str) -> Any:
    return eval(f"np.s_[{text}]", {"np": np})


def _slice_name(text: str) -> str:
    """Return the text of a slice in the form of a name."""
    return text.replace("-", "m").replace(":", "_").replace(", ", "_and_").replace("...", "all")


def _records(name: str, count: int) -> np.ndarray:
    dtype = RECORDS[name]
    array = np.zeros(count, dtype)
    for number, field in enumerate(dtype.names or ()):
        array[field] = (np.arange(count) * (number + 2) + number) % 120
    return array


def _views() -> Iterator[Case]:
    out = np.zeros(8, "float64")
    for name in RECORDS:
        array = _records(name, 6)
        fields = RECORDS[name].names or ()
        reads = "\n".join(f"out[{n}] = r[2].{field}\nout[{n + 4}] = r[-1].{field}" for n, field in enumerate(fields))
        yield make_case(f"record/read-{name}", reads, r=array, out=out)
        items = "\n".join(f"out[{n}] = r[2]['{field}']" for n, field in enumerate(fields))
        yield make_case(f"record/item-{name}", items, r=array, out=out)
        writes = "\n".join(f"r[3].{field} = {n + 7}" for n, field in enumerate(fields))
        yield make_case(f"record/write-{name}", writes, r=array)
        yield make_case(f"record/copy-{name}", "r[0] = r[4]\nr[-1] = r[1]", r=array)
        field = fields[1]
        total = f"s = 0.0\nfor k in range(r.size):\n    s += r[k].{field}\nout[0] = s"
        yield make_case(f"record/sum-{name}", total, r=array, out=out)
        for one in fields:
            column = f"out[0] = r.{one}[3]\nout[1] = r['{one}'][-2]"
            yield make_case(f"record/column-{name}-{one}", column, r=array, out=out)
        sliced = f"q = r[1:4]\nout[0] = q.shape[0]\nout[1] = q[1].{field}"
        yield make_case(f"record/slice-{name}", sliced, r=array, out=out)
        for kind, view in (("strided", array[::2]), ("reversed", array[::-1])):
            yield make_case(f"record/{kind}-{name}", f"out[0] = r[1].{field}\nout[1] = r[-1].{field}", r=view, out=out)
    yield make_case("record/wrap", "r[1].id = 300\nr[2].id = -1\nr[0].n = -5", r=_records("particle", 3))
    high = _records("particle", 3)
    high["id"] = 200
    body = "out[0] = r[1].id + 1\nout[1] = -r[1].id"
    yield make_case("record/unsigned", body, r=high, out=np.zeros(2, "int64"), oracle="numba-cuda", why=KEEPS_TYPE)
    x, wide = np.array([1.0, -2.0, 0.5, 3.25], "float32"), np.arange(-2, 4, dtype="int64")
    for name, array, body in (
        ("float32-int32", x, "y = x.view(np.int32)\nout[0] = y[1]\nout[1] = y.shape[0]"),
        ("float32-uint8", x, "y = x.view(np.uint8)\nout[0] = y[3]\nout[1] = y.shape[0]"),
        ("int64-int32", wide, "y = x.view(np.int32)\nout[0] = y[1]\nout[1] = y.shape[0]"),
        ("reshape", wide, "y = x.reshape(2, 3)\nout[0] = y[1, 2]\nout[1] = y[-1, 0]"),
    ):
        yield make_case(f"view/{name}", body, x=array, out=np.zeros(2, "int64"))
    yield make_case("view/int64-uint64", "y = x.view(np.uint64)\nout[0] = y[0]", x=wide, out=np.zeros(1, "uint64"))
    yield make_case("view/ravel", "y = x.ravel()\nout[0] = y[5]", x=wide.reshape(2, 3), out=np.zeros(1, "int64"))


def _atomics() -> Iterator[Case]:
    for kind in INTEGERS:
        bins = np.zeros(256, "int32")
        places = np.array(
            [0, 1, 1, 5, 100, *([200, 255, 200] if kind in UNSIGNED or kind != "int8" else [127, 3, 3])], kind
        )
        yield threaded(f"atomic/index-{kind}", "cuda.atomic.add(h, p[i], 1)", 8, h=bins, p=places)
        grid = np.zeros((256, 2), "int32")
        yield threaded(f"atomic/index-pair-{kind}", "cuda.atomic.add(h, (p[i], 1), 2)", 8, h=grid, p=places)
        if kind in SIGNED:
            back = np.array([-1, -2, -1], kind)
            yield threaded(f"atomic/index-negative-{kind}", "cuda.atomic.add(h, p[i], 1)", 3, h=bins, p=back)
    for kind, value in product((*_WIDE, *FLOATS), (*INTEGERS, *FLOATS)):
        if value in FLOATS and kind not in FLOATS:
            continue
        values = _summands(value)
        if kind in FLOATS:
            values = values[np.abs(values.astype("float64")) < 2**20]
        for name in ("add", "sub", "max", "min"):
            if kind in FLOATS and name == "sub" and value not in FLOATS:
                continue
            start = np.array([50, 60], kind)
            yield threaded(
                f"atomic/{name}-{kind}-{value}", f"cuda.atomic.{name}(h, i % 2, v[i])", values.size, h=start, v=values
            )
    for kind, name in product(_WIDE, ("and_", "or_", "xor")):
        for value in dict.fromkeys((kind, "int32", "uint8", "int64")):
            values = np.array([5, 12, 200 if value == "uint8" else -2 if value in SIGNED else 7], value)
            start = np.array([0x7F, 0x3C], kind)
            body = f"cuda.atomic.{name}(h, i % 2, v[i])"
            yield threaded(f"atomic/{name.strip('_')}-{kind}-{value}", body, 3, h=start, v=values)


def _atomics_that_return() -> Iterator[Case]:
    for kind in (*_WIDE, *FLOATS):
        start, values = np.arange(1, 7).astype(kind), np.arange(10, 16).astype(kind)
        old = np.zeros(6, kind)
        for name in ("add", "sub", "max", "min", "exch"):
            yield threaded(
                f"atomic/old-{name}-{kind}", f"old[i] = cuda.atomic.{name}(h, i, v[i])", 6, h=start, v=values, old=old
            )
        if kind in FLOATS:
            continue
        wanted = np.array([1, 0, 3, 9, 5, 9], kind)
        body = "old[i] = cuda.atomic.cas(h, i, w[i], v[i])"
        yield threaded(f"atomic/cas-{kind}", body, 6, h=start, w=wanted, v=values, old=old)
        yield threaded(f"atomic/literal-{kind}", "cuda.atomic.add(h, 0, -2)", 3, h=np.array([100], kind))
        high = np.array([np.iinfo(kind).max, np.iinfo(kind).max // 2], kind)
        yield threaded(f"atomic/max-high-{kind}", "cuda.atomic.max(h, i, v[i])", 2, h=np.array([3, 3], kind), v=high)
        yield threaded(f"atomic/min-high-{kind}", "cuda.atomic.min(h, i, v[i])", 2, h=high, v=np.array([3, 3], kind))
    for kind in ("uint32", "uint64"):
        for name in ("inc", "dec"):
            start, limits = np.array([0, 3, 7, 2, 9, 1], kind), np.array([5, 3, 3, 9, 9, 0], kind)
            body = f"old[i] = cuda.atomic.{name}(h, i, v[i])"
            yield threaded(f"atomic/{name}-{kind}", body, 6, h=start, v=limits, old=np.zeros(6, kind))


def _summands(kind: str) -> np.ndarray:
    if kind in FLOATS:
        return np.array([1.5, -2.0, 100.0, -0.25, 7.0, 80.0], kind)
    info = np.iinfo(kind)
    return np.array([1, info.max, 100, info.min, 7, info.max // 2 + 1], kind)


def _numbers_of_threads() -> Iterator[Case]:
    out = np.zeros(4, "int64")
    body = "if cuda.threadIdx.x == cuda.blockDim.x - 1 and cuda.blockIdx.x == cuda.gridDim.x - 1:\n    {}"
    last = {"threads": (2**22 + 1) * 1024, "block": 1024, "first": (2**22 + 1) * 1024 - 1}
    yield make_case("grid/far", body.format("out[0] = cuda.grid(1)"), out=out, **last)
    yield make_case("grid/far-size", body.format("out[0] = cuda.gridsize(1)"), out=out, **last)
    product_ = "out[0] = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x"
    yield make_case("grid/far-product", body.format(product_), out=out, **last)
    wide = "out[0] = cuda.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x"
    yield make_case("grid/far-int64", body.format(wide), out=out, **last)
    yield make_case("grid/sizes", body.format("out[0] = cuda.gridDim.x\n    out[1] = cuda.blockDim.x"), out=out, **last)
    yield threaded("grid/times", "out[i] = cuda.grid(1) * 3000000000", 4, out=out)
    yield threaded("grid/minus", "out[i] = cuda.threadIdx.x - 2", 4, out=out)
    yield threaded("grid/squared", "out[i] = (cuda.threadIdx.x + 65536) * (cuda.threadIdx.x + 65536)", 4, out=out)


def cases() -> Iterator[Case]:
    """Return all cases about memory and threads."""
    for part in (_indices, _loops, _slices, _views, _atomics, _atomics_that_return, _numbers_of_threads):
        yield from part()
