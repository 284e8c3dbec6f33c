"""Test a packaged kernel that calls a device function of nvmath-python; the launch needs no nvmath-python."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")


def test_fourier_transform_by_cufftdx(packaged):
    kernels = packaged("mathdx", "mathdx.kernels")
    values = np.random.default_rng(1).standard_normal((10, 128, 2)).astype("float32")
    x = values.view("complex64")[..., 0]
    out = cupy.zeros(x.shape, "complex64")
    kernels.transform[10, 64](cupy.asarray(x), out)
    np.testing.assert_allclose(out.get(), np.fft.fft(x.astype("complex128")), rtol=1e-4, atol=1e-4)
    assert "nvmath" not in sys.modules
