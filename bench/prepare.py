"""Builds what the benchmarks launch, on a machine with a compiler: `python bench/prepare.py FOLDER`.

The folder then holds `benchkernels-1.0-py3-none-any.whl`; a machine with a GPU needs no more than that and aotcuda.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent / "kernels"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
