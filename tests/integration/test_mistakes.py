"""Check the message that each common mistake of a new user gets: the place, the fact, and the remedy."""

from __future__ import annotations

import sys
import tomllib
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
    from pathlib import Path

MESSAGES = {
    "a key is misspelt": 'tool.aotcuda.modules."mypkg.kernels".souce: unknown key; did you mean source?',
    "a function is misspelt": (
        'tool.aotcuda.modules."pkg.k".kernels.scael: pkg._k has no function scael; did you mean scale?'
    ),
    "a type is misspelt": (
        "tool.aotcuda.modules.\"pkg.k\".kernels.scale: 'void(flaot32[::1])' is no signature in Numba's "
        "notation: 'flaot32' is no Numba type; did you mean float32?"
    ),
    "a target is misspelt": (
        "tool.aotcuda.arch[0]: expected sm_XY (machine code) or compute_XY (PTX), found the string "
        '"sm90"; write "sm_90"'
    ),
    "the hook's table is forgotten": (
        "pyproject.toml has [tool.aotcuda], and does not turn the build hook on: add the table "
        "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
    ),
    "a kernel returns a value": (
        'tool.aotcuda.modules."pkg.k".kernels.returns: void(float32[::1]): a kernel returns nothing, '
        "and this one returns float32 (pkg/_k.py:6); store the result in an array"
    ),
    "an f-string in a kernel": (
        'tool.aotcuda.modules."pkg.k".kernels.text: void(float32[::1]): it makes or reads text, as '
        'an f-string does (pkg/_k.py:10); give print the parts, as in print("x is", x[i])'
    ),
    "try in a kernel": (
        'tool.aotcuda.modules."pkg.k".kernels.tries: void(float32[::1]): try and except are not '
        "compiled for GPUs (pkg/_k.py:16); check for the fault before it happens"
    ),
    "a NumPy function in a kernel": (
        'tool.aotcuda.modules."pkg.k".kernels.middle: void(float32[::1]): No implementation of '
        "median(array(float32, 1d, C)) (pkg/_k.py:21); pass arguments of types that it accepts, or write its "
        "computation out"
    ),
    "a NumPy type in a signature": (
        "tool.aotcuda.modules.\"pkg.k\".kernels.shift: 'void(np.float32[::1])' is no signature in "
        "Numba's notation: np.float32 is NumPy's type, and a signature has Numba's; write float32"
    ),
    "shared memory of a size known at run time": (
        'tool.aotcuda.modules."pkg.k".kernels.shared: void(float32[::1], int32): the size of an '
        "array must be known when it is compiled, and int32 is known at run time alone "
        "(pkg/_k.py:25); make it a constant, or use cuda.shared.array(0, dtype), whose size "
        "the launch sets"
    ),
    "an array on the GPU, made at import": (
        'tool.aotcuda.modules."pkg.k".source: importing pkg._k failed: CudaSupportError: this needs '
        "a GPU, and a build has none; do it in a function that is called later (pkg/_k.py:12: "
        "scratch = cuda.device_array(10))"
    ),
    "a launch at import": (
        'tool.aotcuda.modules."pkg.k".source: importing pkg._k failed: RuntimeError: scale is a '
        "kernel; launching it needs a GPU, and a build has none; do it in a function that is called "
        "later (pkg/_k.py:12: scale[1, 1](np.zeros(3, np.float32)))"
    ),
    "the extra is forgotten": (
        "building needs compilers, which are not installed (No module named 'cuda'); run: pip install 'aotcuda[cu13]'"
    ),
    "too few arguments": "mypkg.kernels.axpy takes 3 arguments, got 2",
    "an array in the host's memory": (
        "mypkg.kernels.axpy: argument 2, b, is an array in the host's memory (numpy.ndarray); copy "
        "it to the GPU first, as cupy.asarray does (or set AOTCUDA_HOST_ARRAYS=copy)"
    ),
    "no configuration": "mypkg.kernels.axpy needs a configuration: axpy[grid, block](...) or axpy.forall(n)(...)",
    "keyword arguments": (
        "mypkg.kernels.axpy accepts positional arguments, not names ('a', 'x', 'y'): write axpy[grid, block](a, b, c)"
    ),
    "no driver": (
        "the CUDA driver library libcuda.so.1 cannot be loaded (libcuda.so.1: cannot open shared "
        "object file: No such file or directory); install NVIDIA's driver, or run where a GPU is "
        "available"
    ),
    "an old driver": (
        "mypkg.alone has no image for GPU 0 (Stand-in A, compute capability 9.0): the driver "
        "supports CUDA 12.2, and the images need CUDA 13.0, which driver 580.65 or newer has; update "
        "the driver (sm_80 is machine code for compute capability 8.0 to 8.x; sm_90 needs a driver "
        "for CUDA 13.0; compute_75 needs a driver for CUDA 13.0)"
    ),
    "a GPU that is too old": (
        "mypkg.alone has no image for GPU 0 (Stand-in A, compute capability 6.1): none of the "
        "packaged images runs on it (sm_80 is machine code for compute capability 8.0 to 8.x; sm_90 "
        "is machine code for compute capability 9.0 to 9.x; compute_75 is PTX for compute capability "
        "7.5 and newer); it runs here if it is built with sm_61 in arch, or compute_XY of at most "
        "that, by the compilers of CUDA 12 (extra cu12 or wide): CUDA 13's begin with 7.5"
    ),
}

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
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the messages of builds; mistakes that are found together are made in one project."""
    folder = tmp_path_factory.mktemp("mistakes")
    found = {}
    keys = "".join(f"kernels.{name} = {SIGNATURE}\n" for name in ("returns", "text", "tries", "middle"))
    keys += 'kernels.shared = "void(float32[::1], int32)"\n'
    lines = lines_of(refused(write(folder / "compiling", COMPILING, module=keys)).err)
    found |= dict(
        zip(
            (
                "a kernel returns a value",
                "an f-string in a kernel",
                "try in a kernel",
                "a NumPy function in a kernel",
                "shared memory of a size known at run time",
            ),
            lines,
            strict=True,
        )
    )
    keys = 'kernels.scale = "void(flaot32[::1])"\nkernels.shift = "void(np.float32[::1])"\n'
    keys += f"kernels.scael = {SIGNATURE}\n"
    lines = lines_of(refused(write(folder / "understanding", UNDERSTANDING, module=keys)).err)
    found |= dict(
        zip(("a type is misspelt", "a NumPy type in a signature", "a function is misspelt"), lines, strict=True)
    )
    for mistake, line in (
        ("an array on the GPU, made at import", "scratch = cuda.device_array(10)"),
        ("a launch at import", "scale[1, 1](np.zeros(3, np.float32))"),
    ):
        source = f"import numpy as np\n{UNDERSTANDING}\n{line}\n"
        project = write(
            folder / mistake.replace(" ", "_").replace(",", ""), source, module=f"kernels.scale = {SIGNATURE}"
        )
        (found[mistake],) = lines_of(refused(project).err)
    return found


@pytest.fixture
def k(cuda):
    return cuda.package(kernel("axpy", "void(float32, float32[::1], float32[::1])"), fallback="error")


def raised(call: Callable[[], object], error: type[Exception] = AotcudaError) -> str:
    """Return the first line of what a call raises."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).splitlines()[0]


