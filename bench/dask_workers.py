"""Packaged kernels on many cold Dask workers at once: first and later launches, and how many of them compile.

Each worker is a process of its own that is sent the kernel and a cold import of everything. All launch the quickstart's
`axpy`: with packaged types, so that no worker compiles, and with types that no wheel has, so that one worker compiles
for all, into an empty cache, while the others wait for it.

    python -m build --wheel examples/quickstart && pip install examples/quickstart/dist/*.whl
    pip install 'aotcuda[jit-cu13]' distributed cupy-cuda13x
    python bench/dask_workers.py                      # on a machine with a GPU
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from statistics import median
from typing import Any

import machine

_WAYS = {"packaged types": "float32", "types that are compiled late": "int64"}
_LATER = 100


def main() -> int:
    parser = machine.parser(__doc__, "dask_workers")
    parser.add_argument("--workers", type=int, default=64)
    arguments = parser.parse_args()
    here = machine.describe()
    figures = {way: _cluster(arguments.workers, dtype) for way, dtype in _WAYS.items()}
    machine.table(
        ("", "workers", "compilations", "first, ms", "slowest", "later, us", "whole, s"),
        [
            (way, *(row[key] for key in ("workers", "compilations", "first", "slowest", "later", "seconds")))
            for way, row in figures.items()
        ],
    )
    wanted = dict(zip(_WAYS, (0, 1), strict=True))
    met = {f"{way}: {wanted[way]} compilations": row["compilations"] == wanted[way] for way, row in figures.items()}
    met |= {f"{way}: NumPy's numbers": row["right"] for way, row in figures.items()}
    machine.verdicts(met, {})
    machine.write(arguments.out, here, unit="ms of first launches, us of later ones", figures=figures, measures=met)
    return 0 if all(met.values()) else 1


def _cluster(workers: int, dtype: str) -> dict[str, Any]:
    """What that many fresh workers report, with a cache that is empty before."""
    distributed: Any = importlib.import_module("dask.distributed")  # it has no types
    with tempfile.TemporaryDirectory() as cache:
        os.environ["AOTCUDA_CACHE_DIR"] = cache  # workers inherit it
        options: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
        with (
            distributed.LocalCluster(**options, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            client.wait_for_workers(workers)
            names = list(client.scheduler_info(n_workers=-1)["workers"])
            begin = time.perf_counter()
            asked = [client.submit(_launch, dtype, workers=[name], pure=False) for name in names]
            found = client.gather(asked)
            seconds = time.perf_counter() - begin
    return {
        "workers": len({each["pid"] for each in found}),
        "compilations": sum(each["compiled"] for each in found),
        "right": all(each["right"] for each in found),
        "first": round(median(each["first"] for each in found), 2),
        "slowest": round(max(each["first"] for each in found), 2),
        "later": round(median(each["later"] for each in found), 2),
        "seconds": round(seconds, 2),
    }


def _launch(dtype: str) -> dict[str, Any]:
    """In a worker: import, launch once, then often."""
    import cupy  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    x, y = np.arange(1000).astype(dtype), (3 * np.arange(1000)).astype(dtype)
    arrays = cupy.asarray(x), cupy.asarray(y), cupy.asarray(np.zeros_like(x))
    cupy.cuda.runtime.deviceSynchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        import quickstart.kernels as k  # type: ignore[import-not-found, unused-ignore]

        k.axpy[8, 128](2, *arrays)
        cupy.cuda.runtime.deviceSynchronize()
        first = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(_LATER):
        k.axpy[8, 128](2, *arrays)
    later = (time.perf_counter() - begin) / _LATER
    cupy.cuda.runtime.deviceSynchronize()
    return {
        "pid": os.getpid(),
        "compiled": any(item.category.__name__ == "FallbackWarning" for item in caught),
        "right": bool(np.array_equal(arrays[2].get(), 2 * x + y)),
        "first": first * 1e3,
        "later": later * 1e6,
    }


if __name__ == "__main__":
    sys.exit(main())
