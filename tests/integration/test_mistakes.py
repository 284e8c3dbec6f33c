"""Beginners' mistakes: each gets the message that docs/results/mistakes.md shows and rates."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda.builder.config.parser import parse
from aotcuda.common import uninstalled_hook
from aotcuda.errors import AotcudaError, ConfigError
from integration import projects
from integration.projects import lines_of, refused, write
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "results" / "mistakes.md"
ROWS = re.findall(r"^\| (\d+) \| .*? \| `` ?(.+?) ?`` \| (\w+) \| (\w+) \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)

SIGNATURE = '"void(float32[::1])"'
COMPILING = """\
from numba import cuda, float32
import numpy as np

@cuda.jit
def returns(x):
    return x[0]

@cuda.jit
def text(x):
    print(f"x is {x[0]}")

@cuda.jit
def tries(x):
    try:
        x[0] = 1 / x[1]
    except ZeroDivisionError:
        x[0] = 0

@cuda.jit
def middle(x):
    x[0] = np.median(x)

@cuda.jit
def shared(x, n):
    tile = cuda.shared.array(n, float32)
    tile[0] = x[0]
    x[1] = tile[0]
"""
UNDERSTANDING = """\
from numba import cuda

@cuda.jit
def scale(x):
    x[0] *= 2

@cuda.jit
def shift(x):
    x[0] += 1
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What builds say, by the mistake's number; mistakes that are found together are made in one project."""
    folder = tmp_path_factory.mktemp("mistakes")
    found = {}
    keys = "".join(f"kernels.{name} = {SIGNATURE}\n" for name in ("returns", "text", "tries", "middle"))
    keys += 'kernels.shared = "void(float32[::1], int32)"\n'
    lines = lines_of(refused(write(folder / "compiling", COMPILING, module=keys)).err)
    found |= dict(zip((6, 7, 8, 9, 11), lines, strict=True))
    keys = 'kernels.scale = "void(flaot32[::1])"\nkernels.shift = "void(np.float32[::1])"\n'
    keys += f"kernels.scael = {SIGNATURE}\n"
    lines = lines_of(refused(write(folder / "understanding", UNDERSTANDING, module=keys)).err)
    found |= dict(zip((3, 10, 2), lines, strict=True))
    for number, line in ((12, "scratch = cuda.device_array(10)"), (13, "scale[1, 1](np.zeros(3, np.float32))")):
        source = f"import numpy as np\n{UNDERSTANDING}\n{line}\n"
        project = write(folder / f"importing{number}", source, module=f"kernels.scale = {SIGNATURE}")
        (found[number],) = lines_of(refused(project).err)
    return found


@pytest.fixture
def k(cuda):
    return cuda.package(kernel("axpy", "void(float32, float32[::1], float32[::1])"), fallback="error")


def raised(call: Callable[[], object], error: type[Exception] = AotcudaError) -> str:
    """The first line of what a call raises."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).splitlines()[0]


def configured(change: tuple[str, str]) -> str:
    """What is said of a table that is right but for a change."""
    text = """
[tool.aotcuda]
arch = ["sm_90"]
[tool.aotcuda.modules."mypkg.kernels"]
source = "mypkg._kernels"
kernels.axpy = "void(float32[::1])"
"""
    return raised(lambda: parse(tomllib.loads(text.replace(*change))["tool"]["aotcuda"], environ={}), ConfigError)


def without_hook(tmp_path: Path) -> str:
    table = '[build-system]\nbuild-backend = "hatchling.build"\n[tool.aotcuda]\narch = ["sm_90"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    return uninstalled_hook.in_project(str(tmp_path)) or ""


def without_extra(tmp_path: Path) -> str:
    """Of an interpreter that has aotcuda and nothing else."""
    project = write(tmp_path / "project", UNDERSTANDING, module=f"kernels.scale = {SIGNATURE}")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aotcuda.cli import main; sys.exit(main())"
    return refused(project, sys.executable, "-S", "-c", program, str(projects.CHECKOUT), "build").said


@pytest.mark.parametrize(("number", "expected"), [(int(number), said) for number, said, *_ in ROWS])
def test_a_mistake_gets_the_message_of_the_page(
    number: int, expected: str, built, cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request
) -> None:
    x = np.zeros(4, np.float32)

    def launched(call):
        return raised(lambda: call(request.getfixturevalue("k")), (AotcudaError, TypeError))

    said = {
        1: lambda: configured(("source =", "souce =")),
        4: lambda: configured(('"sm_90"', '"sm90"')),
        5: lambda: without_hook(tmp_path),
        14: lambda: without_extra(tmp_path),
        15: lambda: launched(lambda k: k.axpy[1, 1](1.0, x)),
        16: lambda: launched(lambda k: k.axpy[1, 1](1.0, x, x)),
        17: lambda: launched(lambda k: k.axpy(1.0, x, x)),
        18: lambda: launched(lambda k: k.axpy[1, 1](a=1.0, x=x, y=x)),
        19: lambda: no_driver(cuda, monkeypatch),
        20: lambda: other_machine(cuda, devices="9.0", version=12020),
        21: lambda: other_machine(cuda, devices="6.1", version=13000),
    }
    found = built[number] if number in built else said[number]()
    assert found.replace(str(tmp_path), "").lstrip("/") == expected


def no_driver(cuda, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("aotcuda.runtime.driver.LIBRARY", "libcuda.so.1")
    monkeypatch.setattr("aotcuda.runtime.driver._driver", None)
    module = cuda.package(kernel("axpy", "void(float32)"), name="mypkg.alone", fallback="error")
    return raised(lambda: module.axpy[1, 1](1.0))


def other_machine(cuda, **settings: object) -> str:
    cuda.set(**settings)
    module = cuda.package(kernel("axpy", "void(float32)"), name="mypkg.alone", fallback="error")
    return raised(lambda: module.axpy[1, 1](1.0))


def test_the_page_has_all_mistakes_and_rates_them() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 22))
    assert {rating for row in ROWS for rating in row[2:]} <= {"yes", "implied", "no"}
