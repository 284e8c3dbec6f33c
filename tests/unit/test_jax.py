"""Calls in JAX's programs without a GPU: tracing and errors. tests/gpu has the launches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime.launch import fast as extension
from support import manifests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    import aotcuda.jax

pytestmark = pytest.mark.filterwarnings("default")  # JAX itself warns
AXPY = [
    "void(float32, float32[::1], float32[::1], float32[::1])",
    "void(float64, float64[::1], float64[::1], float64[::1])",
]
X = np.arange(4, dtype="float32")


@pytest.fixture(scope="module")
def registered(extension_module):
    """Return the extension. JAX keeps the handlers of the first extension that registers them."""
    return extension_module


@pytest.fixture
def kernels(cuda, registered, monkeypatch):
    monkeypatch.setattr(extension, "_module", [registered])
    jax.clear_caches()
    return cuda.package(
        manifests.kernel("axpy", *AXPY, names="axyz"),
        manifests.kernel("scale", "void(float32[::1], float32)", names="xa"),
        manifests.kernel("two", "void(float32[::1], float32[::1], float32[::1])", names="xyz"),
        manifests.kernel("brain", "void(float32[:,::1], float32[:,::1])", names="xy"),
    )


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def call(kernel, results, **options):
    return aotcuda.jax.call(kernel, results, **{"grid": 1, "block": 64, **options})


def lowered(function, *args):
    return jax.jit(function).lower(*args).as_text()


def test_a_traced_call_is_one_call_of_xla(kernels):
    text = lowered(lambda x, y: call(kernels.axpy, like(x))(2.0, x, y), X, X)
    assert text.count("stablehlo.custom_call @aotcuda_launch(%arg0, %arg1)") == 1


def test_results_have_the_shapes_that_were_given(kernels):
    single = jax.eval_shape(lambda x: call(kernels.axpy, like(x))(2.0, x, x), X)
    assert (single.shape, single.dtype) == ((4,), "float32")
    two = jax.eval_shape(lambda x: call(kernels.two, (like(x), like(x)))(x), X)
    assert [each.shape for each in two] == [(4,), (4,)]


def test_results_may_be_any_parameters(kernels):
    text = lowered(lambda z: call(kernels.two, [like(z), like(z)], outputs=("x", "y"))(z), X)
    assert "(tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)" in text


def test_an_argument_may_be_a_result_as_well(kernels):
    def scale(x):
        return call(kernels.scale, like(x), input_output_aliases={0: 0})(x, 3.0)

    assert "output_operand_alias" in lowered(scale, X)


def test_a_program_on_the_cpu_is_refused(kernels):
    with pytest.raises(
        Exception, match=r"mypkg\.kernels\.axpy runs on GPUs of NVIDIA's alone, and this program runs on"
    ):
        jax.jit(lambda x: call(kernels.axpy, like(x))(2.0, x, x))(X).block_until_ready()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda k, x: call(k.axpy, like(x))(2.0, x.astype("int8"), x), "argument 2, x, is int8"),
        (lambda k, x: call(k.axpy, like(x))(2.0, x.reshape(2, 2), x), r"argument 2, x, is float32\[:, ?::1\]"),
        (lambda k, x: call(k.axpy, like(x))(2.0, x), "accepts these arguments|takes 4 arguments"),
        (
            lambda k, x: call(k.axpy, like(x))(x[0], x, x),
            "a is an array of JAX where the kernel takes float32 by value",
        ),
        (lambda k, x: call(k.axpy, [])(2.0, x, x), "result_shape_dtypes has none"),
        (lambda k, x: call(k.two, like(x), outputs=("w",))(x, x), "it has no parameter 'w'; it has x, y, z"),
        (lambda k, x: call(k.two, like(x), outputs="x")(x, x), "outputs is 'x'; name one parameter for each of the 1"),
        (lambda k, x: call(k.two, [like(x), like(x)], outputs=("x", "x"))(x), r"outputs is \('x', 'x'\); name one"),
        (lambda k, x: call(k.scale, like(x), input_output_aliases={1: 0})(x, 3.0), "there is no such array"),
        (lambda k, x: call(k.scale, like(x), input_output_aliases={0: 1})(x, 3.0), "there is no such result"),
        (
            lambda k, x: call(k.scale, jax.ShapeDtypeStruct((5,), x.dtype), input_output_aliases={0: 0})(x, 3.0),
            r"argument 0 is float32\[4\], and result 0, its alias, is float32\[5\]",
        ),
        (lambda k, x: call(k.axpy, like(x), vmap_method="expand_dims"), "vmap_method is 'expand_dims'"),
    ],
)
def test_wrong_arguments_and_options_are_refused(kernels, make, message):
    with pytest.raises(ArgumentError, match=message):
        jax.eval_shape(lambda x: make(kernels, x), X)


@pytest.mark.parametrize("options", [{"grid": None}, {"forall": 4}, {"block": None}])
def test_grid_and_forall_exclude_each_other(kernels, options):
    with pytest.raises(LaunchError, match="either grid= and block=, or forall="):
        call(kernels.axpy, like(X), **options)


def test_batches_are_refused_or_sequential(kernels):
    def scaled(x, method=None):
        return call(kernels.scale, like(x), input_output_aliases={0: 0}, vmap_method=method)(x, 3.0)

    batch = np.zeros((3, 4), "float32")
    with pytest.raises(NotImplementedError, match="vmap_method"):
        jax.eval_shape(jax.vmap(scaled), batch)
    assert jax.eval_shape(jax.vmap(lambda x: scaled(x, "sequential")), batch).shape == (3, 4)


def test_dtypes_have_the_names_of_signatures():
    names = [aotcuda.jax._typestr(jnp.zeros(1, dtype).dtype) for dtype in ("float32", "bool", "bfloat16", "complex64")]
    assert names == ["<f4", "|b1", "bfloat16", "<c8"]
