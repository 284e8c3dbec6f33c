"""Test what numba-cuda compiles and numba-cuda-mlir cannot: minimal cases without aotcuda.

A case fails on the day that the compiler takes it; its row in docs/frontends.md and its refusal can go then.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from support.front_ends import installed

pytestmark = [
    pytest.mark.matrix,  # of the compiler alone
    pytest.mark.skipif(not installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)"),
]

CASES = """
import json

import numpy as np
from numba_cuda_mlir import cuda, tools, types
from numba_cuda_mlir.numba_cuda.np.numpy_support import from_dtype

tools._cached_cc = (8, 0)  # it asks the driver otherwise
record = from_dtype(np.dtype([("x", "f8"), ("id", "i4")]))
shifted = from_dtype(np.dtype([("id", "i4"), ("x", "f8")]))


def contiguous(element):
    return types.Array(element, 1, "C")


def compared(x, y):
    y[0] = x[0] == x[1]


def shared_records(x):
    tile = cuda.shared.array(8, record)
    tile[cuda.threadIdx.x] = x[0]
    x[0] = tile[7 - cuda.threadIdx.x]


@cuda.jit(device=True)
def even(n):
    return 1 if n == 0 else odd(n - 1)


@cuda.jit(device=True)
def odd(n):
    return 0 if n == 0 else even(n - 1)


def circle(x):
    x[0] = even(x[1])


def fields(a):
    a.x[1] = 2


def taken(x):
    x[0] = 1


found = {}
for function, args in [
    (compared, (contiguous(types.UnicodeCharSeq(3)), contiguous(types.boolean))),
    (shared_records, (contiguous(record),)),
    (circle, (contiguous(types.int64),)),
    (fields, (contiguous(shifted),)),
    (taken, (contiguous(types.int64),)),
]:
    try:
        found[function.__name__] = cuda.compile_ptx(function, types.void(*args))[0]
    except Exception as error:
        found[function.__name__] = type(error).__name__
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """By case the PTX, or the class of the error."""
    done = subprocess.run([sys.executable, "-c", CASES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", ["compared", "shared_records", "circle"])
def test_it_ends_with_an_error(found: dict[str, str], case: str) -> None:
    assert ".entry" in found["taken"]  # the cases are asked for as they must be
    assert re.fullmatch(r"\w+Error", found[case])


def test_fields_of_all_records_are_counted_in_fields(found: dict[str, str]) -> None:
    # The second x lies a record's 12 bytes behind the first. It is looked for 8 bytes behind.
    assert re.search(
        r"shl\.b64 \t%rd\d+, %rd\d+, 3;\s+add\.s64 .*\s+mov\.u64 .*\s+st\.global\.u64 \t\[%rd\d+\+4\]", found["fields"]
    )
    assert "12" not in re.findall(r", (\d+);", found["fields"])
