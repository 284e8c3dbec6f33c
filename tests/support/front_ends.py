"""Projects written for one front end, made into projects for another: the same sources, the other one's `cuda`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

NUMBA, MLIR = ALL = ("numba-cuda", "numba-cuda-mlir")

# What numba-cuda-mlir 0.6.0 refuses in the packages under tests/packages; tests/integration/test_mlir.py has each
# with what is said of it.
ABSENT = {
    "features": ("colours", "half_root"),
    "gpufeatures": ("reshaped", "factorial_i64", "strings", "strings_in_records"),
}


def installed() -> bool:
    """Whether the compiler of the second front end is there."""
    return find_spec("numba_cuda_mlir") is not None


def port(project: Path, absent: tuple[str, ...] = ()) -> Path:
    """Make `project`, written for numba-cuda, one for numba-cuda-mlir, without the kernels and functions `absent`."""
    for path in project.rglob("*.py"):
        path.write_text(ported(path.read_text()))
    config = project / "pyproject.toml"
    text = config.read_text().replace("aotcuda[cu13]", "aotcuda[mlir-cu13]")
    text = text.replace("[tool.aotcuda]\n", f'[tool.aotcuda]\nfrontend = "{MLIR}"\n', 1)
    for name in absent:
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
    config.write_text(text)
    return project


def ported(source: str) -> str:
    """A module's text with the other front end's imports."""
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
        lines.append("njit = cuda.jit(device=True)")  # the compiler has no part for the CPU
    return match[1] + "; ".join(lines)  # one line for one, so that what follows keeps its number


def again(tests: ModuleType, without: Mapping[str, str]) -> dict[str, object]:
    """The tests and fixtures of another module, to be collected once more where fixtures of the same name stand before.

    `without` names what does not hold for the second front end, with the reason.
    """
    found = {name: value for name, value in vars(tests).items() if _is_test(name, value)}
    unknown = without.keys() - found.keys()
    assert not unknown, f"{tests.__name__} has no {', '.join(unknown)}"
    return {name: value for name, value in found.items() if name not in without}


def _is_test(name: str, value: object) -> bool:
    return name.startswith(("test_", "Test")) or isinstance(
        value, pytest.FixtureDef | type(pytest.fixture(lambda: None))
    )
