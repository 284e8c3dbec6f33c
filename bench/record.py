"""Measure what `aotcuda record` adds to a launch: microseconds of host time, with the recorder and without.

Of Numba-CUDA where there is a GPU, else on a stand-in driver if `--driver FOLDER` names one (it takes launches and runs
nothing); of Numba's simulator with `--simulator`. The two kinds of process take turns; the figures are medians.

    python bench/record.py [--frontend numba_cuda_mlir] [--simulator | --driver FOLDER] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

from aotcuda.tools.record import collect, process

KERNEL = """
import json, sys, time
import numpy as np
from {package} import cuda

@cuda.jit
def axpy(a, x, y, out):
    pass

arrays = [np.zeros(4, np.float32) for _ in range(3)]
arrays = arrays if {simulator} else [cuda.to_device(array) for array in arrays]
launcher = axpy[1, 1]
for _ in range(100):
    launcher(2.0, *arrays)
times = []
for _ in range({repeats}):
    begin = time.process_time()
    for _ in range({number}):
        launcher(2.0, *arrays)
    times.append((time.process_time() - begin) / {number} * 1e6)
    cuda.synchronize()
print(json.dumps(sorted(times)[len(times) // 2]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frontend", default="numba", choices=["numba", "numba_cuda_mlir"])
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--simulator", action="store_true")
    way.add_argument("--driver", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    number, repeats = (100, 20) if arguments.simulator else (500, 100)
    code = KERNEL.format(package=arguments.frontend, simulator=arguments.simulator, number=number, repeats=repeats)
    environ = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1" if arguments.simulator else "0"}
    if arguments.driver:
        environ["LD_LIBRARY_PATH"] = str(arguments.driver)
    times: dict[str, list[float]] = {"plain": [], "recorded": []}
    counted = 0
    for _ in range(arguments.rounds):
        times["plain"].append(measure(code, environ))
        with tempfile.TemporaryDirectory() as folder:
            recording = {"PYTHONPATH": str(Path(process.__file__).parent / "inject"), "AOTCUDA_RECORD_FOLDER": folder}
            times["recorded"].append(measure(code, environ | recording))
            counted = sum(record.count for record in collect.read(Path(folder), Path("/")).records)
    assert counted == 100 + number * repeats, f"{counted} launches were counted"
    least = {name: min(values) for name, values in times.items()}
    result = {
        "machine": machine.describe(),
        "frontend": arguments.frontend,
        "on": "simulator" if arguments.simulator else "stand-in driver" if arguments.driver else "GPU",
        "unit": "microseconds of processor time for a launch of 1 scalar and 3 arrays",
        "plain": round(least["plain"], 2),
        "recorded": round(least["recorded"], 2),
        "added": round(least["recorded"] - least["plain"], 2),
        "rounds": {name: [round(value, 2) for value in values] for name, values in times.items()},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def measure(code: str, environ: dict[str, str]) -> float:
    """Return the median time of a launch in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return float(json.loads(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    main()
