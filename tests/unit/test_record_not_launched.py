"""Test that a dry run names the kernels that no run launched, and launches that Numba refuses."""

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


ENTRY = """
[tool.aotcuda.modules."pkg.kernels"]
source = "pkg.kernels"
kernels.step = { python = "pkg.kernels:Solver.step", signatures = ["void(float32[::1])"] }
"""
REFUSED = """
import cupy as cp
import numpy as np
from pkg import kernels

point = np.dtype([("x", np.float32), ("y", np.int32)])
kernels.first[1, 1](cp.zeros(4, point))
"""


def record(folder, program, tables=""):
    """Record a program in a dry run, and return the lines of standard error."""
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "kernels.py").write_text(KERNELS)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "pkg"\nversion = "1"\n{tables}')
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "aotcuda", "record", "--dry", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("reading", "tables", "names"),
    [
        ("", "", "pkg.kernels.later, pkg.kernels.Solver.step"),
        ("if x.copy_to_host()[0] == 1:\n    kernels.later[1, 1](x)", ENTRY, "pkg.kernels.later"),
        ("kernels.later[1, 1](x)", ENTRY, ""),
    ],
)
def test_kernels_that_no_run_launched_are_named(tmp_path, reading, tables, names):
    lines = record(tmp_path, PROGRAM.format(reading=reading), tables)
    found = [line for line in lines if "not launched in any run" in line]
    start = f"aotcuda: not launched in any run, and in no table: {names}; record a program that launches them, or "
    assert [line.startswith(start) for line in found] == [True] * bool(names), lines


def test_refused_arguments_are_described_in_one_line(tmp_path):
    lines = record(tmp_path, REFUSED)
    dtype = "[('x', '<f4'), ('y', '<i4')]"
    assert lines[-1] == (
        f"aotcuda: program.py:7: Numba refuses this launch of first with cupy.ndarray of {dtype}: "
        "NumbaNotImplementedError: |V8; pass types that Numba knows, and arrays with fields by numba.cuda.to_device"
    )
