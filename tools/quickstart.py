#!/usr/bin/env python3
"""Build the quickstart's wheel, inspect it, install it into a clean environment without a compiler, and run it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from environments import ROOT, check_machine, make, run, say

PROJECT = ROOT / "examples" / "quickstart"
CHECK = """
import sys, importlib.util
names = [name for name in ("numba", "numba_cuda", "numpy", "llvmlite", "cuda") if importlib.util.find_spec(name)]
sys.exit(f"the clean environment has {', '.join(names)}" if names else 0)
"""


def main() -> None:
    """Run the five steps; exit at the first that fails."""
    check_machine()

    say("1. The build side: Numba-CUDA and the CUDA 13.0 compilers (1 GB on disk)")
    python = make("build", f"aotcuda[cu13] @ {ROOT.as_uri()}", "build")

    # Each step runs in an empty folder: `python -m` imports from the current folder, and the checkout has aotcuda.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("2. The quickstart's wheel: machine code for five GPU generations, and PTX for later ones")
        run(python, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", PROJECT, folder=folder)
        (built,) = (folder / "dist").glob("*.whl")
        wheel = PROJECT / "dist" / built.name
        wheel.parent.mkdir(exist_ok=True)
        shutil.move(built, wheel)

        say(f"3. The contents of the wheel: aotcuda inspect {wheel.relative_to(ROOT)}")
        run(python, "-m", "aotcuda", "inspect", wheel, folder=folder)

        say("4. A clean environment with only this wheel and the run time of aotcuda")
        python = make("run", f"aotcuda @ {ROOT.as_uri()}", wheel.as_uri(), fresh=True)
        run(python, "-m", "pip", "--disable-pip-version-check", "list", folder=folder)
        run(python, "-c", CHECK, folder=folder)

        say("5. python -m quickstart")
        run(python, "-m", "quickstart", folder=folder)


if __name__ == "__main__":
    main()
