"""Test stubs with type checkers: right uses pass, and wrong uses are errors.

The user's files use modules with every kind of parameter, and every example of the project. Each checker runs once, and
mypy checks the stubs too.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.emit import stub
from integration import projects
from support import grids, manifests
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Errors = dict[str, dict[int, str]]

EXAMPLES = {
    "quickstart": ("numba_cuda",),
    "foreign_functions": ("numba_cuda",),
    "udf": ("numba_cuda",),
    "cuda_cpp": ("elftools",),
    "all_front_ends": ("numba_cuda", "numba_cuda_mlir", "triton", "elftools"),
    "frontend": ("elftools",),
    "cutile": ("cuda.tile",),
}
"""The projects under examples, with the packages that their builds need. `frontend` is a front end."""

IN_PLACE = {"xarray_spatial", "triton_in_place", "pack"}
"""Examples without generated modules."""

KINDS = [
    kernel("axpy", "void(float32, float32[::1], float32[::1])"),
    kernel("nothing", "void()"),
    kernel("numbers", "void(bool, int8, uint64, float16, complex64)"),
    kernel("pointed", "void(float32*, int32)"),
    kernel("grouped", "void((float32[:], int64), float64)"),
    kernel("several", "void(int32, float32[::1])", "void(float64, float32[::1])", "void(float64)"),
    kernel("apart", "void(float32[::1])", "void(int64, int64)"),
]
SHADOWS = (
    *(name for name in dir(builtins) if not name.startswith("__") and not keyword.iskeyword(name)),
    *("typing", "typing_", "_t", "_t_", "_builtins", "builtins", "Any", "self"),
    *(f"_axpy_{kind}{end}" for kind in ("launcher", "forall", "kernel") for end in ("", "_", "_launcher")),
)
"""Names of kernels that a stub could use: all builtins, and the names of its imports and classes."""

SIGNATURES = ("void(float32, float32[::1])", "void((float32[:], int64), bool)")
MADE = {
    "kinds": manifests.make(kernels=KINDS, functions=[manifests.function("add")]),
    "by_grid": manifests.make(kernels=[grids.PAIR], by_grid=True),
    "shadows": manifests.make(kernels=[kernel("axpy", *SIGNATURES), *(kernel(name, *SIGNATURES) for name in SHADOWS)]),
    "shadows_by_grid": manifests.make(
        kernels=[{**grids.PAIR, "name": name} for name in ("_t", "typing", "int", "_int_kernel")], by_grid=True
    ),
}

PREAMBLE = """\
import ctypes
from typing import Any

import numpy

import aotcuda
import made.by_grid as g
import made.kinds as m
import made.shadows as s


class Array:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {}


class Exchanged:
    __dlpack_c_exchange_api__: object = None


class Stream:
    cuda_stream = 7


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


def grid(meta: dict[str, Any]) -> tuple[int, int]:
    return meta["n"], 1


