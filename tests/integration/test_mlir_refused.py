"""What the second front end says of what it cannot compile: the first one's mistakes, and some of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, lines_of, refused, write
from integration.test_refused_code import (
    COMPILING,
    STATEMENTS,
    UNDERSTANDING,
    Mistake,
    expected,
    place_told,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("mlir")

# The same code, of which this compiler says something else.
OTHERWISE = {
    "text_for_c": """{M}.functions.text_result: unicode_type(int32): it allocates memory on the device (Numba's NRT),
    which a packaged kernel cannot do ({F}:text_for_c)""",
    "no_implementation": """{M}.kernels.adds: void(float32[:]): AttributeError: 'UnicodeType' object has no attribute
    'dtype' ({F}:no_implementation)""",
    "undefined_name": """{M}.kernels.undefined: void(float32[:]): NameError: name 'nowhere' is not defined
    ({F}:undefined_name)""",
    "recursion": """{M}.kernels.recurses: void(int32[:]): numba-cuda-mlir makes invalid MLIR of fib ({F}:24):
    'func.call' op operand type mismatch: expected operand type 'i32', but provided 'i64' for operand number 0""",
}
# What this compiler takes: its shared arrays of a size of run time lie in the memory whose size the launch gives.
TAKEN = ("keywords_only", *(name for name in COMPILING if name.startswith("a_shared_array_of_")))
SAME = {
    name: Mistake(mistake.source, mistake.key, OTHERWISE.get(name, mistake.said))
    for name, mistake in COMPILING.items()
    if name not in TAKEN and name != "device_array"  # BEYOND has one of its own
}


@pytest.fixture(scope="module")
def refused_by_the_compiler(mlir: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(tmp_path_factory.mktemp("compiling"), SAME)


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_compile_is_named_by_key_reason_and_place(name: str, refused_by_the_compiler: list[str]) -> None:
    assert expected(SAME[name]) in refused_by_the_compiler


@pytest.fixture(scope="module")
def refused_before_compiling(mlir: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(tmp_path_factory.mktemp("understanding"), UNDERSTANDING)


@pytest.mark.parametrize("name", UNDERSTANDING)
def test_what_is_not_understood_is_named_by_key_and_reason(name: str, refused_before_compiling: list[str]) -> None:
    assert expected(UNDERSTANDING[name]) in refused_before_compiling


@pytest.fixture(scope="module")
def places(mlir: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    return place_told(tmp_path_factory.mktemp("places"))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_users_own_line_is_told(statement: str, places: dict[str, tuple[str, str]]) -> None:
    place, said = places[statement]
    assert place in said


# What the first front end compiles and this one does not: the table in docs/frontends.md.
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
def test_what_this_compiler_cannot_do_is_refused_by_name(name: str, tmp_path: Path) -> None:
    source, key, said = BEYOND[name]
    done = refused(write(tmp_path / "project", source, module=key))
    (line,) = lines_of(done.err)
    assert line.startswith(f"{MODULE}.{said}"), done.err
    assert "pkg/_k.py:" in line or "argument 'x'" in line
