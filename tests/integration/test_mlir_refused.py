"""What the second front end says of what it cannot compile, and the first one can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, lines_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.front_end(front_ends.MLIR)

# The table in docs/frontends.md.
BEYOND = {
    "colours": (
        "import enum\nclass Colour(enum.IntEnum):\n    RED = 7\ndef colours(x):\n    x[0] = Colour.RED\n",
        'kernels.colours = "void(int32[::1])"',
        "kernels.colours: void(int32[::1]): NotImplementedError: lowering setitem x[0] = ",
    ),
    "half_root": (
        "from numba import cuda\ndef half_root(x):\n    x[0] = cuda.fp16.hsqrt(x[0] * x[0])\n",
        'kernels.half_root = "void(float16[::1])"',
        "kernels.half_root: void(float16[::1]): InternalCompilerError: Cannot convert NoneType ",
    ),
    "reshaped": (
        "def reshaped(x):\n    x.reshape(2, 3)[0, 0] = 1\n",
        'kernels.reshaped = "void(float32[::1])"',
        "kernels.reshaped: void(float32[::1]): Invalid use of BoundFunction(Array.reshape ",
    ),
    "recursive_function": (
        "def factorial(n):\n    if n <= 1:\n        return 1\n    return n * factorial(n - 1)\n",
        'functions.factorial = "int64(int64)"',
        "functions.factorial: int64(int64): compiler re-entrant to the same function signature",
    ),
    "array_on_the_device": (
        "import numpy as np\ndef makes(x):\n    x[0] = np.zeros(4)[1]\n",
        'kernels.makes = "void(float64[::1])"',
        "kernels.makes: void(float64[::1]): ",
    ),
    "records_of_any_strides": (
        """
import numpy as np
particle = np.dtype([("x", "f8"), ("id", "i4")])
def strided(x):
    x[0].id = 1
""",
        'kernels.strided = "void(particle[:])"',
        "kernels.strided: void(particle[:]): argument 'x' is of type Array(Record(x: float64, id: int32), 1, 'A') ",
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
        "kernels.reads: void(float32[::1]): it uses an array on the GPU that is a global or belongs to a closure ",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_this_compiler_cannot_do_is_refused_by_name(front_end: str, name: str, tmp_path: Path) -> None:
    source, key, said = BEYOND[name]
    done = refused(write(tmp_path / "project", source, module=key))
    (line,) = lines_of(done.err)
    assert line.startswith(f"{MODULE}.{said}"), done.err
    assert "pkg/_k.py:" in line or "argument 'x'" in line
