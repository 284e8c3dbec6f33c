"""The operators of pylops that have kernels of their own, forward and adjoint."""

import cupy as cp
import numpy as np
import pylops
from pylops.waveeqprocessing import Kirchhoff


def apply(operator):
    operator.H @ (operator @ cp.ones(operator.shape[1], dtype=operator.dtype))


def filters(*shape):
    return cp.ones(shape, dtype=np.float32)


t, x, p = (np.arange(n, dtype=np.float32) for n in (16, 16, 16))  # fewer make an empty grid
apply(pylops.signalprocessing.FourierRadon2D(t, x, p, 16, engine="cuda", dtype="float32"))
apply(pylops.signalprocessing.FourierRadon3D(t, x, x, p, p, 16, engine="cuda", dtype="float32"))
apply(
    pylops.signalprocessing.NonStationaryConvolve2D(
        (16, 16), filters(2, 2, 3, 3), (4, 8), (4, 8), engine="cuda", dtype="float32"
    )
)
apply(
    pylops.signalprocessing.NonStationaryConvolve3D(
        (8, 8, 8), filters(2, 2, 2, 3, 3, 3), (2, 4), (2, 4), (2, 4), engine="cuda", dtype="float32"
    )
)
place = np.vstack([np.linspace(10, 60, 4), np.zeros(4)])
for dynamic in (False, True):
    wave = np.ones(5, np.float32)
    apply(
        Kirchhoff(
            x * 10,
            x * 10,
            t,
            place,
            place,
            1000.0,
            wave,
            2,
            mode="analytic",
            engine="cuda",
            dynamic=dynamic,
            dtype="float32",
        )
    )
