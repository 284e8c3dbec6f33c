"""Convert projects for numba-cuda into projects for numba-cuda-mlir, by their imports."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NUMBA, MLIR = ALL = ("numba-cuda", "numba-cuda-mlir")
EACH = pytest.mark.front_end(*ALL)
"""A mark for tests that CI runs with each front end, since they test code that the front ends do not share."""

# Kernels under tests/packages that numba-cuda-mlir refuses. test_mlir_refused.py tests the errors.
_REFUSED = {
    "features": ("colours", "half_root"),
    "gpufeatures": ("strings", "strings_in_records", "reshaped", "reshaped_in_every_way", "colours", "half_norms"),
}
# Functions that releases before 0.6 cannot compile, because their results are tuples in tuples.
_REFUSED_BEFORE_0_6 = {"features": ("uneven",), "devicefunctions": ("split",)}


def is_mlir_installed() -> bool:
    return find_spec("numba_cuda_mlir") is not None


def refused_names(package: str) -> tuple[str, ...]:
    """Return the kernels and functions of a project under tests/packages that the installed numba-cuda-mlir refuses."""
    is_old = is_mlir_installed() and tuple(map(int, version(MLIR).split(".")[:2])) < (0, 6)
    return (*_REFUSED.get(package, ()), *(_REFUSED_BEFORE_0_6.get(package, ()) if is_old else ()))


def port(project: Path, removed: tuple[str, ...] = ()) -> Path:
    """Convert a project in its folder, and remove the kernels and functions `removed` from its table."""
    for path in project.rglob("*.py"):
        path.write_text(port_source(path.read_text()))
    config = project / "pyproject.toml"
    text = config.read_text().replace("aotcuda[cu13]", "aotcuda[mlir-cu13]")
    text = text.replace("[tool.aotcuda]\n", f'[tool.aotcuda]\nfrontend = "{MLIR}"\n', 1)
    for name in removed:
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
    config.write_text(text)
    return project


def port_source(source: str) -> str:
    """Return the text of a module with the imports of numba-cuda-mlir."""
    source = re.sub(r"^( *)from numba import (.*)$", _imports, source, flags=re.MULTILINE)
    return source.replace("from numba.cuda.core", "from numba_cuda_mlir.numba_cuda.core").replace(
        "from numba.cuda", "from numba_cuda_mlir.cuda"
    )


def _imports(match: re.Match[str]) -> str:
    names = [name.strip() for name in match[2].split(",")]
    lines = ["from numba_cuda_mlir import cuda"] if {"cuda", "njit"} & {*names} else []
    if types := [name for name in names if name not in ("cuda", "njit")]:
        lines.append(f"from numba_cuda_mlir.types import {', '.join(types)}")
    if "njit" in names:
        lines.append("njit = cuda.jit(device=True)")  # the compiler has no njit
    return match[1] + "; ".join(lines)  # one line, so the numbers of other lines do not change


def parametrize(metafunc: pytest.Metafunc, names: tuple[str, ...], marks: Mapping[str, pytest.MarkDecorator]) -> None:
    """Parametrize a test that has the fixture `front_end`.

    The front ends are those of the test's mark `front_end`, or else `names`. Tests that parametrize `front_end` are not
    changed. `marks` holds a mark for the tests of a front end.
    """
    own_parameters = [
        marker for marker in metafunc.definition.iter_markers("parametrize") if "front_end" in marker.args[0]
    ]
    if "front_end" in metafunc.fixturenames and not own_parameters:
        marker = metafunc.definition.get_closest_marker("front_end")
        values = [pytest.param(name, marks=marks.get(name, ())) for name in (marker.args if marker else names)]
        metafunc.parametrize("front_end", values, indirect=True, scope="module")
