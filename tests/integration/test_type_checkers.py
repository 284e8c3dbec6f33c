"""Test stubs with type checkers: in files of users, right uses pass and wrong uses are errors.

The files use every example of the project, and modules with every kind of parameter. Each checker runs once.
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
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder import stub
from integration import projects
from support import grids, manifests, uses
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLES = {
    "quickstart": ("numba_cuda",),
    "foreign_functions": ("numba_cuda",),
    "udf": ("numba_cuda",),
    "cuda_cpp": ("elftools",),
    "all_front_ends": ("numba_cuda", "numba_cuda_mlir", "triton", "elftools"),
    "frontend": ("elftools",),
}
"""The projects under examples, with the packages that their compilers need. `frontend` is a compiler itself."""

IN_PLACE = {"xarray_spatial"}
"""Examples with modules in place, where checkers read the sources."""

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
    "kinds": manifests.whole(kernels=KINDS),
    "by_grid": manifests.whole(kernels=[grids.PAIR], by_grid=True),
    "shadows": manifests.whole(kernels=[kernel("axpy", *SIGNATURES), *(kernel(name, *SIGNATURES) for name in SHADOWS)]),
    "shadows_by_grid": manifests.whole(
        kernels=[{**grids.PAIR, "name": name} for name in ("_t", "typing", "int", "_int_kernel")], by_grid=True
    ),
}

GROUPS = [*EXAMPLES, "made"]
AT_LEAST = 10


class Site:
    """An environment with packages, and the files of a user.

    Attributes:
        python: Its interpreter.
        folder: The folder of the user's files.
        packages: The folder of the packages.
        uses: The files by the name of their group and by their own.
    """

    def __init__(self, folder: Path) -> None:
        projects.succeed(folder, sys.executable, "-m", "venv", "--without-pip", folder / "environment")
        self.python = folder / "environment" / "bin" / "python"
        self.folder = folder / "user"
        self.folder.mkdir()
        (self.packages,) = (folder / "environment").glob("lib/python*/site-packages")
        own = [path for path in sys.path if path.endswith("site-packages")]
        (self.packages / "tests.pth").write_text("\n".join([*own, str(projects.CHECKOUT), ""]))
        self.uses: dict[str, dict[str, uses.File]] = {}

    def install(self, group: str, wheel: Path) -> None:
        """Install a wheel, and write the uses of its modules."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
            found = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith("/manifest.json")]
        for whole in found:
            self.use(group, whole, whole["module"])

    def use(self, group: str, whole: dict[str, Any], module: str) -> None:
        """Write the uses of a module."""
        name = f"use_{module.replace('.', '_')}.py"
        file = self.uses.setdefault(group, {})[name] = uses.of(whole, module)
        (self.folder / name).write_text("\n".join([*file.lines, ""]))


@pytest.fixture(scope="module")
def site(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    made = Site(folder)
    for name, needs in EXAMPLES.items():
        if all(map(find_spec, needs)):
            made.install(name, _built(name, folder / name))
    package = made.packages / "made"
    package.mkdir()
    for name in ("__init__.py", "py.typed"):
        (package / name).touch()
    for name, whole in MADE.items():
        (package / f"{name}.pyi").write_text(stub.render(whole, "# Made for a test"))
        made.use("made", {**whole, "kernels": _used(whole)}, f"made.{name}")
    return made


def _used(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kernels whose uses are checked: some have the names of builtins, none has a private name."""
    unused = {*SHADOWS, "_int_kernel"} - {"int", "tuple", "typing"}
    return [item for item in whole["kernels"] if item["name"] not in unused]


def _built(name: str, folder: Path) -> Path:
    if name != "frontend":
        return projects.build_wheel(projects.example(name, folder), AOTCUDA_ARCH="compute_80")
    with zipfile.ZipFile(projects.build_wheel(projects.example(name, folder))) as archive:
        archive.extractall(folder / "site")
    project = projects.copy("elementwise", folder / "project")
    return projects.build_wheel(project, PYTHONPATH=str(folder / "site"))


def mypy(site: Site) -> Iterator[tuple[str, int, str]]:
    command = ("-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "--python-executable", site.python)
    shown = projects.run(site.folder, sys.executable, *command, ".")
    assert not shown.err, shown.err
    for line in re.findall(r"^\S.*: error: .*$", shown.out, re.MULTILINE):
        name, number, _, what = line.split(":", 3)
        yield name.removeprefix("./"), int(number), what


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
def found(request: pytest.FixtureRequest, site: Site) -> dict[str, dict[int, list[str]]]:
    """Return the errors of a checker by file and line."""
    check: Callable[[Site], Iterator[tuple[str, int, str]]] = request.param
    pytest.importorskip(check.__name__)
    errors: dict[str, dict[int, list[str]]] = {}
    for name, line, what in check(site):
        errors.setdefault(name, {}).setdefault(line, []).append(what)
    return errors


@pytest.mark.parametrize("group", GROUPS)
def test_right_uses_pass_and_each_wrong_one_is_an_error(
    site: Site, found: dict[str, dict[int, list[str]]], group: str
) -> None:
    if group not in site.uses:
        pytest.skip(f"a compiler of this example is not installed: {', '.join(EXAMPLES[group])}")
    for name, file in site.uses[group].items():
        said = found.get(name, {})
        missed = [file.lines[line - 1] for line in sorted(file.wrong - said.keys())]
        refused = [(file.lines[line - 1], said[line]) for line in sorted(said.keys() - file.wrong)]
        assert (missed, refused) == ([], []), name
        assert min(len(file.right), len(file.wrong)) >= AT_LEAST, name


def test_checkers_find_no_errors_in_stubs(site: Site, found: dict[str, dict[int, list[str]]]) -> None:
    assert found.keys() <= {name for files in site.uses.values() for name in files}


def test_stubs_pass_strict_checks_with_any_kernel_names(tmp_path: Path) -> None:
    for name, whole in MADE.items():
        (tmp_path / f"{name}.pyi").write_text(stub.render(whole, "# Made for a test"))  # type: ignore[arg-type]
    shown = projects.run(tmp_path, sys.executable, "-m", "mypy", "--strict", *(f"{name}.pyi" for name in MADE))
    assert shown.status == 0, shown.out


def test_every_example_is_checked() -> None:
    examples = {path.name for path in (projects.CHECKOUT / "examples").iterdir() if path.is_dir()}
    assert examples == EXAMPLES.keys() | IN_PLACE
