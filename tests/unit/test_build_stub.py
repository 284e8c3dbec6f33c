"""The stubs of generated modules, held against type checkers: right uses pass, and each wrong one is an error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder import stub
from support import grids, manifests, uses
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = Path(__file__).resolve().parent.parent / "data" / "wheels"
KINDS = [
    kernel("axpy", "void(float32, float32[::1], float32[::1])"),
    kernel("nothing", "void()"),
    kernel("numbers", "void(bool, int8, uint64, float16, complex64)"),
    kernel("pointed", "void(float32*, int32)"),
    kernel("grouped", "void((float32[:], int64), float64)"),
    kernel("several", "void(int32, float32[::1])", "void(float64, float32[::1])", "void(float64)"),
    kernel("apart", "void(float32[::1])", "void(int64, int64)"),
]


def _modules() -> dict[str, dict[str, Any]]:
    """Manifests by name: one with every kind of parameter, and those of the wheels that are kept."""
    found = {"kinds": manifests.whole(kernels=KINDS)}
    for wheel in sorted(KEPT.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                if path.endswith("/manifest.json"):
                    found[f"{wheel.name.partition('-')[0]}_{len(found)}"] = json.loads(archive.read(path))
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[int]]]:
    """A folder with a package of stubs, and a file of uses for each; the wrong lines of each file."""
    folder = tmp_path_factory.mktemp("stubs")
    package = folder / "packaged"
    package.mkdir()
    for name in ("__init__.py", "py.typed"):
        (package / name).touch()
    wrong = {}
    for name, whole in _modules().items():
        (package / f"{name}.pyi").write_text(stub.render(whole, "# Made for a test"))
        text, lines = uses.of(whole, "packaged", name)
        (folder / f"use_{name}.py").write_text(text)
        wrong[f"use_{name}.py"] = set(lines)
    whole = manifests.whole(kernels=[grids.PAIR], by_grid=True)
    (package / "by_grid.pyi").write_text(stub.render(whole, "# Made for a test"))
    (folder / "use_by_grid.py").write_text("\n".join([GRID, *GRID_WRONG, ""]))
    first = len(GRID.splitlines()) + 2
    wrong["use_by_grid.py"] = {*range(first, first + len(GRID_WRONG))}
    return folder, wrong


def _mypy(folder: Path) -> dict[str, set[int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "."]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return _lines(re.findall(r"^(\S+?):(\d+): error: .*$", shown.stdout, re.MULTILINE))


def _pyright(folder: Path) -> dict[str, set[int]]:
    (folder / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "reportUnusedExpression": "none", "reportPrivateUsage": "none"})
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(folder)]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(shown.stdout)["generalDiagnostics"]
    errors = [item for item in found if item["severity"] == "error"]
    return _lines([(Path(item["file"]).name, item["range"]["start"]["line"] + 1) for item in errors])


def _lines(pairs: list[Any]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, line in pairs:
        found.setdefault(name.removeprefix("./"), set()).add(int(line))
    return found


GRID = """\
from typing import Any

import aotcuda
from packaged import by_grid as m


class Array:
    __cuda_array_interface__: Any = None


def grid(meta: dict[str, Any]) -> tuple[int, int]:
    return meta["BLOCK"], 1


m.k[4](Array(), 2.0, 3, 128)
m.k[4, 2](Array(), 2.0, 3, BLOCK=128, num_warps=4)
m.k[grid](Array(), factor=2, n=3, BLOCK=128, ACT="relu")
m.k.configure(4, stream=7)(Array(), 2.0, 3, 128)
launcher: aotcuda.GridLauncher = m.k[4]
"""
GRID_WRONG = [
    "m.k(Array(), 2.0, 3, 128)",
    "m.k['4'](Array(), 2.0, 3, 128)",
    "m.k[4](Array(), 2.0, 3)",
    "m.k[4](2.0, 2.0, 3, 128)",
    "m.k[4](Array(), 2.0, 'n', 128)",
    "m.k[4](Array(), 2.0, 3, 128, None, 4)",
    "m.k[4](Array(), 2.0, 3, 128, WIDTH=4)",
    "m.k.configure(4, 32)",
    "m.k.configure(4, shared=32)",
    "after: int = 'it is still checked'",
]


@pytest.mark.parametrize(("module", "check"), [("mypy", _mypy), ("pyright", _pyright)])
def test_right_uses_pass_and_each_wrong_one_is_an_error(
    used: tuple[Path, dict[str, set[int]]], module: str, check: Callable[[Path], dict[str, set[int]]]
) -> None:
    pytest.importorskip(module)
    folder, wrong = used
    found = check(folder)
    text = {name: (folder / name).read_text().splitlines() for name in wrong}
    missed = [text[name][line - 1] for name in wrong for line in wrong[name] - found.get(name, set())]
    refused = [text[name][line - 1] for name in wrong for line in found.get(name, set()) - wrong[name]]
    assert (missed, refused) == ([], [])
    assert found.keys() == wrong.keys()  # the stubs themselves are clean
    assert min(map(len, wrong.values())) >= 10
