"""Test the errors of numba-cuda-mlir for code that numba-cuda compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import MODULE, lines_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.front_end(front_ends.MLIR)

# The table in docs/frontends.md.
BEYOND = {
    "strings": (
        "def strings(x, y):\n    y[0] = x[0] == x[1]\n",
        'kernels.strings = "void(UnicodeCharSeq(3)[::1], boolean[::1])"',
        "kernels.strings: void(UnicodeCharSeq(3)[::1], boolean[::1]): argument 'x' is of type UnicodeCharSeq(3)[::1] ",
    ),
    "shared_records": (
        """
from numba import cuda
import numpy as np
particle = np.dtype([("x", "f8"), ("id", "i4")])
def shared_records(x):
    tile = cuda.shared.array(8, particle)
    tile[cuda.threadIdx.x] = x[0]
    x[0] = tile[7 - cuda.threadIdx.x]
""",
        'kernels.shared_records = "void(particle[::1])"',
        'kernels.shared_records: void(particle[::1]): "pkg/_shared_records.py":5:0: invalid memref element type (pkg',
    ),
    "fields_that_do_not_divide_a_record": (
        """
import numpy as np
particle = np.dtype([("id", "i4"), ("x", "f8")])
def fields(a):
    a.x[1] = 2
""",
        'kernels.fields = "void(particle[::1])"',
        "kernels.fields: void(particle[::1]): it takes the field x of a whole array of records (pkg/",
    ),
    "functions_that_call_each_other": (
        """
def even(n):
    return True if n == 0 else odd(n - 1)
def odd(n):
    return False if n == 0 else even(n - 1)
def mutual(x):
    x[0] = even(x[1])
""",
        'kernels.mutual = "void(int64[::1])"',
        "kernels.mutual: void(int64[::1]): functions that it calls call each other in a circle, which numba-cuda-mlir ",
    ),
    "members_of_an_enumeration": (
        """
import enum
class Colour(enum.IntEnum):
    RED = 7
def colours(x):
    x[0] = Colour.RED
""",
        'kernels.colours = "void(int32[::1])"',
        "kernels.colours: void(int32[::1]): NotImplementedError: lowering setitem x[0] = ",
    ),
    "product_of_float16": (
        "from numba import cuda\ndef halves(x):\n    x[0] = cuda.fp16.hsqrt(x[0] * x[0])\n",
        'kernels.halves = "void(float16[::1])"',
        "kernels.halves: void(float16[::1]): ",
    ),
    "reshape_to_more_dimensions": (
        "def reshaped(x):\n    x.reshape(2, 3)[1, 0] = x[0]\n",
        'kernels.reshaped = "void(float32[::1])"',
        "kernels.reshaped: void(float32[::1]): ",
    ),
    "reshape_to_as_many_dimensions": (
        "def reshaped(x):\n    x.reshape((3, 2))[1, 0] = 2\n",
        'kernels.reshaped = "void(float32[:, ::1])"',
        "kernels.reshaped: void(float32[:, ::1]): numba-cuda-mlir makes invalid MLIR of reshaped (pkg/",
    ),
    "result_of_a_function_without_one": (
        """
from numba import cuda
silent = cuda.declare_device("silent", "void(int32)", abi="c", link=cuda.CUSource(
    'extern "C" __device__ void silent(int x) {}'
))
def tests(x):
    y = silent(x[0])
    if y is None:
        x[0] = 1
""",
        'kernels.tests = "void(int32[::1])"',
        "kernels.tests: void(int32[::1]): ",
    ),
    "array_on_the_device": (
        "import numpy as np\ndef makes(x):\n    x[0] = np.zeros(4)[1]\n",
        'kernels.makes = "void(float64[::1])"',
        "kernels.makes: void(float64[::1]): ",
    ),
    "device_array_of_a_closure": (
        """
class Array:
    __cuda_array_interface__ = dict(data=(4096, False), shape=(3,), typestr="<f4", version=3)
TABLE = Array()
def reads(x):
    x[0] = TABLE[0]
""",
        'kernels.reads = "void(float32[::1])"',
        "kernels.reads: void(float32[::1]): it uses an array on the GPU that is a global or belongs to a closure; ",
    ),
}


@pytest.fixture(scope="module")
def errors(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build all cases, each in its own module; return the error of each case."""
    project = write(tmp_path_factory.mktemp("beyond") / "project", "")
    config = (project / "pyproject.toml").read_text().partition(f"[{MODULE}]")[0]
    for name, (source, key, _) in BEYOND.items():
        (project / "pkg" / f"_{name}.py").write_text(projects.source(source))
        config += f'[tool.aotcuda.modules."pkg.{name}"]\nsource = "pkg._{name}"\n{key}\n\n'
    (project / "pyproject.toml").write_text(config)
    lines = lines_of(refused(project).err)
    return {line.split('"')[1].removeprefix("pkg."): line for line in lines}


@pytest.mark.parametrize("name", BEYOND)
def test_unsupported_code_is_refused_by_name(errors: dict[str, str], name: str) -> None:
    line = errors[name]
    assert line.startswith(f'tool.aotcuda.modules."pkg.{name}".{BEYOND[name][2]}'), line
    assert f"pkg/_{name}.py:" in line


@pytest.mark.usefixtures("front_end")
def test_compilation_at_import_is_refused(tmp_path: Path) -> None:
    line = "PTX = cuda.compile_ptx(f, 'void(float32[:])')"
    source = f"from numba import cuda\ndef f(x):\n    x[0] = 1\n{line}\n"
    done = refused(write(tmp_path / "project", source, module='kernels.f = "void(float32[:])"'))
    assert done.message == (
        f"{MODULE}.source: importing pkg._k failed: RuntimeError: this needs a GPU, and a build has none; do it in a "
        f"function that is called later (pkg/_k.py:4: {line})"
    )
