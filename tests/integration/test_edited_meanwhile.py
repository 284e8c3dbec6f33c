"""Test files that are edited during a build: make and ninja build once more, and only once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import succeed

if TYPE_CHECKING:
    from collections.abc import Callable

BIN = Path(sys.prefix, "bin")

# A source that edits itself while its kernel is compiled for the first time.
SOURCE = """\
from pathlib import Path

from numba import cuda
from numba.cuda.extending import overload


def scaled(x):
    pass


@overload(scaled, target="cuda")
def _(x):
    source = Path(__file__)
    text = source.read_text()
    before = "x * " + "2"
    if before in text:
        source.write_text(text.replace(before, "x * 3"))
    return lambda x: x * 2


@cuda.jit
def f(out):
    out[0] = scaled(out[0])
"""
BUILD = f"{sys.executable} -m aotcuda build . --quiet --out out --depfile out/rules.d"
MAKEFILE = f"""\
all: out/stamp
out/stamp:
\t{BUILD} --stamp out/stamp
-include out/rules.d
"""
OUTPUTS = " ".join(
    f"out/pkg/k{name}"
    for name in (".aotcuda/kernels.fatbin", ".aotcuda/pkg_k.h", ".aotcuda/manifest.json", ".py", ".pyi")
)
NINJA = f"""\
rule aotcuda
  command = {BUILD}
  depfile = out/rules.d
  restat = 1
build {OUTPUTS}: aotcuda pyproject.toml
"""


def make(project: Path) -> Callable[[], bool]:
    (project / "Makefile").write_text(MAKEFILE)
    return lambda: "Nothing to be done" not in succeed(project, "make").out


def ninja(project: Path) -> Callable[[], bool]:
    (project / "build.ninja").write_text(NINJA)
    return lambda: "no work to do" not in succeed(project, BIN / "ninja").out


@pytest.mark.parametrize("tool", [make, pytest.param(ninja, marks=pytest.mark.matrix)])
def test_file_edited_during_build_is_built_again(tool: Callable[[Path], Callable[[], bool]], tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", SOURCE, module='kernels.f = "void(int32[::1])"')
    step = tool(project)
    built = [step(), step(), step()]
    assert built == [True, True, False]
    assert "x * 3" in (project / "pkg" / "_k.py").read_text()
    other = succeed(project, sys.executable, "-m", "aotcuda", "build", ".", "--quiet", "--out", tmp_path / "fresh")
    assert not other.out
    name = Path("pkg", "k.aotcuda", "kernels.fatbin")
    assert (project / "out" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()
