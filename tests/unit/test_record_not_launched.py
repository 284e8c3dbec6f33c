"""Test that a dry run which reads results names the kernels that it did not launch."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed")

KERNELS = """
from numba import cuda

@cuda.jit(device=True)
def helper(x):
    return x

@cuda.jit
def first(x):
    x[0] = helper(1)

@cuda.jit
def later(x):
    x[0] = 2

class Solver:
    @staticmethod
    @cuda.jit
    def step(x):
        x[0] = 3
"""
PROGRAM = """
import numpy as np
from numba import cuda
from pkg import kernels

x = cuda.to_device(np.zeros(1, np.float32))
kernels.first[1, 1](x)
{reading}
"""


@pytest.mark.parametrize("reads", [True, False])
def test_kernels_that_depend_on_results_are_named(tmp_path, reads):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "kernels.py").write_text(KERNELS)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pkg"\nversion = "1"\n')
    reading = "if x.copy_to_host()[0] == 1:\n    kernels.later[1, 1](x)" if reads else ""
    (tmp_path / "program.py").write_text(PROGRAM.format(reading=reading))
    command = [sys.executable, "-m", "aotcuda", "record", "--dry", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "not launched in any run" in line]
    expected = "aotcuda: not launched in any run: pkg.kernels.later, pkg.kernels.Solver.step; if their launches depend"
    assert [line.startswith(expected) for line in lines] == [True] * reads, done.stderr
