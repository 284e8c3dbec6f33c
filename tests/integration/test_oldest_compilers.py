"""Test builds with the oldest releases of the compilers that the extras accept.

A folder on PYTHONPATH holds these releases. `tools/matrix.py` runs more tests with each release.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aotcuda import registry
from integration import projects
from integration.projects import build_wheel, content, manifest_of, write
from support import front_ends
from support.images import cuobjdump

SOURCE = """
from numba import cuda


def helper(x):
    return x * 2


def add(x, y):
    return helper(x) + y


@cuda.jit
def scale_array(a, x):
    shared = cuda.shared.array(64, "float32")
    i = cuda.grid(1)
    if i < x.size:
        shared[cuda.threadIdx.x] = x[i]
        x[i] = a * shared[cuda.threadIdx.x]
"""
MODULE = """\
functions.add = "float32(float32, float32)"
kernels.scale_array = "void(float32, float32[::1])"
"""


@pytest.fixture(scope="module")
def oldest() -> str:
    """Return the folder with the oldest releases."""
    folder = Path(sys.prefix, "oldest")
    if not folder.is_dir():
        pytest.skip(f"the oldest releases of the compilers are not in {folder}; tools/test.py installs them")
    return str(folder)


@front_ends.EACH
def test_oldest_accepted_release_builds(front_end: str, oldest: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", projects.source(SOURCE), module=MODULE)
    files = content(build_wheel(project, PYTHONPATH=oldest, AOTCUDA_ARCH="sm_75;compute_75"))
    manifest = manifest_of(files, "pkg.k")
    assert manifest["toolchain"][front_end] == registry.BUILT_IN[front_end].tested[0]
    (overload,) = manifest["kernels"][0]["overloads"]
    listed = cuobjdump(files["pkg/k.aotcuda/kernels.fatbin"], "--dump-elf-symbols")
    assert overload["symbol"] in listed
    assert b"float add(float" in files["pkg/k.aotcuda/pkg_k.h"]
