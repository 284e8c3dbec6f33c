"""Triton's kernels in the build cache: an edit makes what it concerns, and gives what a build without it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.projects import build_with, put

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

FILES = {
    "pyproject.toml": """\
[tool.aotcuda]
arch = ["sm_80", "sm_90"]
frontend = "triton"
fallback = "error"
[tool.aotcuda.modules."pkg.k"]
source = "pkg._k"
[tool.aotcuda.modules."pkg.k".kernels]
first = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 64 } }
second = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 64 } }
third = { signature = "*fp32", specialise = "exact", configs = [{ constexprs = { BLOCK = 64 }, num-warps = 2 }] }
fourth = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 64 } }
fifth = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 64 } }
""",
    "pkg/__init__.py": "",
    "pkg/_k.py": """\
from pathlib import Path

import finding
import triton
import triton.language as tl
from pkg import _h
from pkg._h import doubled

SCALE = tl.constexpr(3)
helper = finding.find(Path(__file__).with_name("helper.txt").read_text())


@triton.jit
def first(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, doubled(tl.load(x + at)) * SCALE)


@triton.jit
def second(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + _h.offset(BLOCK))


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=[])
@triton.jit
def third(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) - 11)


@triton.jit
def fourth(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, helper(tl.load(x + at)))


@triton.jit
def fifth(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + finding.constant(BLOCK))
""",
    "pkg/_h.py": """\
import triton


@triton.jit
def doubled(x):
    return x * 2.0


@triton.jit
def scaled(x):
    return x * 5.0


@triton.jit
def unused(x):
    return x * 6.0


@triton.constexpr_function
def added(n):
    return n + 7


def computed(n):
    return n + 8


@triton.constexpr_function
def offset(n):
    return added(n)
""",
    "pkg/helper.txt": "pkg._h:scaled",
    "../lib/finding.py": """\
import pkgutil

import triton

find = pkgutil.resolve_name


class Functions(dict):
    def __missing__(self, name):
        return find(name)


FUNCTIONS = Functions()


@triton.constexpr_function
def constant(n):
    return FUNCTIONS["pkg._h:computed"](n)
""",
}

EDITS: dict[str, tuple[str, str, str]] = {
    # The file, what stands there, and what is to stand there.
    "a comment": ("_k.py", "@triton.jit\ndef second", "# a comment\n\n\n@triton.jit\ndef second"),
    "what nobody calls": ("_h.py", "x * 6.0", "x * 7.0"),
    "a kernel": ("_k.py", "* SCALE", "/ SCALE"),
    "an autotuned kernel": ("_k.py", "- 11", "- 12"),
    "a helper": ("_h.py", "x * 2.0", "x * 3.0"),
    "a helper that a library finds": ("_h.py", "x * 5.0", "x * 4.0"),
    "what a library runs to have a constant": ("_h.py", "n + 8", "n + 9"),
    "a constant": ("_k.py", "constexpr(3)", "constexpr(4)"),
    "what a constant is computed by": ("_h.py", "n + 7", "n + 9"),
}
_HARMLESS = ("a comment", "what nobody calls")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    return put(tmp_path.resolve() / "project", FILES)


@pytest.mark.matrix  # test_stamp_inputs has edits
def test_an_edit_makes_what_it_concerns(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One build after the other, each with what those before it have kept."""
    cache = str(tmp_path / "cache")
    before = build_with(project, cache, monkeypatch)
    assert (before.summary.made, before.summary.reused) == (12, 0)
    said = {}
    for what, (file, old, new) in EDITS.items():
        path = project / "pkg" / file
        assert path.read_text().count(old) == 1, what
        path.write_text(path.read_text().replace(old, new))
        built = build_with(project, cache, monkeypatch)
        is_same = built.files["pkg/k.aotcuda/kernels.fatbin"] == before.files["pkg/k.aotcuda/kernels.fatbin"]
        assert is_same is (what in _HARMLESS), what
        said[what] = built.summary.made, built.summary.reused
        before = built
    plain = build_with(project, "0", monkeypatch)
    assert (built.files, built.warnings) == (plain.files, plain.warnings)
    # PTX of one kernel and the image, for two targets each, of five kernels.
    assert said == {what: (0, 12) if what in _HARMLESS else (4, 8) for what in EDITS}


def alone(tmp_path: Path, line: str) -> Path:
    """Return a project of the first kernel, whose module has that line."""
    kernel = FILES["pkg/_k.py"].partition("@triton.jit\ndef second")[0].replace("helper = ", "# ")
    files = {
        **FILES,
        "pyproject.toml": FILES["pyproject.toml"].partition("second = ")[0],
        "pkg/_k.py": kernel.replace("import finding", line),
    }
    return put(tmp_path.resolve() / "project", files)


@pytest.mark.matrix  # test_stamp_inputs has files that code names
def test_an_assembler_that_a_source_names_counts_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.backends.nvidia.compiler import get_ptxas

    tool = tmp_path / "ptxas"
    root = alone(tmp_path, f"import os\nos.environ['TRITON_PTXAS_PATH'] = {str(tool)!r}")
    images = set()
    for option in ("", "--opt-level 0"):
        tool.write_text(f'#!/bin/sh\nexec {get_ptxas(80).path} "$@" {option}\n')
        tool.chmod(0o755)
        built, plain = build_with(root, str(tmp_path / "cache"), monkeypatch), build_with(root, "0", monkeypatch)
        assert built.files == plain.files
        images.add(built.files["pkg/k.aotcuda/kernels.fatbin"])
    assert len(images) == 2
