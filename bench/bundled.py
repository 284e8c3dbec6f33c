"""Launch two packages with bundled run times on a GPU, beside older and newer installed versions of aotcuda.

`build` makes the packages of `tests/integration/test_bundled.py`, whose run times have different versions, and copies
of aotcuda under other versions; it needs no GPU. `run` launches them with CuPy's arrays in every pair of versions,
checks the numbers and the run time that served, and compares times: the import of a package and a launch, bundled and
installed, with a prepared call of the driver by ctypes.

    python bench/bundled.py build /tmp/bundled
    python bench/bundled.py run /tmp/bundled        # with a GPU and CuPy
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from statistics import median

import machine

ROOT = Path(__file__).resolve().parents[1]
OWN = ("first._aotcuda", "second._aotcuda")
INSTALLED = ("aotcuda", "aotcuda")
PAIRS = {
    "none": ("", OWN),
    "0.0.9": ("", OWN),
    "9.0": ("", INSTALLED),
    "9.0, AOTCUDA_RUNTIME=bundled": ("bundled", OWN),
    "9.0, AOTCUDA_RUNTIME=installed": ("installed", INSTALLED),
}
"""The installed version, the variable, and the run times that serve the two packages."""

_LAUNCH = """
import json
import sys
import cupy
import numpy as np
from importlib import import_module
served = []
for name in ("first", "second"):
    kernels, solver = import_module(f"{name}.kernels"), import_module(f"{name}.solver")
    x = cupy.arange(32, dtype="f4")
    kernels.twice[1, 32](x)
    assert (x.get() == 2 * np.arange(32)).all()
    solver.solve(x)
    assert (x.get() == np.arange(32)).all()
    errors = import_module(f"{name}._aotcuda.errors")
    try:
        kernels.twice[1, 32]("no array")
    except errors.ArgumentError:
        pass
    else:
        raise SystemExit("a string was launched")
    served.append(type(kernels.__aotcuda__).__module__.rpartition(".runtime")[0])
print(json.dumps(served))
"""
_TIMES = """
import ctypes, json, time
import cupy
x = cupy.zeros(32, "f4")
start = time.perf_counter()
import first.kernels as kernels
imported = time.perf_counter() - start
run = kernels.twice[1, 32]
run(x)
table = kernels.twice._loader.current.table("twice").overloads[0]
kernel, block = table.kernels[0].kernel, ctypes.create_string_buffer(64)
_, slot, *_ = kernels.twice._loader.current.select("twice", (x,), 0)
size = ctypes.c_size_t(table.size)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(slot.buffer), 2, ctypes.addressof(size), 0)
launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
def prepared():
    launch(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, extra)
def batch(call):
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    for _ in range(256):
        call()
    return (time.perf_counter() - start) / 256 * 1e6
ours, theirs = (min(times) for times in zip(*[(batch(lambda: run(x)), batch(prepared)) for _ in range(25)]))
print(json.dumps({"import_ms": imported * 1e3, "launch_us": ours, "ctypes_us": theirs}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=machine.RESULTS / "bundled.json")
    arguments = parser.parse_args()
    if arguments.step == "build":
        return build(arguments.folder.resolve())
    return run(arguments.folder.resolve(), arguments.out)


def build(folder: Path) -> int:
    """Make the packages and the other versions of aotcuda."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import aotcuda
    from integration import test_bundled

    site = folder / "site"
    for name in ("first", "second"):
        project = test_bundled.make(folder / name, name)
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(project)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        zipfile.ZipFile(next((project / "dist").glob("*.whl"))).extractall(site)
    test_bundled.rename_version(site / "second" / "_aotcuda", aotcuda.__version__, "0.9.0")
    for version in ("0.0.9", "9.0"):
        test_bundled.installed(folder / version, version)
    return 0


def run(folder: Path, out: Path) -> int:
    """Launch in every pair, compare times, and write what was seen."""
    site, failed = folder / "site", 0
    pairs = {}
    for name, (wanted, expected) in PAIRS.items():
        version = name.partition(",")[0]
        done = _python(_LAUNCH, site, *([] if version == "none" else [folder / version]), AOTCUDA_RUNTIME=wanted)
        served = json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]
        pairs[name] = {"served": served, "right": served == [*expected]}
        failed += not pairs[name]["right"]
        print(f"installed: {name}: {served}")
    times = {}
    for way, paths in (("bundled", [site]), ("installed, with the extension", [site, ROOT])):
        wanted = "bundled" if way == "bundled" else "installed"
        seen = [json.loads(_python(_TIMES, *paths, AOTCUDA_RUNTIME=wanted).stdout) for _ in range(5)]
        times[way] = {key: round(median(one[key] for one in seen), 2) for key in seen[0]}
        print(way, times[way])
    wheel = next((folder / "first" / "dist").glob("*.whl"))
    items = [item for item in zipfile.ZipFile(wheel).infolist() if "/_aotcuda/" in item.filename]
    size = sum(item.compress_size for item in items)
    machine.write(out, machine.describe(), pairs=pairs, times=times, wheel_bytes=size)
    return 1 if failed else 0


def _python(code: str, *paths: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **environ}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
