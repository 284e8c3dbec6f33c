"""Particles in a periodic box, moved by kernels in CUDA C++."""

import numpy as np

from particles import kernels

BOX = np.dtype([("low", "f4"), ("high", "f4")], align=True)


def push(position, velocity, dt, low=0.0, high=1.0):
    """Move particles for a time `dt`; both arrays are on the GPU, float32 of shape (n, 3)."""
    box = np.zeros((), BOX)
    box["low"], box["high"] = low, high
    kernels.push.forall(len(position))(position, velocity, dt, box[()])
