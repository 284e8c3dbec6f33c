"""Make a project of the suite's kernels for one front end, and build its wheel without the refused kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from slow.conformance.case import RECORDS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from slow.conformance.case import Case

PACKAGE = "conformance_kernels"
TARGETS = ("sm_90", "compute_75")
_IMPORTS = {"numba-cuda": "from numba import cuda", "numba-cuda-mlir": "from numba_cuda_mlir import cuda"}
_KERNELS_A_MODULE = 60


def modules(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return the cases by the module that packages them."""
    found: dict[str, list[Case]] = {}
    for number, case in enumerate(cases):
        found.setdefault(f"part{number // _KERNELS_A_MODULE:02}", []).append(case)
    return found


def write(
    folder: Path,
    front_end: str,
    cases: Sequence[Case],
    targets: Sequence[str] = TARGETS,
    without: Container[str] = (),
) -> Path:
    """Write a project whose wheel has the kernels of the cases, except those named in `without`."""
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    tables = []
    for name, every in modules(cases).items():
        members = [case for case in every if case.name not in without]  # the other modules do not change
        (package / f"_{name}.py").write_text(_source(front_end, members))
        lines = [f'{case.kernel} = "{case.signature}"' for case in members]
        key = f'tool.aotcuda.modules."{PACKAGE}.{name}"'
        tables.append("\n".join([f'[{key}]\nsource = "{PACKAGE}._{name}"', f"[{key}.kernels]", *lines, ""]))
    (folder / "pyproject.toml").write_text(
        f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{PACKAGE.replace("_", "-")}"
version = "1"

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = {[*targets]}
frontend = "{front_end}"
fallback = "error"
load = "first-use"

"""
        + "\n".join(tables)
    )
    return folder


def _source(front_end: str, cases: Iterable[Case]) -> str:
    records = [f"{name} = np.dtype({_dtype_arguments(dtype)})" for name, dtype in RECORDS.items()]
    head = ["import math", "", "import numpy as np", _IMPORTS[front_end], "", *records, "", ""]
    return "\n".join([*head, "\n\n".join(case.source for case in cases)])


def _dtype_arguments(dtype: np.dtype[Any]) -> dict[str, object]:
    """Return the argument of `np.dtype` that makes a record type."""
    fields = dtype.fields or {}
    return {
        "names": [*fields],
        "formats": [field[0].str for field in fields.values()],
        "offsets": [field[1] for field in fields.values()],
        "itemsize": dtype.itemsize,
    }


def build(
    folder: Path,
    front_end: str,
    cases: Sequence[Case],
    environment: Mapping[str, str],
    targets: Sequence[str] = TARGETS,
) -> tuple[Path, dict[str, str]]:
    """Build a wheel; return its path, and the error of each refused case by the name of the case."""
    refused: dict[str, str] = {}
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, front_end, cases, targets, refused)
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel")
        done = subprocess.run(command, cwd=folder, env=dict(environment), check=False, capture_output=True, text=True)
        if done.returncode == 0:
            (wheel,) = (folder / "dist").glob("*.whl")
            return wheel, refused
        errors = _refusals(done.stderr, cases)
        if not errors:
            message = f"the build of {front_end} failed: {done.stderr[-3000:]}"
            raise RuntimeError(message)
        refused |= errors


def _refusals(text: str, cases: Iterable[Case]) -> dict[str, str]:
    by_kernel = {case.kernel: case.name for case in cases}
    found = {}
    for line in text.splitlines():
        match = re.search(r"\.kernels\.(\w+): (?:void\(.*?\): )?(.*)$", line)
        if match and match[1] in by_kernel:
            found[by_kernel[match[1]]] = match[2][:300]
    return found