def configured(change: tuple[str, str]) -> str:
    """Return what is said of a table that is right but for a change."""
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
    """Return the output of a build by an interpreter that has only aotcuda."""
    project = write(tmp_path / "project", UNDERSTANDING, module=f"kernels.scale = {SIGNATURE}")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aotcuda.cli import main; sys.exit(main())"
    return refused(project, sys.executable, "-S", "-c", program, str(projects.CHECKOUT), "build").said


@pytest.mark.parametrize("mistake", MESSAGES)
def test_a_mistake_gets_its_message(
    mistake: str, built, cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request
) -> None:
    x = np.zeros(4, np.float32)

    def launched(call):
        return raised(lambda: call(request.getfixturevalue("k")), (AotcudaError, TypeError))

    said = {
        "a key is misspelt": lambda: configured(("source =", "souce =")),
        "a target is misspelt": lambda: configured(('"sm_90"', '"sm90"')),
        "the hook's table is forgotten": lambda: without_hook(tmp_path),
        "the extra is forgotten": lambda: without_extra(tmp_path),
        "too few arguments": lambda: launched(lambda k: k.axpy[1, 1](1.0, x)),
        "an array in the host's memory": lambda: launched(lambda k: k.axpy[1, 1](1.0, x, x)),
        "no configuration": lambda: launched(lambda k: k.axpy(1.0, x, x)),
        "keyword arguments": lambda: launched(lambda k: k.axpy[1, 1](a=1.0, x=x, y=x)),
        "no driver": lambda: no_driver(cuda, monkeypatch),
        "an old driver": lambda: other_machine(cuda, devices="9.0", version=12020),
        "a GPU that is too old": lambda: other_machine(cuda, devices="6.1", version=13000),
    }
    found = built[mistake] if mistake in built else said[mistake]()
    assert found.replace(str(tmp_path), "").lstrip("/") == MESSAGES[mistake]


def no_driver(cuda, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("aotcuda.runtime.driver.LIBRARY", "libcuda.so.1")
    monkeypatch.setattr("aotcuda.runtime.driver._driver", None)
    module = cuda.package(kernel("axpy", "void(float32)"), name="mypkg.alone", fallback="error")
    return raised(lambda: module.axpy[1, 1](1.0))


def other_machine(cuda, **settings: object) -> str:
    cuda.set(**settings)
    module = cuda.package(kernel("axpy", "void(float32)"), name="mypkg.alone", fallback="error")
    return raised(lambda: module.axpy[1, 1](1.0))
