"""Test linked code of every kind, both ABIs nested, and callbacks on a GPU, against closed forms."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(*front_ends.ALL)]
cupy = pytest.importorskip("cupy")

X = np.linspace(-2, 2, 100, dtype="float32")


@pytest.fixture(scope="module")
def foreign(packaged):
    for name in ("calls", "kinds", "table"):
        packaged("foreign", f"foreign.{name}")
    return sys.modules["foreign"]


def run(kernel, x=X):
    out = cupy.zeros(len(x), "float32")
    kernel[2, 64](cupy.asarray(x), out)
    return out.get()


def through(x, kinds):
    order = ["ptx", "cubin", "fatbin", "ltoir", "o", "a"]
    for kind in reversed(kinds):
        x = np.float32(2) * x + np.float32(order.index(kind) + 1)
    return x


def test_every_kind_of_file_links(foreign):
    inner = np.float32(0.5) * (np.float32(3) * (X - 1))
    expected = through(inner, ["ptx", "cubin", "fatbin", "ltoir", "o", "a"])
    np.testing.assert_allclose(run(foreign.kinds.every_file), expected, rtol=1e-6, atol=1e-5)


def test_every_kind_of_object_in_memory_links(foreign):
    expected = through(X + 100, ["ptx", "cubin", "ltoir", "o", "a"])
    np.testing.assert_allclose(run(foreign.kinds.every_object), expected, rtol=1e-6)


def test_link_option_headers_and_array_pointers(foreign):
    np.testing.assert_array_equal(run(foreign.kinds.legacy), X / 2)
    np.testing.assert_array_equal(run(foreign.kinds.headers), X.astype("float16").astype("float32"))
    out = run(foreign.kinds.pointer, np.arange(50, dtype="float32"))
    assert out[:2].tolist() == [1225.0, 1225.0]


def test_both_abis_nest_in_every_way(foreign):
    inner = X.astype("float64") ** 2 - 4
    expected = (2 * inner + 10) * 3 + 1
    np.testing.assert_allclose(run(foreign.calls.nested), expected, rtol=1e-6, atol=1e-5)


def test_optional_becomes_plain_value_at_c_abi(foreign):
    np.testing.assert_allclose(run(foreign.calls.optional), np.where(X < 0, 0, X + 1), rtol=1e-6)


def test_status_ends_numba_function_but_no_c_function(foreign):
    out = run(foreign.calls.status)
    # A status of 1 ends the thread before its last store, as an exception does. The C function before it returns,
    # since it cannot pass the status on.
    assert (out[X <= 0] == X[X <= 0]).all()
    assert (out[X > 0] != X[X > 0]).all()


def test_setup_callback_fills_table_that_kernel_reads(foreign):
    from foreign import _hooks

    _hooks.calls.clear()
    foreign.table.__aotcuda__.unload()
    out = cupy.zeros(16, "float32")
    foreign.table.look_up[1, 32](cupy.arange(16, dtype="int32"), out)
    assert out.get().tolist() == [*_hooks.VALUES, *_hooks.VALUES]
    assert [call[0] for call in _hooks.calls][-1] == "setup"
    assert _hooks.calls[-1][2] == "ObjectCode"


@pytest.mark.front_end(front_ends.NUMBA)  # the example's front end
def test_example_of_foreign_functions_gives_numpys_numbers(packaged):
    k = packaged("foreign-functions", "foreign_functions.kernels")
    from foreign_functions._hooks import WEIGHTS

    x, y = cupy.asarray(X), cupy.asarray(X[::-1].copy())
    r = cupy.zeros(100, "float32")
    k.multiply_vectors.forall(100)(r, x, y)
    np.testing.assert_array_equal(r.get(), X * X[::-1])
    k.saxpy_vectors.forall(100)(r, 3.0, x, y)
    np.testing.assert_allclose(r.get(), 3 * X + X[::-1], rtol=1e-6, atol=1e-6)
    k.weigh.forall(100)(r, x)
    np.testing.assert_array_equal(r.get(), X * np.tile(np.float32(WEIGHTS), 25))
    k.reduce_sum[1, 1](r, x)
    np.testing.assert_allclose(r.get()[0], X.sum(), atol=1e-5)
