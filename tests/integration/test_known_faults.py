"""Test that a build warns of code that numba-cuda-mlir is known to compile wrongly, or refuses it."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.frontends.numba_cuda_mlir.fault_table import FAULTS
from integration import projects
from integration.projects import MODULE, refused, write
from slow.conformance import project
from slow.conformance.cases import CASES
from support.front_ends import MLIR, is_mlir_installed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not is_mlir_installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)"),
    pytest.mark.front_end(MLIR),
]

CORRECT = (
    *("x[n] = 1", "x[u64[i]] = 1", "x[cuda.int64(u8[i])] = 1", "x[-1] = 1", "out[i] = u8[i] + u8[n]"),
    *("cuda.atomic.add(x, n, -1)", "cuda.atomic.add(out, i, out[n])", "cuda.atomic.max(x, i, 5)"),
    *("cuda.atomic.add(f, i, 1)", "cuda.atomic.add(u32, i, u32[n])", "cuda.atomic.add(x, i, out[n])"),
    *("out[0] = x[1:3].shape[0]", "out[0] = x[n:].shape[0]", "x[:3] = 4", "out[0] = x[::1].shape[0]"),
    *("for k in range(n): out[k] = 1", "for k in range(u64[i]): out[k] = 1", "out[i] = max(x[i], 5)"),
    *("f[i] = max(f[i], 5.0)", "out[i] = -x[i]", "out[i] = x[i] ^ out[i]", "out[i] = u8[i] & x[i]"),
    *("out[i] = u32[i] & u32[n]", "out[i] = cuda.int64(x[i]) ** 3", "f[i] = f[i] ** 3", "f[i] = round(f[i], 1)"),
    *("out[i] = math.floor(f[i])", "f[i] = math.sqrt(f[n])", "f[i] = math.sqrt(cuda.float64(u32[i]))"),
    *("f[i] = math.fabs(x[i])", "out[i] = 1 if f[i] == f[n] else 0", "out[i] = 1 if x[i] != n else 0"),
    *("out[i] = not x[i]", "out[i] = 1 if u32[i] < f[i] else 0", "out[i] = r[i].flag"),
)
"""Statements next to the faults, which the compiler compiles correctly."""


def test_each_known_fault_of_the_suite_is_warned_of(front_end: str, tmp_path: Path) -> None:
    release = version(MLIR)
    faults = {case: fault for fault in FAULTS.values() if release in fault.releases for case in fault.cases}
    folder = project.write(tmp_path / "project", MLIR, [CASES[case] for case in faults], ["compute_80"])
    err = projects.back_end(folder).err
    assert str(folder) not in err
    missing = set()
    for case, fault in faults.items():
        fact = re.escape(fault.fact).replace(r"\{\}", ".+")
        if not re.search(
            rf"\.kernels\.{CASES[case].kernel}: numba-cuda-mlir {release} is known to compile this wrongly: {fact} "
            rf'\({project.PACKAGE}/_part\d\d\.py:\d+\); {re.escape(fault.remedy)}; the page "Front ends"',
            err,
        ):
            missing.add(case)
    assert missing == {"atomic/index-negative-int32"}  # the build sees constant indices alone


def test_code_next_to_the_faults_is_not_warned_of(front_end: str, tmp_path: Path) -> None:
    source = "import math\n\nimport numpy as np\nfrom numba import cuda\n\n"
    source += "loose = np.dtype([('flag', 'u1'), ('x', 'f8')])\n\n"
    body = "\n    ".join(CORRECT)
    source += f"def correct(x, u8, u32, u64, f, r, n, out):\n    i = cuda.grid(1)\n    {body}\n"
    arrays = "int32[::1], uint8[::1], uint32[::1], uint64[::1], float64[::1], loose[::1], int32, int64[::1]"
    folder = write(
        tmp_path / "project",
        projects.source(source),
        aotcuda='known-faults = "error"\narch = ["compute_80"]',
        module=f'kernels.correct = "void({arrays})"',
    )
    assert "is known to compile" not in projects.back_end(folder).err


def test_faults_of_helpers_and_functions_are_refused_by_the_key(front_end: str, tmp_path: Path) -> None:
    text = """
from numba import cuda


@cuda.jit(device=True)
def cubed(x):
    return x**3


def through(x):
    x[0] = cubed(x[1])


def before(x):
    cuda.atomic.add(x, -1, 1)


def exported(x):
    return cubed(x)
"""
    kernels = 'kernels.through = "void(int32[::1])"\nkernels.before = "void(int32[::1])"\n'
    module = f'{kernels}functions.exported = "int64(int32)"'
    err = refused(write(tmp_path / "p", projects.source(text), module=module, aotcuda='known-faults = "error"')).err
    assert f"{MODULE}.kernels.through: " in err
    assert "an atomic operation with the index -1 writes before the array (pkg/_k.py:15)" in err
    assert f"{MODULE}.functions.exported: " in err
    assert err.count("a power of int32 is computed in the bits of that type (pkg/_k.py:7)") == 2


def test_cases_of_the_faults_exist() -> None:
    assert all(case in CASES for fault in FAULTS.values() for case in fault.cases)
