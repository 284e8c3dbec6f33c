"""Device functions of nvmath-python's in a packaged kernel, which was built where that is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")


def test_a_fourier_transform_by_cufftdx(installed):
    if not (installed / "mathdx").is_dir():
        pytest.skip("its wheel is not there: python tests/gpu/prepare.py FOLDER --nvmath")
    sys.path.insert(0, str(installed / "mathdx"))
    import mathdx.kernels

    values = np.random.default_rng(1).standard_normal((10, 128, 2)).astype("float32")
    x = values.view("complex64")[..., 0]
    out = cupy.zeros(x.shape, "complex64")
    mathdx.kernels.transform[10, 64](cupy.asarray(x), out)
    np.testing.assert_allclose(out.get(), np.fft.fft(x.astype("complex128")), rtol=1e-4, atol=1e-4)
    assert "nvmath" not in sys.modules
