#!/usr/bin/env python3
"""Check that the `jit-` extras install with common libraries: a run of uv's resolver for each pair.

`python tools/resolve.py --out docs/results/resolver.json`. Nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from environments import ROOT, environment

LIBRARIES = {
    12: ("torch", "cupy-cuda12x", "cuda-cccl[cu12]", "nvmath-python[cu12]"),
    13: ("torch", "cupy-cuda13x", "cuda-cccl[cu13]", "nvmath-python[cu13]"),
}
EXTRAS = {"jit-cu12": 12, "jit-mlir-cu12": 12, "jit-cu13": 13, "jit-mlir-cu13": 13}
PYTHON = "3.12"
_REPORTED = (
    "cuda-bindings",
    "cuda-toolkit",
    "numba-cuda",
    "numba-cuda-mlir",
    "nvidia-nvjitlink",
    "nvidia-nvjitlink-cu12",
)
"""Packages whose versions the report has, besides the library."""


def resolve(extra: str, library: str, folder: Path) -> dict[str, object]:
    """Return the resolver's versions for an extra and a library, or its message."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"aotcuda[{extra}] @ {ROOT.as_uri()}\n{library}\n", encoding="utf-8")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    done = subprocess.run(
        [*command, "--python-version", PYTHON, str(requirements)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        return {"refused": " ".join(done.stderr.split())[:500]}
    versions = dict(line.split("==", 1) for line in done.stdout.splitlines() if "==" in line)
    reported = (library.partition("[")[0], *_REPORTED)
    return {name: versions[name] for name in reported if name in versions}


def main() -> None:
    """Resolve every pair and print the results; exit with 0 if all can be installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = {
            f"{extra} beside {library}": resolve(extra, library, Path(name))
            for extra, cuda in EXTRAS.items()
            for library in LIBRARIES[cuda]
        }
    report = {"date": datetime.now(UTC).date().isoformat(), "python": PYTHON, "results": results}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(any("refused" in result for result in results.values()))


if __name__ == "__main__":
    main()