a = Array()
host = numpy.zeros(3, numpy.float32)
size = numpy.int64(32)
print(ctypes.sizeof(ctypes.c_int))
"""
RIGHT = """\
m.axpy[1, 32](2, a, a)
m.axpy[(2, 2), (8, 8, 1)](2.5, Exchanged(), a)
m.axpy[size, (size, 2)](numpy.float32(2), a, a)
m.axpy[[2, 2], 32](numpy.uint8(1), a, a)
m.axpy[1, 32, None](2, a, a)
m.axpy[1, 32, 0, 1024](2, a, a)
m.axpy[1, 32, Stream()](2, a, a)
m.axpy[1, 32, Protocol(), 64](2, a, a)
m.axpy.forall(100)(2, a, a)
m.axpy.forall(size, 128, shared=64)(2, a, a)
m.axpy.configure(1, 32, cluster=2, stream=Stream())(2, a, a)
launcher: aotcuda.Launcher = m.axpy[1, 32]
launcher(2, a, a)
kernel: aotcuda.Kernel = m.axpy
print(m.axpy.signatures, m.axpy.occupancy(128), launcher.grid)
m.nothing[1, 32]()
m.numbers[1, 32](True, 2, numpy.int32(3), 2.5, 2j)
m.numbers[1, 32](numpy.bool_(True), numpy.int32(3), True, 2, 1.5)
m.pointed[1, 32](4096, 1)
m.pointed[1, 32](ctypes.c_void_p(4096), 1)
m.grouped[1, 32]((a, 1), 2.5)
m.several[1, 32](1, a)
m.several[1, 32](1.5, a)
m.several[1, 32](1.5)
m.apart[1, 32](a)
m.apart[1, 32](1, 2)
print(m.add.signature.upper(), m.add.prototype.upper(), m.add.__name__)
function: aotcuda.DeviceFunction = m.add
m.add(1, 2)
module: aotcuda.Module = m.__aotcuda__
print(module.name, module.kernels, module.functions, module.chosen, module.tiers, module.fast_path)
print(module.choice_for((9, 0), driver=(13, 0)).why)
module.preload()
g.k[4](a, 2.5, 3, 128, 128)
g.k[4, 2](Exchanged(), 2, True, 128)
g.k[(4, 2, 1)](a, 2, 3, 128)
g.k[[4]](a, 2, 3, BLOCK=128)
g.k[size](x=a, factor=2, n=3, BLOCK=128, ACT=128, num_warps=128)
g.k[grid](a, 2, 3, 128)
g.k.configure(4, stream=Stream())(a, 2, 3, 128)
g.k.configure(lambda meta: meta["n"])(a, 2, 3, 128)
grid_launcher: aotcuda.GridLauncher = g.k[4]
grid_launcher(a, 2, 3, 128)
print(g.k.signatures)
s.axpy[1, 32](2, a)
s.int[1, 32]((a, 1), True)
s.tuple[1, 32](2, a)
s.typing[1, 32](2, a)
"""
WRONG = """\
m.axpy[1, 32]('text', a, a)
m.axpy[1, 32](1j, a, a)
m.axpy[1, 32](a, a, a)
m.axpy[1, 32](2, 2.5, a)
m.axpy[1, 32](2, a, host)
m.axpy[1, 32](2, [1.0], a)
m.axpy[1, 32](2, None, a)
m.axpy[1, 32](2, a)
m.axpy[1, 32](2, a, a, 1)
m.axpy.forall(8)(2, a, a, 1)
m.axpy(2, a, a)
m.axpy[32](2, a, a)
m.axpy[1, 32, None, 0, 5](2, a, a)
m.axpy['1', 32](2, a, a)
m.axpy[1, 32.0](2, a, a)
m.axpy.forall('n')(2, a, a)
m.axpy.configure(1, 32, clusters=2)
m.axpy[1, 32](**{'a': 1})
print(m.axpy.signature)
m.nothing[1, 32](1)
m.numbers[1, 32](2.5, 2, 3, 2.5, 2j)
m.numbers[1, 32](True, 'text', 3, 2.5, 2j)
m.numbers[1, 32](True, 2, 3, 2.5, 'text')
m.pointed[1, 32](a, 1)
m.pointed[1, 32](2.5, 1)
m.grouped[1, 32](7, 2.5)
m.grouped[1, 32]((a, a, a), 2.5)
m.several[1, 32](1, a, a)
m.apart[1, 32]()
m.add[1, 32](1)
m.add.forall(3)
print(m.add.signatures)
no_kernel: aotcuda.Kernel = m.add
number: int = m.add.signature
m.no_such_name
module.choice_for(9.0)
g.k(a, 2, 3, 128)
g.k['4'](a, 2, 3, 128)
g.k[4.0](a, 2, 3, 128)
g.k[4](a, 2, 3)
g.k[4](a, 2, 3, 128, 128, 1)
g.k[4](a, 2, 3, 128, NO_SUCH=4)
g.k[4](a, 2, 3, 128, x=a)
g.k[4](host, 2, 3, 128)
g.k[4](a, 'text', 3, 128)
g.k[4](a, 2, 2.5, 128)
g.k.configure(4, 32)
g.k.configure(4, shared=32)
print(g.k.signature)
s.int[1, 32]('text', a)
s.tuple[1, 32](2)
"""


class Site:
    """An environment with packages, and the files of a user.

    Attributes:
        python: Its interpreter.
        folder: The folder of the user's files.
        packages: The folder of the packages.
        stubs: The folder of the stubs of `MADE`, which mypy checks.
    """

    def __init__(self, folder: Path) -> None:
        projects.succeed(folder, sys.executable, "-m", "venv", "--without-pip", folder / "environment")
        self.python = folder / "environment" / "bin" / "python"
        self.folder = folder / "user"
        self.folder.mkdir()
        self.stubs = folder / "stubs"
        self.stubs.mkdir()
        (self.packages,) = (folder / "environment").glob("lib/python*/site-packages")
        paths = [path for path in sys.path if path.endswith("site-packages")]
        (self.packages / "tests.pth").write_text("\n".join([*paths, str(projects.CHECKOUT), ""]))

    def install_example(self, name: str, wheel: Path) -> None:
        """Install the wheel of an example, and write a file that uses all names of its modules."""
        lines = ["import aotcuda"]
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
            names = [name for name in archive.namelist() if name.endswith("/manifest.json")]
            found = [json.loads(archive.read(name)) for name in names]
        for number, whole in enumerate(found):
            lines.append(f"import {whole['module']} as m{number}")
            lines += [f"print(m{number}.{item['name']}.signatures)" for item in whole["kernels"]]
            lines += [f"print(m{number}.{item['name']}.prototype)" for item in whole["functions"]]
            lines.append(f"m{number}.__aotcuda__.preload()")
        (self.folder / f"use_{name}.py").write_text("\n".join([*lines, "print(aotcuda.__version__)", ""]))


@pytest.fixture(scope="module")
def site(
    wheel_of_example: Callable[[str], Path], wheel_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Site:
    folder = tmp_path_factory.mktemp("site")
    result = Site(folder)
    for name, needs in EXAMPLES.items():
        if all(map(find_spec, needs)):
            wheel = wheel_of_example(name)
            if name == "frontend":
                wheel = wheel_of("elementwise", PYTHONPATH=str(projects.unpacked(wheel, folder / "front_end")))
            result.install_example(name, wheel)
    package = result.packages / "made"
    package.mkdir()
    for name in ("__init__.py", "py.typed"):
        (package / name).touch()
    for name, whole in MADE.items():
        for path in (package, result.stubs):
            (path / f"{name}.pyi").write_text(stub.render(whole, "# Made for a test"))
    (result.folder / "uses.py").write_text(PREAMBLE + RIGHT + WRONG)
    return result


def mypy(site: Site) -> Iterator[tuple[str, int, str]]:
    command = ("-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "--python-executable", site.python)
    shown = projects.run(site.folder, sys.executable, *command, ".", site.stubs)
    assert not shown.err, shown.err
    for line in re.findall(r"^\S.*: error: .*$", shown.out, re.MULTILINE):
        name, number, _, text = line.split(":", 3)
        yield name.removeprefix("./"), int(number), text


def pyright(site: Site) -> Iterator[tuple[str, int, str]]:
    config = {"typeCheckingMode": "strict", "reportUnusedExpression": "none"}
    (site.folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = ("-m", "pyright", "--outputjson", "--pythonpath", site.python, site.folder)
    shown = projects.run(site.folder, sys.executable, *command)
    for item in json.loads(shown.out)["generalDiagnostics"]:
        if item["severity"] == "error":
            yield Path(item["file"]).name, item["range"]["start"]["line"] + 1, item["message"]


@pytest.fixture(
    scope="module", params=[mypy, pytest.param(pyright, marks=pytest.mark.matrix)], ids=lambda check: check.__name__
)
def errors(request: pytest.FixtureRequest, site: Site) -> Errors:
    """Return the errors of a checker by file and line."""
    pytest.importorskip(request.param.__name__)
    by_file: Errors = {}
    for name, line, text in request.param(site):
        by_file.setdefault(name, {})[line] = text
    return by_file


def test_right_uses_pass_and_wrong_ones_are_errors(errors: Errors) -> None:
    lines = (PREAMBLE + RIGHT + WRONG).splitlines()
    wrong = range(len((PREAMBLE + RIGHT).splitlines()) + 1, len(lines) + 1)
    messages = errors.get("uses.py", {})
    assert [lines[line - 1] for line in wrong if line not in messages] == []
    assert [(lines[line - 1], text) for line, text in messages.items() if line not in wrong] == []


def test_examples_and_stubs_have_no_errors(errors: Errors) -> None:
    assert {name: found for name, found in errors.items() if name != "uses.py"} == {}


def test_every_example_is_checked() -> None:
    examples = {path.name for path in (projects.CHECKOUT / "examples").iterdir() if path.is_dir()}
    assert examples == EXAMPLES.keys() | IN_PLACE
