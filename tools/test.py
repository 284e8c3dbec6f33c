#!/usr/bin/env python3
"""Run the tests in an environment of their own; arguments go to pytest, as in `python tools/test.py -k inspect -x`."""

from __future__ import annotations

import os
import sys

from environments import ROOT, check_machine, environment, make, run, say

# One process for each core; a file's tests stay together, since they share what they build.
PARALLEL = ("-n", "auto", "--dist", "loadfile")


# Beside those of CUDA 13, which the environment itself has: tests build with both by putting the folder on PYTHONPATH.
CUDA_12 = ("cuda-cccl", "cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "nvfatbin", "nvjitlink")


def main() -> None:
    """Make the environment and become pytest in it: its last line and exit status are this script's."""
    check_machine()
    say("The tests' environment: the build side and pytest, Triton, and the compilers of CUDA 12.9 (3 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test]")
    if not (folder := python.parents[1] / "cuda12").is_dir():
        packages = [f"nvidia-{name}-cu12==12.9.*" for name in CUDA_12]
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
        run(*pip, "--target", folder, *packages)
    say("pytest")
    os.chdir(ROOT)
    os.execve(python, [str(python), "-m", "pytest", *PARALLEL, *sys.argv[1:]], environment())  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
