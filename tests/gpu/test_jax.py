"""Test packaged kernels inside JAX's programs on a GPU."""

from __future__ import annotations

import os

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.launch import fast as extension
from support.threads import at_once

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # JAX gives warnings
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests need the memory
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
if extension.in_use() is None:
    pytest.skip(f"XLA's launches need the extension: {extension.why_not()}", allow_module_level=True)

N = 1000


@pytest.fixture(scope="module", autouse=True)
def gpu():
    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")


@pytest.fixture(scope="module")
def axpy(quickstart):
    return quickstart.axpy


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def call(*args, **options):
    import aotcuda.jax

    return aotcuda.jax.call(*args, **options)


def test_kernel_runs_inside_jitted_program(axpy):
    @jax.jit
    def step(x, y):
        out = call(axpy, like(x), forall=x.size)(2.0, jnp.sin(x) * 3, y)
        return jnp.cos(out) + call(axpy, like(x), grid=4, block=256)(-1.0, out, y)

    x, y = jnp.linspace(-2, 2, N, dtype=jnp.float32), jnp.ones(N, jnp.float32)
    middle = 2 * np.sin(np.asarray(x, np.float64)) * 3 + 1
    np.testing.assert_allclose(step(x, y), np.cos(middle) - middle + 1, atol=2e-5)
    text = step.lower(x, y).as_text()
    assert text.count("@aotcuda_launch") == 2
    assert "callback" not in text


def test_kernel_runs_in_order_between_kernels_of_xla(features):
    @jax.jit
    def chain(x):
        def body(_, value):
            value = jnp.sort(value)
            return jnp.sqrt(call(features.square, like(value), forall=value.size)(value))

        return jax.lax.fori_loop(0, 100, body, x)

    x = jnp.arange(1, N + 1, dtype=jnp.float32)
    np.testing.assert_allclose(chain(x), x, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_signature_follows_dtypes(features, dtype):
    x = jnp.arange(9).astype(dtype)
    np.testing.assert_array_equal(call(features.square, like(x), forall=9)(x), np.arange(9).astype(dtype) ** 2)


def test_two_dimensions_are_row_major(features):
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    copied = jax.jit(lambda x: call(features.copy_any, like(x), grid=(1, 1), block=(8, 8))(x))(x.T.T)
    np.testing.assert_array_equal(copied, x)
    turned = jax.jit(lambda x: call(features.copy_any, like(x.T), grid=(1, 1), block=(8, 8))(x.T))(x)
    np.testing.assert_array_equal(turned, x.T)


def test_command_buffers_are_updated_for_other_arrays(axpy):
    @jax.jit
    def chain(x, y):
        for _ in range(20):
            x = call(axpy, like(x), forall=x.size, command_buffer=True)(0.5, jnp.sort(x), y)
        return x

    for value in (1.0, 2.0, 3.0):
        for _ in range(5):
            x, y = jnp.full(N, value, jnp.float32), jnp.full(N, value / 2, jnp.float32)
            np.testing.assert_allclose(chain(x, y), np.full(N, value, "float32"))
            del x, y
    assert "@aotcuda_launch_recorded" in chain.lower(jnp.ones(N), jnp.ones(N)).as_text()


def test_result_takes_place_of_donated_argument(features):
    def reverse(x):
        return call(features.reverse, like(x), grid=1, block=64, input_output_aliases={0: 0})(x)

    expected = np.arange(64, dtype="float32")[::-1]
    x = jnp.arange(64, dtype=jnp.float32)
    np.testing.assert_array_equal(jax.jit(reverse)(x), expected)
    np.testing.assert_array_equal(x, expected[::-1])  # it was not donated, so JAX copied it
    address = x.unsafe_buffer_pointer()
    result = jax.jit(reverse, donate_argnums=0)(x)
    np.testing.assert_array_equal(result, expected)
    assert x.is_deleted()
    assert result.unsafe_buffer_pointer() == address


def test_threads_launch_at_once(axpy):
    @jax.jit
    def step(x, y):
        return call(axpy, like(x), forall=x.size)(2.0, x, y)

    def work(number):
        x, y = jnp.full(N, number, jnp.float32), jnp.ones(N, jnp.float32)
        for _ in range(200):
            out = step(x, y)
        np.testing.assert_array_equal(out, np.full(N, 2 * number + 1, "float32"))

    assert at_once([lambda number=number: work(number) for number in range(4)]) == []


def test_program_must_be_traced_again_after_unload(features):
    @jax.jit
    def square(x):
        return call(features.square, like(x), forall=x.size)(x)

    x = jnp.arange(7, dtype=jnp.float32)
    square(x).block_until_ready()
    features.__aotcuda__.unload()
    with pytest.raises(Exception, match="trace it again"):
        square(x).block_until_ready()
    jax.clear_caches()
    np.testing.assert_array_equal(square(x), x**2)


def test_launch_with_jax_array_needs_readonly_parameter(features):
    cupy = pytest.importorskip("cupy")
    x, out = jnp.ones(64, jnp.float32), cupy.zeros(1, "float32")
    x.block_until_ready()
    features.total[1, 64](x, out)
    assert float(out[0]) == 64
    with pytest.raises(ArgumentError, match="is read-only"):
        features.square[1, 64](x, cupy.zeros(64, "float32"))


def test_kernel_runs_on_gpu_of_its_arrays(axpy):
    if len(jax.devices("gpu")) < 2:
        pytest.skip("it needs two GPUs")
    step = jax.jit(lambda x, y: call(axpy, like(x), forall=x.size)(2.0, x, y))
    for device in reversed(jax.devices("gpu")):
        x = jax.device_put(np.arange(9, dtype="float32"), device)
        out = step(x, x)
        np.testing.assert_array_equal(out, 3 * np.arange(9, dtype="float32"))
        assert out.devices() == {device}
