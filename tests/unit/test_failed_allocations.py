"""Let each allocation of the fast path fail once: the call raises MemoryError or works, and later calls work."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from aotcuda.runtime.launch import fast
from support import manifests
from support.grids import PAIR
from support.launch_paths import needs_extension
from support.manifests import kernel
from support.triton_in_place import record

pytestmark = [
    needs_extension,
    pytest.mark.skipif(importlib.util.find_spec("_testcapi") is None, reason="this Python has no _testcapi"),
    pytest.mark.skipif(sys.platform == "win32", reason="_testcapi is not in embedded Pythons"),
]

PRELUDE = """
import faulthandler, struct
faulthandler.enable()
import _testcapi
import aotcuda
from aotcuda.runtime.launch import fast
import %s as module
module.__aotcuda__.name
k = module.k
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
array = Array()
class Stream:
    def __cuda_stream__(self):
        return 0, 77
stream = Stream()

def fail_each(name, make, call, most=3000):
    "Let the allocations of `call(make())` fail one after the other, until none is left to fail."
    failed = 0
    for number in range(most):
        made = make()
        _testcapi.set_nomemory(number, number + 1)
        try:
            call(made)
            outcome = None
        except MemoryError:
            outcome = "MemoryError"
        except BaseException as error:
            _testcapi.remove_mem_hooks()
            if not isinstance(error, (aotcuda.errors.AotcudaError, SystemError, ImportError)):
                raise
            outcome = type(error).__name__
        _testcapi.remove_mem_hooks()
        failed += outcome is not None
        call(make())
        if outcome is None and number > 200 + 2 * failed:
            break
    print(name, failed)
"""
PLAIN = """
def refused():
    try:
        k[1, 32](2.0, "text")
    except aotcuda.errors.ArgumentError:
        pass
extension = fast.in_use()
count = [0]
def types():
    count[0] += 1
    kind = type("Float", (float,), {})
    return kind(1.0)
for _ in range(5):
    k[1, 32](2.0, array)
fail_each("launcher", lambda: (count[0], 32), lambda grid: k[grid[0] + 1, 32])
fail_each("with stream", lambda: stream, lambda stream: k[1, 32, stream])
fail_each("launch", lambda: k[1, 32], lambda launcher: launcher(2.0, array))
fail_each("new types", types, lambda number: [k[1, 32](number, array) for _ in range(3)])
fail_each("configure", lambda: None, lambda _: k.configure(1, 32, priority=0)(2.0, array))
fail_each("forall", lambda: None, lambda _: k.forall(100)(2.0, array))
fail_each("error", lambda: None, lambda _: refused())
layouts = [("s", "f", 0, "C", 0, 0, 1, 0, b"", "", b"", 1, -2**63, 2**63 - 1, None)]
fail_each("layout", lambda: None, lambda _: extension.ArgumentLayout(8, tuple(layouts), struct.pack("<i", 0)))
fail_each("xla", lambda: None, lambda _: extension.xla_prepare(
    "m.k", 1, 5, (1, 1, 1, 32, 1, 1, 0), 4096, 4096, False, 1, 0, bytes(16), struct.pack("<4i", 0, 0, 0, 1), b""))
fail_each("handlers", lambda: None, lambda _: extension.xla_handlers())
"""
GRID = """
for _ in range(5):
    k[1](array, 1.0, 16, BLOCK=128)
fail_each("launch", lambda: k[1], lambda launcher: launcher(array, 1.0, 16, BLOCK=128))
fail_each("grid", lambda: None, lambda _: k[1])
fail_each("function", lambda: None, lambda _: k[lambda arguments: 1](array, 1.0, 16, BLOCK=128))
"""
EXACT = """
for _ in range(5):
    k[lambda arguments: (1,)](array, 5)
fail_each("function", lambda: None, lambda _: k[lambda arguments: (1,)](array, 5))
fail_each("names", lambda: None, lambda _: k[1](x=array, n=5))
"""
CASES = {
    "plain": (PLAIN, [kernel("k", "void(float64, float32[::1])")], {}),
    "grid": (GRID, [PAIR], {"by_grid": True, "frontend": "triton"}),
    "exact": (
        EXACT,
        [record("k", [{"name": "x"}, {"name": "n"}], {"x": "*fp32:16", "n": "i32"})],
        {"by_grid": True, "frontend": "triton"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_allocation_fails_once(cuda, name):
    if fast.why_not() is not None:
        pytest.skip("there is no extension")
    code, kernels, options = CASES[name]
    manifests.write(cuda.packages, kernels, **options)
    lines = cuda.run(PRELUDE % "mypkg.kernels" + code).splitlines()
    assert len(lines) == code.count("fail_each(")
    failed = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    assert [what for what, number in failed.items() if not number and what != "launch"] == []


LEAKS = """
import tracemalloc
extension = fast.in_use()
where = "k" * 1_000_000
tracemalloc.start()
raised = 0
for number in range(40):
    before = tracemalloc.get_traced_memory()[0]
    _testcapi.set_nomemory(number, number + 1)
    try:
        extension.xla_prepare(where, 1, 5, (1, 1, 1, 32, 1, 1, 0), 4096, 4096, False, 1, 0, bytes(16), bytes(0), b"")
    except MemoryError:
        _testcapi.remove_mem_hooks()
        raised += 1
        assert tracemalloc.get_traced_memory()[0] - before < 500_000, number
    _testcapi.remove_mem_hooks()
assert raised > 4
"""


def test_failed_allocations_leave_no_memory(cuda):
    if fast.why_not() is not None:
        pytest.skip("there is no extension")
    manifests.write(cuda.packages, [kernel("k", "void(float64, float32[::1])")])
    cuda.run(PRELUDE % "mypkg.kernels" + LEAKS)
