"""Compare builds on many workers with one build, by a model of the jobs that `bench/shards.py` has measured.

    python bench/shards_model.py [--kernels 10000] [--bandwidth 1e8] [--schedule 0.001] [--out FILE]

A job takes a fixed time (Python, the compiler, the sources) and a time for each kernel, and the merge does too. The
times are fitted to runs with different numbers of kernels. Kernels have the measured distribution of costs,
and are divided among jobs as aotcuda divides them: groups, the most expensive first. All entries go to one machine over
a network of BANDWIDTH bytes a second, a scheduler takes SCHEDULE seconds for each job, and the merge runs there on one
core. Workers are as fast as the measured core, and do nothing else.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import machine

WORKERS = (1, 8, 64, 512)
GROUP = 5
"""The average number of kernels in a group."""


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the fixed part and the slope of the line through the points, by least squares."""
    count = len(points)
    mean_x, mean_y = (sum(values) / count for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def fit(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the fixed seconds and those of a kernel, of jobs and of the merge."""
    jobs, merges, sizes = [], [], []
    for run in runs:
        jobs.append((run["kernels"], run["one"]["cpu_s"]))
        each = run["kernels"] / len(run["shards"])
        jobs += [(each, sum(part["cpu_s"] for part in run["shards"]) / len(run["shards"]))]
        merges.append((run["kernels"], run["merge"]["cpu_s"]))
        sizes.append((run["kernels"], run["cache"]["bytes"]))
    job_fixed, job_kernel = line(jobs)
    merge_fixed, merge_kernel = line(merges)
    return {
        "job_fixed_s": round(job_fixed, 3),
        "job_kernel_s": round(job_kernel, 4),
        "merge_fixed_s": round(merge_fixed, 3),
        "merge_kernel_s": round(merge_kernel, 5),
        "kernel_bytes": round(sizes[-1][1] / sizes[-1][0]),
    }


def predict(
    figures: dict[str, float], costs: list[float], workers: int, bandwidth: float, schedule: float
) -> dict[str, float]:
    """Return the seconds of each part of a build with so many workers, and of the whole."""
    groups = sorted((sum(costs[at : at + GROUP]) for at in range(0, len(costs), GROUP)), reverse=True)
    count = 1 if workers == 1 else min(2 * workers, len(groups))
    loads = [0.0] * count
    for group in groups:
        least = loads.index(min(loads))
        loads[least] += group
    jobs = sorted((figures["job_fixed_s"] + load for load in loads), reverse=True)
    busy = [0.0] * workers
    for job in jobs:
        least = busy.index(min(busy))
        busy[least] += job
    compile_seconds = max(busy)
    transfer = figures["kernel_bytes"] * len(costs) / bandwidth if workers > 1 else 0.0
    merge = figures["merge_fixed_s"] + figures["merge_kernel_s"] * len(costs) if workers > 1 else 0.0
    parts = {
        "jobs": count,
        "compile_s": round(compile_seconds, 1),
        "of it starting_s": round(figures["job_fixed_s"] * count / workers, 1),
        "schedule_s": round(schedule * count, 1),
        "transfer_s": round(transfer, 1),
        "merge_s": round(merge, 1),
    }
    total = compile_seconds + schedule * count + transfer + merge
    return {**parts, "whole_s": round(total, 1)}


def main() -> None:
    parser = machine.parser(__doc__, "shards_model")
    parser.add_argument("--kernels", type=int, nargs="+", default=[500, 10000])
    parser.add_argument("--bandwidth", type=float, default=1e8)
    parser.add_argument("--schedule", type=float, default=0.001)
    parser.add_argument("--measured", type=Path, default=machine.RESULTS / "shards.json")
    arguments = parser.parse_args()
    runs = json.loads(arguments.measured.read_bytes())["shards"]
    figures = fit(runs)
    found: dict[str, Any] = {
        "measured": {"kernels": [run["kernels"] for run in runs], "targets": runs[0]["targets"], **figures},
        "assumed": {"bandwidth": arguments.bandwidth, "schedule_s": arguments.schedule},
    }
    shape = next(run["unit_s"] for run in reversed(runs) if run.get("unit_s"))
    mean = sum(shape) / len(shape)
    pick = random.Random(0)
    for kernels in arguments.kernels:
        costs = [pick.choice(shape) / mean * figures["job_kernel_s"] for _ in range(kernels)]
        rows = {}
        for workers in WORKERS:
            row = predict(figures, costs, workers, arguments.bandwidth, arguments.schedule)
            first = rows[1]["whole_s"] if rows else row["whole_s"]
            rows[workers] = {**row, "times": round(first / row["whole_s"], 1)}
        found[f"{kernels} kernels"] = rows
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
