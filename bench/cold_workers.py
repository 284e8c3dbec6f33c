"""Cold workers of Dask that all want a kernel which has to be compiled first: one compiles it, and the others wait.

The wheel of examples/quickstart is built for sm_75 and sm_80, so a GPU of another major version finds no image. Each
worker is a new process, and has nothing but the cache of the fallback, which is empty at the start. Every worker is
sent the kernel, launches it, and then launches it a thousand times more.

    python bench/cold_workers.py                   # with a GPU, aotcuda[cu13] and dask.distributed
    python bench/cold_workers.py --stand-in        # with the tests' stand-in for the driver, which launches nothing
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

import machine

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import json, sys, time


def work(axpy):
    import ctypes, os, sys, time, warnings

    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    assert not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0)
    assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 16))
    interface = {"version": 3, "data": (memory.value, False), "shape": (1000,), "typestr": "<f4", "strides": None}
    array = type("Array", (), {"__cuda_array_interface__": interface})()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axpy[8, 128](2.0, array, array, array)
    first = time.perf_counter() - begin
    launch = axpy[8, 128]
    begin = time.perf_counter()
    for _ in range(1000):
        launch(2.0, array, array, array)
    later = (time.perf_counter() - begin) / 1000
    compiled = "aotcuda.builder.jit" in sys.modules
    return {"pid": os.getpid(), "first": first, "later": later, "compiled": compiled}


if __name__ == "__main__":
    from dask.distributed import Client, LocalCluster

    import quickstart.kernels as k

    count = int(sys.argv[1])
    with LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.wait_for_workers(count)
            names = list(client.scheduler_info(n_workers=-1)["workers"])
            begin = time.perf_counter()
            tasks = [client.submit(work, k.axpy, workers=[name], pure=False) for name in names]
            found = client.gather(tasks)
            print(json.dumps({"seconds": time.perf_counter() - begin, "workers": found}))
"""


def main() -> int:
    parser = machine.parser(__doc__, "cold_workers")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--wheel", type=Path, help="quickstart's, built elsewhere with AOTCUDA_ARCH='sm_75;sm_80'")
    parser.add_argument("--stand-in", action="store_true", help="the tests' stand-in for the driver")
    arguments = parser.parse_args()
    here = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        found = _run(Path(folder), arguments.workers, arguments.wheel, stand_in=arguments.stand_in)
    workers: list[dict[str, Any]] = found["workers"]
    compiled = sum(worker["compiled"] for worker in workers)
    first = sorted(worker["first"] for worker in workers)
    later = sorted(worker["later"] * 1e6 for worker in workers)
    machine.table(
        ("", "least", "median", "most"),
        [
            ("first launch, s", first[0], median(first), first[-1]),
            ("later launches, us", later[0], median(later), later[-1]),
        ],
    )
    processes = len({worker["pid"] for worker in workers})
    print(
        f"{processes} processes, {compiled} of them compiled, {found['seconds']:.1f} s from the first task to the last"
    )
    met = {
        f"{arguments.workers} processes": processes == arguments.workers,
        "one compilation": compiled == 1,
    }
    machine.verdicts(met, {})
    machine.write(
        arguments.out,
        here,
        stand_in=arguments.stand_in,
        workers=processes,
        compilations=compiled,
        seconds=round(found["seconds"], 2),
        first_launch_seconds=machine.summary(first),
        later_launch_microseconds=machine.summary(later),
        measures=met,
    )
    return 0 if all(met.values()) else 1


def _build(folder: Path) -> Path:
    """Return the wheel, in `folder`."""
    environment = {**os.environ, "AOTCUDA_ARCH": "sm_75;sm_80"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    command += ["--outdir", str(folder), str(_ROOT / "examples" / "quickstart")]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _run(folder: Path, workers: int, wheel: Path | None, *, stand_in: bool) -> Any:
    """Return the program's output, in an environment with an empty cache and the wheel."""
    import json

    zipfile.ZipFile(wheel or _build(folder)).extractall(folder / "site")
    program = folder / "program.py"
    program.write_text(_PROGRAM)
    environment = {
        **os.environ,
        "AOTCUDA_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        "DASK_DISTRIBUTED__WORKER__DAEMON": "true",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "600s",
    }
    if stand_in:
        source = _ROOT / "tests" / "support" / "fake_libcuda.c"
        library = folder / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-lpthread"], check=True)
        environment |= {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_LOG": os.devnull}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, program, str(workers)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    print(f"with the start of the workers {time.perf_counter() - begin:.1f} s")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    raise SystemExit(main())
