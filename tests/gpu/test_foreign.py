"""Foreign functions: linkable code of every kind, both ABIs nested, callbacks; against closed forms and Numba's JIT."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(*front_ends.ALL)]
cupy = pytest.importorskip("cupy")

PROJECT = Path(__file__).parents[1] / "packages" / "foreign"
X = np.linspace(-2, 2, 100, dtype="float32")


@pytest.fixture(scope="module")
def foreign(installed):
    sys.path.insert(0, str(installed / "foreign"))
    import foreign.calls
    import foreign.kinds
    import foreign.table

    return foreign


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


def test_the_legacy_link_option_links(foreign):
    np.testing.assert_array_equal(run(foreign.kinds.legacy), X / 2)


def test_the_toolkits_headers_work(foreign):
    np.testing.assert_array_equal(run(foreign.kinds.headers), X.astype("float16").astype("float32"))


def test_a_pointer_to_an_arrays_data_is_passed(foreign):
    out = run(foreign.kinds.pointer, np.arange(50, dtype="float32"))
    assert out[:2].tolist() == [1225.0, 1225.0]


def test_both_abis_nest_in_every_way(foreign):
    inner = X.astype("float64") ** 2 - 4
    expected = (2 * inner + 10) * 3 + 1
    np.testing.assert_allclose(run(foreign.calls.nested), expected, rtol=1e-6, atol=1e-5)


def test_an_optional_becomes_a_plain_value_at_the_c_abi(foreign):
    np.testing.assert_allclose(run(foreign.calls.optional), np.where(X < 0, 0, X + 1), rtol=1e-6)


def test_a_status_ends_a_numba_function_and_is_lost_at_the_c_abi(foreign):
    out = run(foreign.calls.status)
    # Where the status is 0 the last store is made; where it is 1 it ends the thread before, as an exception does. The
    # C function before it has no way to pass the status on, and returns.
    assert (out[X <= 0] == X[X <= 0]).all()
    assert (out[X > 0] != X[X > 0]).all()


def test_a_setup_callback_fills_the_table_that_the_kernel_reads(foreign):
    from foreign import _hooks

    out = cupy.zeros(16, "float32")
    foreign.table.look_up[1, 32](cupy.arange(16, dtype="int32"), out)
    assert out.get().tolist() == [*_hooks.VALUES, *_hooks.VALUES]
    assert [call[0] for call in _hooks.calls] == ["setup"]
    assert _hooks.calls[0][2] == "ObjectCode"


def test_teardown_runs_on_unload_and_setup_again_after_it(foreign):
    from foreign import _hooks

    before = len(_hooks.calls)
    foreign.table.__aotcuda__.unload()
    out = cupy.zeros(8, "float32")
    foreign.table.look_up[1, 32](cupy.arange(8, dtype="int32"), out)
    assert out.get().tolist() == _hooks.VALUES
    assert [call[0] for call in _hooks.calls[before:]] == ["teardown", "setup"]


JIT = """
import json, warnings
warnings.simplefilter("ignore")
import numpy as np
from numba import cuda, config
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
from foreign import _kinds
x = cuda.to_device(np.linspace(-2, 2, 100, dtype="float32"))
result = {}
for name in ("every_object", "legacy"):
    out = cuda.device_array(100, "float32")
    getattr(_kinds, name)[2, 64](x, out)
    result[name] = out.copy_to_host().tolist()
print(json.dumps(result))
"""


@pytest.mark.front_end(front_ends.NUMBA)  # the JIT is its own
@pytest.mark.skipif(not (PROJECT / "csrc" / "generated").is_dir(), reason="the project's binaries were not made here")
def test_numbas_own_jit_gives_the_same_numbers(foreign):
    done = subprocess.run(
        [sys.executable, "-c", JIT],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, values in json.loads(done.stdout).items():
        np.testing.assert_array_equal(run(getattr(foreign.kinds, name)), np.array(values, "float32"), err_msg=name)


@pytest.mark.front_end(front_ends.NUMBA)  # which builds the example
def test_the_example_of_foreign_functions_gives_numpys_numbers(installed):
    sys.path.insert(0, str(installed / "foreign-functions"))
    import foreign_functions.kernels as k
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
