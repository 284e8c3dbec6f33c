#!/usr/bin/env python3
"""Compare every kernel of the moved xarray-spatial with Numba's JIT: bits, first calls and launches.

It needs a GPU, CuPy, Numba-CUDA and the wheel that `move.py` has built, and no network. Two processes make the same
calls: in one the wheel's kernels are launched, in the other, with `AOTCUDA_IN_PLACE=0`, Numba compiles them from the
same files. After each launch the bytes of all array arguments are hashed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
HERE = Path(__file__).parent
LAUNCHES = 500


def main() -> None:
    """Run both processes, and write the comparison; exit with status 1 if a kernel is missing or has other bits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--way", choices=["packaged", "jit"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(calls()))
        return
    runs = {way: run(way) for way in ("jit", "packaged")}
    result = compare(runs["packaged"], runs["jit"])
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    wrong = [result[key] for key in ("not_launched", "not_packaged", "other_bits")]
    wrong += result["errors"].values()
    sys.exit(1 if any(wrong) else 0)


def run(way: str) -> dict[str, Any]:
    """Run a process, and return its results. Neither Numba nor aotcuda uses a cache on disk."""
    environ = {**os.environ, "AOTCUDA_FALLBACK": "error"}
    if way == "jit":
        environ["AOTCUDA_IN_PLACE"] = "0"
    started = time.perf_counter()
    command = [sys.executable, "-W", "ignore", __file__, "--way", way]
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{way}: {done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.perf_counter() - started}


def compare(packaged: dict[str, Any], jit: dict[str, Any]) -> dict[str, Any]:
    """Return the kernels with equal and other bits, the times of first calls and launches, and the errors."""
    names = sorted(packaged["kernels"])
    differing = [name for name in names if packaged["digests"].get(name) != jit["digests"].get(name)]
    return {
        "kernels": len(names),
        "launched": len(packaged["digests"]),
        "not_launched": [name for name in names if name not in packaged["digests"]],
        "not_packaged": packaged["by_numba"],
        "launches_compared": sum(map(len, packaged["digests"].values())),
        "equal_bit_for_bit": len(names) - len(differing),
        "other_bits": differing,
        "first_call_ms": {
            "packaged": total(packaged["first_ms"]),
            "jit": total(jit["first_ms"]),
            "each": {name: [packaged["first_ms"][name], jit["first_ms"][name]] for name in packaged["first_ms"]},
        },
        "launch_us": {
            "packaged": statistics.median(packaged["launch_us"].values()),
            "jit": statistics.median(jit["launch_us"].values()),
            "each": {name: [packaged["launch_us"][name], jit["launch_us"][name]] for name in packaged["launch_us"]},
        },
        "import_s": {"packaged": packaged["import_s"], "jit": jit["import_s"]},
        "process_s": {"packaged": packaged["process_s"], "jit": jit["process_s"]},
        "errors": {"packaged": packaged["errors"], "jit": jit["errors"]},
        "gpu": packaged["gpu"],
    }


def total(times: dict[str, float]) -> float:
    """Return the sum, rounded to a tenth."""
    return round(sum(times.values()), 1)


class Watched:
    """A kernel that hashes its arrays after each launch, and can repeat its last launch."""

    def __init__(self, kernel: Any, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.digests: list[str] = []
        self.errors: list[str] = []
        self.first_ms = 0.0
        self.last: tuple[Any, tuple[Any, ...]] | None = None

    def __getitem__(self, configuration: Any) -> Any:
        import cupy  # noqa: PLC0415

        def launch(*args: Any) -> None:
            cupy.cuda.runtime.deviceSynchronize()
            started = time.perf_counter()
            try:
                self.kernel[configuration](*args)
            except Exception as error:  # noqa: BLE001 (the error is a result)
                self.errors.append(f"{type(error).__name__}: {error}")
                return
            cupy.cuda.runtime.deviceSynchronize()
            if self.last is None:
                self.first_ms = (time.perf_counter() - started) * 1e3
            self.last = configuration, args
            arrays = [arg.get() for arg in args if isinstance(arg, cupy.ndarray)]
            self.digests.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())

        return launch

    def launch_us(self) -> float:
        """Return the microseconds of host time for a launch, the median of many."""
        import cupy  # noqa: PLC0415

        configuration, args = self.last or ((1, 1), ())
        times = []
        for number in range(LAUNCHES):
            started = time.perf_counter()
            self.kernel[configuration](*args)
            times.append((time.perf_counter() - started) * 1e6)
            if number % 100 == 99:  # a full queue would make launches wait
                cupy.cuda.runtime.deviceSynchronize()
        return round(statistics.median(times), 2)


def calls() -> dict[str, Any]:
    """Call all functions of the package that launch kernels, on CuPy's arrays."""
    import cupy  # noqa: PLC0415 (before the stand-ins are on the path)

    pool = cupy.get_default_memory_pool()

    def zeroed(size: int) -> Any:
        """Return zeroed memory, so memory that no kernel writes is equal in both processes."""
        memory = pool.malloc(size)
        if size:
            memory.memset(0, size)
        return memory

    cupy.cuda.set_allocator(zeroed)
    sys.path.append(str(HERE / "stand_ins"))  # rtxpy itself needs a GPU that traces rays
    started = time.perf_counter()
    import xrspatial  # noqa: PLC0415

    import_s = time.perf_counter() - started
    watched = watch(Path(xrspatial.__file__).parent)
    module = importlib.import_module("calls")
    errors = {}
    for function in module.EVERY:
        try:
            function(module.SHAPE)
        except Exception:  # noqa: BLE001 (the other functions run all the same)
            errors[function.__name__] = traceback.format_exc()
    launched = {name: item for name, item in watched.items() if item.digests}
    return {
        "kernels": list(watched),
        "by_numba": [name for name, item in watched.items() if not type(item.kernel).__module__.startswith("aotcuda")],
        "digests": {name: item.digests for name, item in launched.items()},
        "first_ms": {name: round(item.first_ms, 2) for name, item in launched.items()},
        "launch_us": {name: item.launch_us() for name, item in launched.items()},
        "import_s": round(import_s, 3),
        "errors": errors | {name: item.errors for name, item in watched.items() if item.errors},
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
    }


def watch(package: Path) -> dict[str, Watched]:
    """Replace each kernel of the wheel's manifests by a watched one."""
    kernels = {}
    for path in sorted(package.rglob("manifest.json")):
        manifest = json.loads(path.read_text())
        module = importlib.import_module(manifest["module"])
        for entry in manifest["kernels"]:
            name = entry["origin"].rpartition(":")[2]
            kernel = Watched(getattr(module, name), f"{manifest['module']}.{name}")
            kernels[kernel.name] = kernel
            for importer in [loaded for key, loaded in sys.modules.items() if key.startswith("xrspatial")]:
                for key, value in list(vars(importer).items()):
                    if value is kernel.kernel:
                        setattr(importer, key, kernel)
    return kernels


if __name__ == "__main__":
    main()
