"""Launches in Dask's workers: separate processes, which have the package and receive the kernel."""

from __future__ import annotations

import pytest

from support.manifests import kernel

PROGRAM = """
import os

from dask.distributed import Client, LocalCluster


class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}


def launch(axpy, number):
    axpy[1, 32](number, Array())
    return os.getpid()


def launch_elsewhere(launcher):
    launcher(2.0, Array())


if __name__ == "__main__":
    import mypkg.kernels as k

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        workers = list(client.scheduler_info()["workers"])
        pids = [client.submit(launch, k.axpy, 2.0, workers=[name], pure=False).result() for name in workers * 2]
        print(len({*pids}), os.getpid() in pids)
        try:
            client.submit(launch_elsewhere, k.axpy[1, 32], pure=False).result()
        except TypeError as error:
            print("refused" if "send the kernel" in f"{error} {error.__cause__} {error.__context__}" else error)
"""


@pytest.mark.needs("distributed")
def test_workers_launch_kernels_that_are_sent_to_them(cuda, tmp_path):
    cuda.package(kernel("axpy", "void(float32, float32[::1])"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code = f"import site; site.main(); import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    shown = cuda.run(code, DASK_DISTRIBUTED__WORKER__DAEMON="true")
    assert shown.splitlines()[:2] == ["2 False", "refused"]
    assert len(cuda.launches()) == 4
