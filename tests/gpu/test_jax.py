"""Packaged kernels inside JAX's programs, on a real GPU."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as extension

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # what JAX warns of is its affair
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # beside other tests' libraries
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
def axpy(installed):
    sys.path.insert(0, str(installed / "quickstart"))
    import quickstart.kernels

    return quickstart.kernels.axpy


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def call(*args, **options):
    import aotcuda.jax

    return aotcuda.jax.call(*args, **options)


def test_inside_a_jitted_program(axpy):
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


def test_it_is_in_line_with_what_runs_before_and_after(features):
    """A hundred launches, each between kernels of XLA's that write what it reads and read what it writes."""

    @jax.jit
    def chain(x):
        def body(_, value):
            value = jnp.sort(value)
            return jnp.sqrt(call(features.square, like(value), forall=value.size)(value))

        return jax.lax.fori_loop(0, 100, body, x)

    x = jnp.arange(1, N + 1, dtype=jnp.float32)
    np.testing.assert_allclose(chain(x), x, rtol=1e-4)


def test_outside_of_jit(features):
    x = jnp.arange(N, dtype=jnp.float32)
    np.testing.assert_array_equal(call(features.square, like(x), forall=N)(x), np.arange(N, dtype="float32") ** 2)


@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_the_signature_is_that_of_the_dtypes(features, dtype):
    x = jnp.arange(9).astype(dtype)
    np.testing.assert_array_equal(call(features.square, like(x), forall=9)(x), np.arange(9).astype(dtype) ** 2)


def test_two_dimensions_are_row_major(features):
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    copied = jax.jit(lambda x: call(features.copy_any, like(x), grid=(1, 1), block=(8, 8))(x))(x.T.T)
    np.testing.assert_array_equal(copied, x)
    turned = jax.jit(lambda x: call(features.copy_any, like(x.T), grid=(1, 1), block=(8, 8))(x.T))(x)
    np.testing.assert_array_equal(turned, x.T)


def test_recorded_into_command_buffers(axpy):
    """Twice with other data and buffers, since what was recorded has to be brought up to date."""

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


def test_in_place_of_a_donated_argument(features):
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


def test_batches_are_refused_or_sequential(features):
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)

    def square(x, **options):
        return call(features.square, like(x), forall=x.size, **options)(x)

    np.testing.assert_array_equal(jax.vmap(lambda x: square(x, vmap_method="sequential"))(x), x**2)
    with pytest.raises(NotImplementedError, match="vmap_method"):
        jax.vmap(square)(x)
    with pytest.raises(ArgumentError, match="'sequential'"):
        square(x, vmap_method="expand_dims")


def test_gradients_by_custom_vjp(features):
    @jax.custom_vjp
    def square(x):
        return call(features.square, like(x), forall=x.size)(x)

    square.defvjp(lambda x: (square(x), x), lambda x, gradient: (2 * x * gradient,))
    x = jnp.arange(5, dtype=jnp.float32)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: square(x).sum()))(x), 2 * x)


def test_from_several_threads(axpy):
    @jax.jit
    def step(x, y):
        return call(axpy, like(x), forall=x.size)(2.0, x, y)

    failed = []

    def many(number):
        x, y = jnp.full(N, number, jnp.float32), jnp.ones(N, jnp.float32)
        for _ in range(200):
            x_next = step(x, y)
        if not np.array_equal(x_next, np.full(N, 2 * number + 1, "float32")):
            failed.append(number)

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_shapes_and_dtypes_are_checked_while_tracing(features, axpy):
    x = jnp.zeros((2, 2), jnp.float32)
    with pytest.raises(ArgumentError, match=r"argument 1, x, is float32\[:, ?::1\]"):
        jax.jit(lambda x: call(features.square, like(x), forall=4)(x))(x)
    with pytest.raises(ArgumentError, match="a is an array of JAX where the kernel takes float32 by value"):
        jax.jit(lambda a, x: call(axpy, like(x), forall=4)(a, x, x))(2.0, x.ravel())


def test_a_program_does_not_outlive_its_images(features):
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


def test_on_the_cpu_it_is_refused_in_words(features):
    x = jax.device_put(np.arange(7, dtype="float32"), jax.devices("cpu")[0])
    with pytest.raises(Exception, match=r"gpufeatures\.kernels\.square runs on GPUs of NVIDIA's alone"):
        jax.jit(lambda x: call(features.square, like(x), forall=x.size)(x))(x).block_until_ready()


def test_eager_arrays_are_read_only(features):
    """Launched outside of JAX's programs: what is declared read-only takes them, and nothing else."""
    cupy = pytest.importorskip("cupy")
    x, out = jnp.ones(64, jnp.float32), cupy.zeros(1, "float32")
    x.block_until_ready()
    features.total[1, 64](x, out)
    assert float(out[0]) == 64
    with pytest.raises(ArgumentError, match="is read-only"):
        features.square[1, 64](x, cupy.zeros(64, "float32"))


def test_on_the_gpu_of_its_arrays(axpy):
    if len(jax.devices("gpu")) < 2:
        pytest.skip("it needs two GPUs")
    step = jax.jit(lambda x, y: call(axpy, like(x), forall=x.size)(2.0, x, y))
    for device in reversed(jax.devices("gpu")):
        x = jax.device_put(np.arange(9, dtype="float32"), device)
        out = step(x, x)
        np.testing.assert_array_equal(out, 3 * np.arange(9, dtype="float32"))
        assert out.devices() == {device}
