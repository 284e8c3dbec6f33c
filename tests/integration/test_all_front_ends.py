"""Test `examples/all_front_ends`: modules of all front ends call each other's functions."""

from __future__ import annotations

import importlib
import re
import struct
import sys
import zipfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda import registry
from aotcuda.binary import fatbin
from integration import projects
from integration.projects import content, manifest_of
from support.images import cuobjdump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from support.stand_in import StandIn

pytestmark = [
    pytest.mark.usefixtures("build_cache"),
    pytest.mark.skipif(
        any(find_spec(package) is None for package in ("numba_cuda", "numba_cuda_mlir", "triton", "elftools")),
        reason="one of the compilers is not installed (extras cu13, mlir-cu13, cpp-cu13 and triton)",
    ),
]

FRONT_ENDS = {
    "curves": "cuda-cpp",
    "steps": "numba-cuda",
    "blends": "numba-cuda-mlir",
    "trails": "numba-cuda",
    "sums": "cuda-cpp",
    "rows": "triton",
}
KERNELS = {"curves": "squash", "steps": "relax", "blends": "blend", "trails": "trail", "sums": "sums"}
ROOTS = {"numba", "numba_cuda", "numba_cuda_mlir", "triton", "elftools"}


@pytest.fixture(scope="module")
def wheel(wheel_of_example: Callable[[str], Path]) -> Path:
    return wheel_of_example("all_front_ends")


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture
def package(cuda: StandIn, wheel: Path) -> Iterator[dict[str, ModuleType]]:
    """Return the packaged modules, on the stand-in driver."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cuda.packages)
    importlib.invalidate_caches()
    yield {name: importlib.import_module(f"all_front_ends.{name}") for name in FRONT_ENDS}
    for name in [name for name in sys.modules if name.partition(".")[0] == "all_front_ends"]:
        del sys.modules[name]


def image(files: dict[str, bytes], module: str, arch: str) -> bytes:
    entries = fatbin.read(files[f"all_front_ends/{module}.aotcuda/kernels.fatbin"], module)
    return next(entry.content for entry in entries if entry.arch == arch)


def test_wheel_has_every_front_end_with_device_functions(files: dict[str, bytes]) -> None:
    front_ends = {name: manifest_of(files, f"all_front_ends.{name}")["frontend"] for name in FRONT_ENDS}
    assert front_ends == FRONT_ENDS
    linking = {name for name in registry.BUILT_IN if not registry.BUILT_IN[name].assembles}
    assert linking <= {*front_ends.values()}


@pytest.mark.parametrize("module", KERNELS)
def test_linked_functions_are_inlined(files: dict[str, bytes], module: str) -> None:
    """All kernels call `logistic`, which is written in C++ and computes an exponential."""
    assert "MUFU.EX2" in cuobjdump(image(files, module, "sm_80"), "--dump-sass")
    symbols = cuobjdump(image(files, module, "sm_80"), "--dump-elf-symbols")
    assert re.findall(r"STO_ENTRY\s+(\w+)", symbols) == [KERNELS[module]]
    assert not re.search(r"\b(logistic|relaxed|blended)$", symbols, re.MULTILINE)
    assert ".extern .func" not in image(files, module, "compute_80").decode()


def test_each_launch_has_the_parameters_of_its_compiler(cuda: StandIn, package: dict[str, ModuleType]) -> None:
    x, y, out = (cuda.array(np.zeros(64, "<f4")) for _ in range(3))

    def numba(array: object) -> bytes:
        return struct.pack("<7Q", 0, 0, 64, 4, array.address, 64, 4)

    def memref(array: object) -> bytes:
        return struct.pack("<5Q", array.address, array.address, 0, 64, 1)

    half = struct.pack("<f4x", 0.5)
    package["curves"].squash[1, 64](x)
    assert cuda.parameters() == struct.pack("<QI", x.address, 64)
    package["steps"].relax[1, 64](0.5, x)
    assert cuda.parameters() == half + numba(x)
    package["blends"].blend[1, 64](0.5, x, y, out)
    assert cuda.parameters() == half + memref(x) + memref(y) + memref(out)
    package["trails"].trail[1, 64](0.5, x, out)
    assert cuda.parameters() == half + numba(x) + numba(out)
    package["sums"].sums[1, 64](0.5, x, y, out)
    assert cuda.parameters() == half + struct.pack("<3QI", x.address, y.address, out.address, 64)
    package["rows"].softmax[(2,)](x, out, 32)
    assert cuda.parameters().startswith(struct.pack("<2Qi", x.address, out.address, 32))
    assert [launch["kernel"] for launch in cuda.launches()][:5] == [*KERNELS.values()]


def test_launching_imports_no_compiler(cuda: StandIn, package: dict[str, ModuleType]) -> None:
    names = ", ".join(f"all_front_ends.{name}" for name in FRONT_ENDS)
    output = cuda.run(f"import sys, {names}\nprint(sorted({ROOTS!r} & {{*sys.modules}}))")
    assert output.strip() == "[]"


UNLINKABLE = {
    "into Triton": (
        'source = "all_front_ends._rows"',
        'source = "all_front_ends._rows"\nlink = [{ module = "all_front_ends.steps" }]',
        """rows".link[0]: nothing can be linked into Triton's kernels; remove it""",
    ),
    "from Triton": (
        'link = [{ module = "all_front_ends.blends" }]',
        'link = [{ module = "all_front_ends.rows" }]',
        """trails".link[0]: all_front_ends.rows is compiled by triton, whose modules export no device functions, so
        there is nothing to link; remove the item""",
    ),
    "exported by Triton": (
        'frontend = "triton"',
        'frontend = "triton"\nfunctions.f = "float32(float32)"',
        """rows".functions: the front end triton has no functions; remove the key, or move it to a module of another
        front end""",
    ),
    "in a circle": (
        "functions.logistic = {}",
        'functions.logistic = {}\nlink = [{ module = "all_front_ends.blends" }]',
        """curves".link[0]: all_front_ends.blends, by way of others, links all_front_ends.curves in its turn, so
        neither can be built first; move the functions that both need into a third module""",
    ),
}


@pytest.mark.parametrize("name", UNLINKABLE)
def test_impossible_link_is_refused(name: str, tmp_path: Path) -> None:
    before, after, message = UNLINKABLE[name]
    project = projects.example("all_front_ends", tmp_path / "project")
    config = project / "pyproject.toml"
    text = config.read_text()
    assert text.count(before) == 1
    config.write_text(text.replace(before, after))
    assert projects.refused(project).message == f'tool.aotcuda.modules."all_front_ends.{" ".join(message.split())}'
