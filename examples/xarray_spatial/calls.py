#!/usr/bin/env python3
"""Call every function of xarray-spatial that launches a kernel, on CuPy's arrays or on a stand-in's.

`aotcuda record` records this program. `verify.py` makes the same calls with the wheel.
"""

from __future__ import annotations

import argparse
from typing import Any

import cupy
import numpy as np
import xarray as xr
import xrspatial as xs
from xrspatial import classify, focal, multispectral
from xrspatial.convolution import circle_kernel, convolution_2d
from xrspatial.gpu_rtx.hillshade import hillshade_rtx
from xrspatial.gpu_rtx.viewshed import viewshed_gpu

SHAPE = (500, 700)


def raster(shape: tuple[int, int], dtype: str = "float32", seed: int = 0) -> Any:
    """Return a terrain with hills, on the GPU."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    hills = 100 * np.sin(x / 40) * np.cos(y / 30) + np.random.default_rng(seed).normal(200, 5, shape)
    coordinates = {"y": np.linspace(45, 44, shape[0]), "x": np.linspace(7, 8, shape[1])}
    return xr.DataArray(cupy.asarray(hills.astype(dtype)), coordinates, ["y", "x"], attrs={"res": (1.0, 1.0)})


def surface(shape: tuple[int, int]) -> None:
    """Compute slope, aspect, curvature, hillshade and noise."""
    for dtype in ("float32", "float64", "int32"):
        for function in (xs.slope, xs.aspect, xs.curvature, xs.hillshade):
            function(raster(shape, dtype))
    for function in (xs.slope, xs.aspect):
        function(raster(shape), method="geodesic")
    xs.perlin(raster(shape))


def classes(shape: tuple[int, int]) -> None:
    """Classify cells."""
    classify.binary(raster(shape, "int32"), [200, 201, 202])
    classify.reclassify(raster(shape), [100, 200, 300], [1, 2, 3])
    classify.reclassify(raster(shape, "float64"), [100.0, 200.0, 300.0], [1, 2, 3])
    classify.equal_interval(raster(shape), 5)


def neighbours(shape: tuple[int, int]) -> None:
    """Compute each cell from the cells around it."""
    kernel = circle_kernel(1, 1, 2)
    convolution_2d(raster(shape), kernel)
    focal.mean(raster(shape))
    focal.focal_stats(raster(shape), kernel)
    focal.hotspots(raster(shape), kernel)


def bands(shape: tuple[int, int]) -> None:
    """Compute indices from the bands of a satellite's picture."""
    one, two, three = (raster(shape, seed=seed) for seed in (1, 2, 3))
    for function in (multispectral.arvi, multispectral.evi, multispectral.sipi, multispectral.ebbi):
        function(one, two, three)
    for function in (multispectral.gci, multispectral.ndvi, multispectral.savi):
        function(one, two)


def tracing(shape: tuple[int, int]) -> None:
    """Launch the kernels before and after rays are traced; a stand-in traces them."""
    hillshade_rtx(raster(shape), 225, 25, shadows=True)
    viewshed_gpu(raster(shape), x=7.5, y=44.5, observer_elev=5, target_elev=0)


EVERY = (surface, classes, neighbours, bands, tracing)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=2, default=SHAPE, metavar=("ROWS", "COLUMNS"))
    arguments = parser.parse_args()
    for function in EVERY:
        function(tuple(arguments.shape))
