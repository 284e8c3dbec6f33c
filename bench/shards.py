"""Compare builds on many machines (shards and their merge, two Dask workers) with one build on one core.

    python bench/shards.py [--kernels 500] [--shards 8] [--dask 0] [--runs 1] [--out FILE]

Everything runs on one core each (`taskset`), with a build cache that is empty before. For each way the seconds of
processor time and of the clock are measured, and the files are compared byte by byte. With --dask RUNS, a scheduler and
two workers of one core each are started, and the same build with that executor takes turns with one build on one core;
it needs three cores that are otherwise idle, or two and some patience: the client waits while the workers compile.

On a quiet machine 500 kernels in 8 shards take about four minutes.

`bench/shards_model.py` predicts builds on more machines from these figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import projects

if TYPE_CHECKING:
    from collections.abc import Iterator

AOTCUDA = (sys.executable, "-m", "aotcuda", "build")


def run_timed(command: tuple[str, ...], folder: Path, core: int, **environ: str) -> dict[str, float]:
    """Run a command on one core; return the processor time of its processes, and the time of the clock, in seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        cwd=folder,
        env={**os.environ, "AOTCUDA_PROGRESS": "0", **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    err = process.stderr.read().decode() if process.stderr else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}\n{err}")
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "s": round(time.perf_counter() - start, 2)}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def size(cache: Path) -> dict[str, int]:
    found = [path.stat().st_size for path in cache.rglob("*") if path.is_file()]
    return {"files": len(found), "bytes": sum(found)}


def shards(project: Path, work: Path, number: int) -> dict[str, Any]:
    """Run one build, the shards and the merge; compare their files."""
    core = min(os.sched_getaffinity(0))
    one = run_timed((*AOTCUDA, "--out", str(work / "one")), project, core, AOTCUDA_BUILD_CACHE=str(work / "cache_one"))
    cache = work / "cache"
    parts = [
        run_timed((*AOTCUDA, "--shard", f"{index}/{number}"), project, core, AOTCUDA_BUILD_CACHE=str(cache))
        for index in range(1, number + 1)
    ]
    sizes = size(cache)
    options = ("--from-cache-only", "--out", str(work / "merged"), "--report", str(work / "report.json"))
    merge = run_timed((*AOTCUDA, *options), project, core, AOTCUDA_BUILD_CACHE=str(cache))
    units = json.loads((work / "report.json").read_bytes())["units"]
    total = sum(part["cpu_s"] for part in parts) + merge["cpu_s"]
    return {
        "one": one,
        "shards": parts,
        "merge": merge,
        "cache": sizes,
        "ratio": round(total / one["cpu_s"], 3),
        "identical": files(work / "one") == files(work / "merged"),
        "unit_s": [round(unit["seconds"], 3) for unit in units],
    }


def processor_time(process: subprocess.Popen[Any]) -> float:
    """Return the processor time of a process and its ended children in seconds, by proc_pid_stat(5)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[Any]]]]:
    """Start a scheduler and two workers of one core each; yield the scheduler's address, and the workers."""
    cores = sorted(os.sched_getaffinity(0))
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
        ],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    started = [scheduler]
    try:
        lines = scheduler.stderr or ()
        address = next((found[1] for line in lines if (found := re.search(r"tcp://(127\.0\.0\.1:\d+)", line))), "")
        if not address:
            sys.exit("the scheduler ended before it had an address")
        for core in cores[:2]:
            command = (sys.executable, "-m", "distributed.cli.dask_worker", address)
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder))
            started.append(
                subprocess.Popen(
                    ["taskset", "-c", str(core), *command, *options], stderr=subprocess.DEVNULL, cwd=folder
                )
            )
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def dask(project: Path, work: Path, runs: int) -> list[dict[str, Any]]:
    """Run builds on one core and by two Dask workers, in turn."""
    core = min(os.sched_getaffinity(0))
    results = []
    with cluster(work) as (address, workers):
        for run in range(runs):
            folder = work / f"run{run}"
            one = run_timed(
                (*AOTCUDA, "--out", str(folder / "one")), project, core, AOTCUDA_BUILD_CACHE=str(folder / "a")
            )
            before = list(map(processor_time, workers))
            two: dict[str, Any] = run_timed(
                (*AOTCUDA, "--out", str(folder / "two")),
                project,
                core,
                AOTCUDA_BUILD_CACHE=str(folder / "b"),
                AOTCUDA_EXECUTOR=f"dask://{address}",
            )
            two["workers_cpu_s"] = [
                round(processor_time(worker) - start, 2) for worker, start in zip(workers, before, strict=True)
            ]
            # Without waiting for a core that others use: the workers side by side, then the client.
            by_cpu = one["cpu_s"] / (max(two["workers_cpu_s"]) + two["cpu_s"])
            same = files(folder / "one") == files(folder / "two")
            times = {"times": round(one["s"] / two["s"], 2), "times_by_cpu": round(by_cpu, 2)}
            results.append({"one": one, "two_workers": two, **times, "identical": same})
    return results


def main() -> None:
    parser = machine.parser(__doc__, "shards")
    parser.add_argument("--kernels", type=int, default=500)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--dask", type=int, default=0, metavar="RUNS")
    arguments = parser.parse_args()
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    machine.write_bytecode(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        project = projects.generate(Path(folder), "pkg", arguments.kernels)
        before = {"kernels": arguments.kernels, "targets": len(projects.ARCHS)}
        for run in range(arguments.runs):
            work = Path(folder, f"shards{run}")
            result = {**before, "machine": machine.describe(), **shards(project, work, arguments.shards)}
            found.setdefault("shards", []).append(result)
            shutil.rmtree(work)
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if arguments.dask:
            work = Path(folder, "dask")
            work.mkdir()
            result = {**before, "machine": machine.describe(), "runs": dask(project, work, arguments.dask)}
            found.setdefault("dask", []).append(result)
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
