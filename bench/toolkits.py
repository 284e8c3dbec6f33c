"""The same kernels as different toolkits built them, loaded and run on one GPU: they must give the same numbers.

    python bench/toolkits.py build FOLDER      # in one environment for each of the extras cu12, cu13 and wide
    python bench/toolkits.py run FOLDER        # on a machine with a GPU, with CuPy

`build` adds a folder for each thing that the environment's toolkits can make: machine code for the H200 by each, PTX
by each, and the whole list of targets where there are two. `run` starts a process for each. All numbers are small
integers, so results are exact, and are held against NumPy's besides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import machine

KERNELS = Path(__file__).parent / "kernels"
ALL = "sm_75;sm_80;sm_86;sm_87;sm_88;sm_89;sm_90;sm_100;sm_103;sm_110;sm_120;sm_121;compute_75"


def build(folder: Path) -> None:
    """Build what the installed toolkits make; imported here, since a machine with a GPU has no compiler."""
    from aotcuda.builder import build_command, toolkits

    found = toolkits.installed()
    made = {
        f"{kind}-{one.cuda[0]}.{one.cuda[1]}-linked-{one.linker[0]}.{one.linker[1]}": (target, (one,))
        for one in found
        for kind, target in (("code", "sm_90"), ("ptx", "compute_75"))
    }
    if len(found) > 1:
        made["all"] = (ALL, found)
    for name, (arch, used) in made.items():
        toolkits.installed = lambda used=used: used
        os.environ["AOTCUDA_ARCH"] = arch
        build_command.build_project(KERNELS, folder / name)
        print(name, flush=True)


def run(folder: Path) -> dict[str, Any]:
    """Return what each of the folders gives."""
    results = {}
    for path in sorted(item for item in folder.iterdir() if item.is_dir()):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, __file__, "one", str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        results[path.name] = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-2000:]}
    return results


def one() -> dict[str, Any]:
    """Return the results of the package that is on the path, in this process."""
    import cupy
    import numpy as np

    started = time.perf_counter()
    import benchkernels.kernels as k

    imported = time.perf_counter() - started
    digests: dict[str, str] = {}

    def note(name: str, found: Any, expected: Any) -> None:
        got = cupy.asnumpy(found)
        assert np.array_equal(got, expected), f"{name} differs from NumPy"
        digests[name] = hashlib.sha256(got.tobytes()).hexdigest()

    n = 100_003
    for dtype in ("int8", "int32", "uint64", "complex64", "float64", "float32"):
        x, y = (np.arange(n) % 11).astype(dtype), (np.arange(n) % 7).astype(dtype)
        out = cupy.zeros(n, dtype)
        k.axpy_many.forall(n)(np.dtype(dtype).type(3), cupy.asarray(x), cupy.asarray(y), out)
        note(f"axpy {dtype}", out, (3 * x.astype(dtype) + y).astype(dtype))
    a, b = ((np.arange(128 * 128).reshape(128, 128) % prime).astype("float32") for prime in (5, 3))
    c = cupy.zeros((128, 128), "float32")
    k.matmul[(8, 8), (16, 16)](cupy.asarray(a), cupy.asarray(b), c)
    note("matmul", c, a @ b)
    total = cupy.zeros(1, "float32")
    k.total[64, 256](cupy.asarray((np.arange(n) % 4).astype("float32")), total)
    note("total", total, np.array([(np.arange(n) % 4).sum()], "float32"))
    grid = (4 * (np.arange(64 * 64).reshape(64, 64) % 9)).astype("float32")
    out = cupy.zeros_like(cupy.asarray(grid))
    k.stencil[(4, 4), (16, 16)](cupy.asarray(grid), out)
    expected = np.zeros_like(grid)
    expected[1:-1, 1:-1] = (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]) / 4
    note("stencil", out, expected)
    tiers = k.__aotcuda__.tiers
    choice = next(iter(tiers.values()))
    return {"taken": repr(choice)[:300], "import_ms": round(imported * 1000, 1), "digests": digests}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "one"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "build":
        build(arguments.folder.resolve())
        return
    if arguments.what == "one":
        print(json.dumps(one()))
        return
    results = run(arguments.folder.resolve())
    digests = [tuple(found.get("digests", {"failed": name}).items()) for name, found in results.items()]
    report = {**machine.describe(), "all_equal": len(set(digests)) == 1, "results": results}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(not report["all_equal"])


if __name__ == "__main__":
    main()
