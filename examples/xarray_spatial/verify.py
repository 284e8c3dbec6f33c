#!/usr/bin/env python3
"""Launch every kernel of the moved xarray-spatial, packaged and by Numba's JIT, and hold one against the other.

It needs a GPU, CuPy, Numba-CUDA and the wheel that `move.py` has built, and no network. Two processes make the same
calls: in one the wheel's kernels are launched, in the other, with `AOTCUDA_IN_PLACE=0`, Numba compiles them from the
same files. After each launch the bytes of all arrays that the kernel was given are hashed.
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
    """Run both, compare, and write what was found; exit status 1 if a kernel is missing or has other bits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--way", choices=["packaged", "jit"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(calls()))
        return
    found = {way: child(way) for way in ("jit", "packaged")}
    result = compare(found["packaged"], found["jit"])
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    wrong = [result[key] for key in ("not_launched", "not_packaged", "other_bits")]
    wrong += result["errors"].values()
    sys.exit(1 if any(wrong) else 0)


def child(way: str) -> dict[str, Any]:
    """Return what one process found. Numba keeps nothing on disk; nor does aotcuda, which has nothing to compile."""
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
    """Per kernel: whether the bits are the same, the first call and the launch, packaged and by the JIT."""
    every = sorted(packaged["kernels"])
    other = [name for name in every if packaged["digests"].get(name) != jit["digests"].get(name)]
    return {
        "kernels": len(every),
        "launched": len(packaged["digests"]),
        "not_launched": [name for name in every if name not in packaged["digests"]],
        "not_packaged": packaged["by_numba"],
        "launches_compared": sum(map(len, packaged["digests"].values())),
        "equal_bit_for_bit": len(every) - len(other),
        "other_bits": other,
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
    """Return the sum, to a tenth."""
    return round(sum(times.values()), 1)


class Watched:
    """A kernel that hashes what its launches leave in their arrays, and can be launched again."""

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
            except Exception as error:  # noqa: BLE001 (likewise)
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
        """Host time of one launch, the median of many."""
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
    import cupy  # noqa: PLC0415 (before the path has what stands in for it)

    pool = cupy.get_default_memory_pool()

    def zeroed(size: int) -> Any:
        """Memory that a kernel leaves alone is to be the same in both processes."""
        memory = pool.malloc(size)
        if size:
            memory.memset(0, size)
        return memory

    cupy.cuda.set_allocator(zeroed)
    sys.path.append(str(HERE / "stand_ins"))  # its rtxpy: the true one needs a GPU that traces rays
    started = time.perf_counter()
    import xrspatial  # noqa: PLC0415

    import_s = time.perf_counter() - started
    watched = watch(Path(xrspatial.__file__).parent)
    module = importlib.import_module("calls")
    errors = {}
    for function in module.EVERY:
        try:
            function(module.SHAPE)
        except Exception:  # noqa: BLE001 (what the others do is to be known all the same)
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
    """Put a watched kernel in the place of each one that the wheel's manifests name."""
    found = {}
    for path in sorted(package.rglob("manifest.json")):
        described = json.loads(path.read_text())
        module = importlib.import_module(described["module"])
        for kernel in described["kernels"]:
            name = kernel["origin"].rpartition(":")[2]
            item = Watched(getattr(module, name), f"{described['module']}.{name}")
            found[item.name] = item
            for other in [other for key, other in sys.modules.items() if key.startswith("xrspatial")]:
                for key, value in list(vars(other).items()):
                    if value is item.kernel:
                        setattr(other, key, item)
    return found


if __name__ == "__main__":
    main()
