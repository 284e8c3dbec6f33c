"""Test files that are edited during a build: make and ninja build once more, and only once."""

from __future__ import annotations

import re
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


def make(project: Path) -> Callable[[], bool | str]:
    (project / "Makefile").write_text(MAKEFILE)
    return lambda: step(project, "make", unchanged="Nothing to be done")


def ninja(project: Path) -> Callable[[], bool | str]:
    (project / "build.ninja").write_text(NINJA)
    return lambda: step(project, BIN / "ninja", unchanged="no work to do")


def step(project: Path, command: str | Path, unchanged: str) -> bool | str:
    """Return True if a command built the project, False if nothing was to be done, or the message of a failure."""
    done = projects.run(project, command)
    if done.status:
        return re.search("aotcuda: (.*)", done.out + done.err)[1]
    return unchanged not in done.out


@pytest.mark.parametrize("tool", [make, pytest.param(ninja, marks=pytest.mark.matrix)])
def test_file_edited_during_build_is_refused_and_built_again(
    tool: Callable[[Path], Callable[[], bool | str]], tmp_path: Path
) -> None:
    project = projects.write(tmp_path / "project", SOURCE, module='kernels.f = "void(int32[::1])"')
    build = tool(project)
    built = [build(), build(), build()]
    source = project / "pkg" / "_k.py"
    refused = f"{source} was edited during the build, which may have read its old content; build again"
    assert built == [refused, True, False]
    assert "x * 3" in source.read_text()
    other = succeed(project, sys.executable, "-m", "aotcuda", "build", ".", "--quiet", "--out", tmp_path / "fresh")
    assert not other.out
    name = Path("pkg", "k.aotcuda", "kernels.fatbin")
    assert (project / "out" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


# What is edited, while the last source is imported, after the build has read the file.
FILES = {
    "a source": "pkg/_k.py",
    "a module that a source imports": "pkg/_val.py",
    "a linked file": "csrc/f.cu",
    "a header of a linked file": "csrc/f.h",
    "a file that a source reads": "pkg/table.txt",
    "a watched file": "watched.txt",
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_every_kind_of_input_that_is_saved_during_a_build_is_found(file: str, tmp_path: Path) -> None:
    """Another process saves the file, since what the project's own code writes is no edit."""
    source = f"""
import subprocess, sys
from pathlib import Path
from numba import cuda
from numba.cuda.extending import overload
from pkg._val import V

ROOT = Path(__file__).parents[1]
T = int((ROOT / "pkg/table.txt").read_text())

def edited(x):
    pass

@overload(edited, target="cuda")
def _(x):
    subprocess.run([sys.executable, "-c", "print(file=open({file!r}, 'a'))"], cwd=ROOT, check=True)
    return lambda x: x

@cuda.jit
def f(out):
    out[0] = edited(V + T)
"""
    project = projects.write(
        tmp_path / "project",
        source,
        aotcuda='watch = ["watched.txt"]',
        module='link = ["csrc/f.cu"]\nkernels.f = "void(int32[::1])"',
    )
    (project / "csrc").mkdir()
    content = {
        "pkg/_val.py": "V = 1",
        "pkg/table.txt": "2",
        "csrc/f.cu": '#include "f.h"\n',
        "csrc/f.h": 'extern "C" __device__ int one(int *r) { *r = 1; return 0; }\n',
        "watched.txt": "",
    }
    for name, text in content.items():
        (project / name).write_text(text)
    done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build", ".", "--quiet", "--out", "out")
    assert (done.status, done.message) == (
        1,
        f"{project / file} was edited during the build, which may have read its old content; build again",
    )
    assert not (project / "out").exists()
