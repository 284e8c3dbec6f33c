"""One wheel with a module of each front end, whose device code calls that of the others, on a GPU against NumPy."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

N = 10_000  # no multiple of the block
RATE = 0.75
X, Y = np.random.default_rng(17).normal(size=(2, N)).astype("float32")


@pytest.fixture(scope="module")
def k(installed: Path) -> Iterator[SimpleNamespace]:
    """Return the packaged modules; importing and launching them compiles nothing."""
    if not (installed / "all-front-ends").is_dir():
        pytest.skip("there is no wheel all-front-ends: prepare.py builds it where all compilers are installed")
    sys.path.insert(0, str(installed / "all-front-ends"))
    import all_front_ends.blends
    import all_front_ends.curves
    import all_front_ends.rows
    import all_front_ends.steps
    import all_front_ends.sums
    import all_front_ends.trails

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield SimpleNamespace(
            **{name: getattr(all_front_ends, name) for name in vars(all_front_ends) if name[0] != "_"}
        )
    sys.path.remove(str(installed / "all-front-ends"))


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype("float64")))


def relaxed(x: np.ndarray) -> np.ndarray:
    return x - RATE * logistic(x)


def blended(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return relaxed(x) * y + relaxed(y) * x


def assert_close(out: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(cupy.asnumpy(out), expected, rtol=2e-5, atol=2e-6)


def test_c_plus_plus_alone(k: SimpleNamespace) -> None:
    x = cupy.asarray(X)
    k.curves.squash.forall(N)(x)
    assert_close(x, logistic(X))


def test_numba_cuda_calls_c_plus_plus(k: SimpleNamespace) -> None:
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


def test_c_plus_plus_calls_all_of_them(k: SimpleNamespace) -> None:
    out = cupy.zeros(N, "float32")
    k.sums.sums.forall(N)(RATE, cupy.asarray(X), cupy.asarray(Y), out)
    assert_close(out, logistic(X) + relaxed(X) + blended(X, Y))


@pytest.mark.parametrize("columns", [100, 1000])
def test_triton_beside_them(k: SimpleNamespace, columns: int) -> None:
    x = cupy.asarray(X).reshape(-1, columns)
    out = cupy.zeros_like(x)
    k.rows.softmax[(N // columns,)](x, out, columns)
    raised = np.exp(X.reshape(-1, columns).astype("float64"))
    assert_close(out, raised / raised.sum(axis=1, keepdims=True))


def test_kernels_of_all_take_turns_on_one_array(k: SimpleNamespace) -> None:
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    expected = X
    for _ in range(3):
        k.curves.squash.forall(N)(x)
        k.steps.relax.forall(N)(RATE, x)
        k.blends.blend.forall(N)(RATE, x, x, out)
        k.rows.softmax[(10,)](out, x, 1000)
        expected = relaxed(logistic(expected))
        raised = np.exp(blended(expected, expected).reshape(10, 1000))
        expected = (raised / raised.sum(axis=1, keepdims=True)).ravel()
    assert_close(x, expected)
