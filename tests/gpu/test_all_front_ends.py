"""Test wheels with modules of several front ends that call each other's device functions, on a GPU."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

N = 10_000  # no multiple of the block
RATE = 0.75
X, Y = np.random.default_rng(17).normal(size=(2, N)).astype("float32")


@pytest.fixture(scope="module")
def k(packaged: Callable[[str, str], ModuleType]) -> Iterator[SimpleNamespace]:
    """Return the packaged modules; a test fails if importing or launching them compiles."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = ("blends", "curves", "rows", "steps", "sums", "trails")
        yield SimpleNamespace(**{name: packaged("all-front-ends", f"all_front_ends.{name}") for name in names})


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype("float64")))


def relaxed(x: np.ndarray) -> np.ndarray:
    return x - RATE * logistic(x)


def blended(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return relaxed(x) * y + relaxed(y) * x


def assert_close(out: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(cupy.asnumpy(out), expected, rtol=2e-5, atol=2e-6)


def test_cpp_alone(k: SimpleNamespace) -> None:
    x = cupy.asarray(X)
    k.curves.squash.forall(N)(x)
    assert_close(x, logistic(X))


def test_numba_cuda_calls_cpp(k: SimpleNamespace) -> None:
    x = cupy.asarray(X)
    k.steps.relax.forall(N)(RATE, x)
    assert_close(x, relaxed(X))


def test_numba_cuda_mlir_calls_numba_cuda(k: SimpleNamespace) -> None:
    out = cupy.zeros(N, "float32")
    k.blends.blend.forall(N)(RATE, cupy.asarray(X), cupy.asarray(Y), out)
    assert_close(out, blended(X, Y))


def test_numba_cuda_calls_numba_cuda_mlir(k: SimpleNamespace) -> None:
    out = cupy.zeros(N, "float32")
    k.trails.trail.forall(N)(RATE, cupy.asarray(X), out)
    assert_close(out, blended(X, np.ones(N, "float32")))


def test_cpp_calls_all_of_them(k: SimpleNamespace) -> None:
    out = cupy.zeros(N, "float32")
    k.sums.sums.forall(N)(RATE, cupy.asarray(X), cupy.asarray(Y), out)
    assert_close(out, logistic(X) + relaxed(X) + blended(X, Y))


@pytest.mark.parametrize("columns", [100, 1000])
def test_triton_gives_numbers_of_numpy(k: SimpleNamespace, columns: int) -> None:
    x = cupy.asarray(X).reshape(-1, columns)
    out = cupy.zeros_like(x)
    k.rows.softmax[(N // columns,)](x, out, columns)
    raised = np.exp(X.reshape(-1, columns).astype("float64"))
    assert_close(out, raised / raised.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def mixed(packaged: Callable[[str, str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Return a package with the modules `waves` by numba-cuda-mlir and `fields` by numba-cuda."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        for name in ("waves", "fields"):
            packaged("mixed", f"mixed.{name}")
        yield sys.modules["mixed"]


def reversed_blocks(x: np.ndarray) -> np.ndarray:
    """Return each number's counterpart at the other end of its block of 64."""
    return x.reshape(-1, 64)[:, ::-1].reshape(-1)


def test_shared_arrays_of_both_front_ends_are_apart(mixed: ModuleType) -> None:
    x = X[:6400]
    reversed_, differences = cupy.asarray(x), cupy.asarray(x)
    mixed.waves.reverse[100, 64](reversed_)
    mixed.fields.differences[100, 64](differences)
    np.testing.assert_array_equal(reversed_.get(), reversed_blocks(x))
    np.testing.assert_array_equal(differences.get(), x - 2 * reversed_blocks(x))


@pytest.mark.parametrize(("name", "kernel"), [("waves", "reverse"), ("fields", "differences")])
def test_fallback_uses_front_end_of_each_module(mixed: ModuleType, name: str, kernel: str) -> None:
    for package in ("lz4", "numba_cuda", "numba_cuda_mlir"):  # the module links packaged code of both, compressed
        pytest.importorskip(package)
    values = np.arange(6400, dtype="float64") % 1000
    x = cupy.asarray(values)
    module = getattr(mixed, name)
    with pytest.warns(match=rf"mixed\.{name}\.{kernel} for void\(float64\[::1\]\)"):
        module.__aotcuda__.kernels[kernel][100, 64](x)
    expected = reversed_blocks(values)
    np.testing.assert_array_equal(x.get(), expected if kernel == "reverse" else values - 2 * expected)
    assert module.__aotcuda__.tiers[kernel][-1].tier == "jit"
