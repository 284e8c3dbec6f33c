"""Describe the machine and the versions of a result, measure, and write reports."""

from __future__ import annotations

import argparse
import compileall
import ctypes
import json
import os
import platform
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
os.environ["AOTCUDA_BUILD_CACHE"] = "0"  # builds do not reuse code of earlier builds
_PACKAGES = ("aotcuda", "numba-cuda", "numba", "numpy", "cuda-bindings", "cuda-toolkit", "hatchling", "build")
_PEERS = (
    "apache-tvm-ffi",
    "cuda-core",
    "cupy-cuda13x",
    "numba-cuda",
    "numba-cuda-mlir",
    "torch",
    "triton",
    "warp-lang",
)
_COMPILERS = ("cuda", "hatchling", "llvmlite", "numba", "numba_cuda", "numpy", "packaging", "pathspec", "pluggy")


def describe() -> dict[str, Any]:
    """Return the machine and the versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        **_gpu(),
    }


def driver() -> ctypes.CDLL | None:
    """Return the CUDA driver library, or None without a driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def synchronize() -> Callable[[], object]:
    """Return the function that waits for the GPU of the current context; exit without a driver."""
    library = driver()
    if library is None:
        sys.exit("this needs a GPU and its driver")
    return library.cuCtxSynchronize


def peers() -> dict[str, str]:
    """Return the versions of the tools that are installed here and compared."""
    return {name: found for name in _PEERS if (found := _version(name))}


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process whose start is measured; its first run writes bytecode."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **more}


def write_bytecode(*trees: Path) -> None:
    """Compile the compilers and the checkouts `trees` to bytecode, as pip leaves them.

    uv installs packages without bytecode. Each worker would compile 850 modules of Numba, which takes as long as the
    rest of a small build.
    """
    installed = Path(sysconfig.get_path("purelib"))
    packages = [tree / name for tree in trees for name in ("aotcuda", "hatch_plugin/src/hatch_aotcuda")]
    for folder in (*(installed / name for name in _COMPILERS), *packages):
        if folder.is_dir():
            compileall.compile_dir(str(folder), quiet=2)


def parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """Return a command line with `--out`, the file of the result named `name`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help="the JSON file (%(default)s)")
    return parser


def write(path: Path, machine: dict[str, Any], **figures: object) -> None:
    """Write figures as JSON, with the machine as `describe` described it before the work."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, **figures}, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {path}")


def report(
    path: Path,
    machine: dict[str, Any],
    measures: dict[str, bool],
    missing: dict[str, str] | None = None,
    **figures: Any,
) -> int:
    """Print the aims that are met and the peers that are missing, and write all as JSON; return the exit status."""
    print()
    for text, verdict in measures.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    for peer, reason in (missing or {}).items():
        print(f"left out: {peer}: {reason}")
    write(path, machine, **figures, **({} if missing is None else {"missing": missing}), measures=measures)
    return 0 if all(measures.values()) else 1


def summary(values: list[float]) -> dict[str, Any]:
    """Return measurements in their order, with their median, minimum and quartiles, and their number."""
    first, _, third = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {
        "median": round(median(values), 3),
        "min": round(min(values), 3),
        "q1": round(first, 3),
        "q3": round(third, 3),
        "runs": len(values),
        "values": [round(value, 4) for value in values],
    }


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print rows in columns: the first aligned to the left, the others to the right."""
    texts = [tuple(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row) for row in [header, *rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    for first, *rest in texts:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _commit() -> str:
    """Return the commit of this checkout, with `+` if files differ from it; without git that of `AOTCUDA_COMMIT`."""
    git = ("git", "-C", str(RESULTS.parent.parent), "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+")
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or os.environ.get("AOTCUDA_COMMIT", "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> dict[str, str]:
    """Return the first GPU's name and the driver's CUDA version; empty without a GPU."""
    library = driver()
    if library is None:
        return {}
    code = "from aotcuda.runtime import driver; d = driver.get(); print(d.devices[0], *d.version, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    name, major, minor = done.stdout.splitlines()
    return {"gpu": name, "driver": f"CUDA {major}.{minor}"}


if __name__ == "__main__":
    json.dump(describe(), sys.stdout, indent=1)
    print()
