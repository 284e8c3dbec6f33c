"""Test that errors about code and signatures have the user's key, the fact and the place.

One project contains all mistakes of a kind, because a build reports all errors at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration.projects import MODULE, lines_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path


class Mistake(NamedTuple):
    """A mistake in code or in the table. In all attributes, NAME stands for the mistake's name.

    Attributes:
        source: Code for the source module. The error names the line that ends in `# here`.
        key: The line of the module's table.
        words: Parts of the error, in their order.
    """

    source: str
    key: str
    words: tuple[str, ...]


def in_kernel(code: str, *words: str, signature: str = "float32[::1], int32") -> Mistake:
    """Return a mistake in a kernel of x, n and i: in the line that ends in `# here`, or else in the last line."""
    code = code if "# here" in code else f"{code}  # here"
    lines = "".join(f"    {line}\n" for line in code.split("\n"))
    return Mistake(f"def NAME(x, n):\n    i = 1\n{lines}", f'kernels.NAME = "void({signature})"', words)


def in_function(signature: str, code: str, *words: str) -> Mistake:
    """Return a mistake in a device function of x with the C ABI."""
    lines = "".join(f"    {line}\n" for line in code.split("\n"))
    return Mistake(f"def NAME(x):\n{lines}", f'functions.NAME = "{signature}"', words)


def in_table(key: str, source: str, *words: str) -> Mistake:
    """Return a mistake in a line of the table, or in the object that the line names."""
    return Mistake(f"{source}\n", key, words)


def build_errors(folder: Path, mistakes: dict[str, Mistake]) -> dict[str, str]:
    """Build a project with all `mistakes`; return the error of each, with (PLACE) for the expected file and line."""
    source, module, places = HEAD, [], {}
    for name, mistake in mistakes.items():
        source += f"\n{mistake.source.replace('NAME', name)}"
        if "# here" in mistake.source:
            places[name] = source[: source.rindex("# here")].count("\n") + 1
        module.append(mistake.key.replace("NAME", name))
    lines = lines_of(refused(write(folder / "project", source, module="\n".join(module))).err)
    assert len(lines) == len(mistakes), "\n".join(lines)
    errors = {}
    for name, key in zip(mistakes, module, strict=True):
        start = f"{MODULE}.{key.partition(' =')[0]}"
        (line,) = [line for line in lines if line.startswith(start) and line[len(start)] in ":.["]
        errors[name] = line.replace(f"(pkg/_k.py:{places.get(name)})", "(PLACE)")
    return errors


def assert_words(name: str, mistake: Mistake, line: str) -> None:
    """Check that an error has the words of a mistake in their order, and the place."""
    rest = line
    for word in mistake.words:
        assert word.replace("NAME", name) in rest, line
        rest = rest.partition(word.replace("NAME", name))[2]
    assert ("(PLACE)" in line) == ("# here" in mistake.source), line


HEAD = """\
import math, os, random, signal
import numba
import numpy
import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice
from numba.cuda.random import xoroshiro128p_uniform_float32

TABLE = {1: 2}

def helper(a, b=2):
    return a + b

class Bomb:
    @property
    def _numba_type_(self):
        os.kill(os.getpid(), signal.SIGSEGV)

BOMB = Bomb()
"""
TEXT = ("makes or reads text", "pass the parts to print")
MEMORY = ("a list, dict or set", "use a tuple")
INDICES = ("an array is indexed by fewer or more numbers than it has dimensions", "as many indices")
NUMBER = ("a number is used as an array", "float32[::1]")
SIZE = ("the size of a shared or local array must be a constant", "write a constant")
KERNEL = ("is a kernel, which returns nothing; list it under kernels, or write @cuda.jit(device=True)",)
NO_C_TYPE = "which has no type in the C ABI"
ROWS = "float32[:, ::1], int32"

NUMBA_MISTAKES = {
    # Errors that keep the words of the compiler.
    "in_a_helper": Mistake(
        "def bad(value):\n    return value.nothing  # here\ndef NAME(x):\n    x[0] = bad(x[0])\n",
        'kernels.NAME = "void(float32[:])"',
        ("void(float32[:]): Unknown attribute 'nothing' of type float32",),
    ),
    "undefined": in_kernel("x[0] = nowhere", "NameError: name 'nowhere' is not defined"),
    "misspelt": in_kernel("x[0] = math.sqtr(x[0])", "module 'math' has no attribute 'sqtr'"),
    "crashes": Mistake(
        "def NAME(x):\n    x[0] = BOMB\n", 'kernels.NAME = "void(float32[:])"', ("the compiler crashed (SIGSEGV)",)
    ),
    # Errors of the rows of error_table.py.
    "try_": in_kernel(
        "try:\n    x[0] = 1  # here\nexcept Exception:\n    x[0] = 2", "try and except", "check for the fault before"
    ),
    "text_in_print": in_kernel('print(f"{x[0]} and {x[1]}")', *TEXT),
    "text_made": in_kernel("y = x[0]\nprint(str(y))", *TEXT),
    "shared_n": in_kernel("t = cuda.shared.array(n, float32)  # here\nx[0] = t[0]", *SIZE),
    "local_pair": in_kernel("t = cuda.local.array((2, n), float32)  # here\nx[0] = t[0, 0]", *SIZE),
    "returns": in_kernel("return x[0]", "a kernel returns nothing, and this one returns float32", "store the result"),
    "device_array": in_kernel("y = np.zeros(3)", "makes an array on the device", "pass an array"),
    "list_": in_kernel("x[0] = [1, 2][int(x[1])]", *MEMORY),
    "list_comprehension": in_kernel("x[:] = [y * 2 for y in x]", *MEMORY),
    "dict_": in_kernel("found = {}\nfound[1] = x[0]", *MEMORY),
    "set_": in_kernel("x[0] = len({1, 2})", *MEMORY),
    "index_too_many": in_kernel("y = x[(n, 0)]", *INDICES),
    "index_stored": in_kernel("x[(n, 0, i)] = 1", *INDICES, signature=ROWS),
    "index_missing": in_kernel("x[0, 0] = x[1] + 1", *INDICES, signature=ROWS),
    "number_read": in_kernel("y = x[0]", *NUMBER, signature="float32, int32"),
    "ufunc": in_kernel("x[0] = numpy.sqrt(x[1])", "kernels cannot call sqrt", "the math module's function"),
    "module": in_kernel("x[0] = numpy.random.rand()", "kernels cannot call rand", "write its computation"),
    "global_": in_kernel("x[0] = TABLE[1]", "TABLE has type dict", "make it a number, a tuple or a NumPy array"),
    "types": in_kernel(
        'x[0] = x + "a"', "No implementation of add(array(float32, 1d, C), Literal[str](a))", "pass arguments"
    ),
    # Errors about types that an ABI cannot pass.
    **{
        f"takes_{name}": Mistake(
            "def NAME(x):\n    pass\n",
            f'kernels.NAME = "void({signature})"',
            (f"argument {argument!r} is of type {kind}, which a packaged kernel cannot accept; pass numbers",),
        )
        for name, signature, argument, kind in [
            ("list", "ListType(float32)", "x", "ListType[float32]"),
            ("optional_in_tuple", "Tuple((int32, Optional(float32)))", "x[1]", "OptionalType(float32)"),
        ]
    },
    "raises": in_function(
        "int32(int32)",
        'if x > 3:\n    raise ValueError("no")  # here\nreturn x',
        "the C ABI cannot raise, and this one raises ValueError",
        "return a value instead",
    ),
    "kernel": in_table(
        'functions.NAME = "(CPointer(float32),)"',  # its result is inferred
        "@cuda.jit  # here\ndef NAME(x):\n    x[cuda.grid(1)] = 1",
        *KERNEL,
    ),
    "perhaps": in_function("Optional(int32)(int32)", "if x > 3:\n    return x", "cannot return None in some cases"),
    "pair": in_function("int32(int32)", "return (x, x)  # here", "UniTuple(int32 x 2) to int32"),
    "optional_for_c": in_function("int32(Optional(float32))", "return 1", f"OptionalType(float32), {NO_C_TYPE}"),
}
# The words of numba-cuda-mlir where they differ from those of numba-cuda. None: numba-cuda-mlir compiles the code.
MLIR_WORDS: dict[str, tuple[str, ...] | None] = {
    "ufunc": ("lowering call to <ufunc 'sqrt'>",),
    "types": ("AttributeError: 'UnicodeType' object has no attribute 'dtype'",),
    "shared_n": None,
    "local_pair": None,
    "device_array": None,  # test_mlir_refused.py tests an array that is refused
}
CODE_MISTAKES = {
    front_ends.NUMBA: NUMBA_MISTAKES,
    front_ends.MLIR: {
        name: mistake._replace(words=words)
        for name, mistake in NUMBA_MISTAKES.items()
        if (words := MLIR_WORDS.get(name, mistake.words)) is not None
    },
}


@pytest.fixture(scope="module")
def compile_errors(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build_errors(tmp_path_factory.mktemp("compiling"), CODE_MISTAKES[front_end])


@pytest.mark.parametrize(
    ("front_end", "name"),
    [(front_end, name) for front_end, mistakes in CODE_MISTAKES.items() for name in mistakes],
    indirect=["front_end"],
    scope="module",
)
def test_compile_error_has_key_fact_and_place(front_end: str, name: str, compile_errors: dict[str, str]) -> None:
    assert_words(name, CODE_MISTAKES[front_end][name], compile_errors[name])


PLAIN = "def NAME(x):\n    x[0] = 1"
NOTATION = "is not a signature in Numba's notation: "
TABLE_MISTAKES = {
    **{
        f"kernel_{number}": in_table(
            f"functions.NAME = {signature}", f"@cuda.jit{call}  # here\ndef NAME(x):\n    x[cuda.grid(1)] = 1", *KERNEL
        )
        for number, (signature, call) in enumerate(
            [
                ('"void(CPointer(float32))"', ""),
                ('"void(float32[::1])"', "(fastmath=True)"),
                ("{}", '("void(CPointer(float32))")'),
                ("{}", '("(int8[::1],)")'),
            ]
        )
    },
    "device_kernel": in_table(
        'kernels.NAME = "void(float32[:])"',
        "@cuda.jit(device=True)  # here\ndef NAME(x):\n    x[0] = 1",
        "is a device function (device=True); list it under functions, or remove device=True",
    ),
    "unknown_type": in_table(
        'kernels.NAME = "void(flot32[:])"', PLAIN, f"{NOTATION}'flot32' is no", "did you mean float32?"
    ),
    "comma": in_table(
        'kernels.NAME = { signatures = ["void(float32[:])", "void(float32,,)"] }',
        PLAIN,
        "NAME.signatures[1]: ",
        NOTATION,
    ),
    "number": in_table(
        'kernels.NAME.signature = "void(3)"', PLAIN, f"NAME.signature: 'void(3)' {NOTATION}write Numba's types"
    ),
    "sized": in_table(
        'kernels.NAME = "void(float32[3])"', PLAIN, f"{NOTATION}float32[3] is not a type", "write float32[::1]"
    ),
    "numpys_type": in_table(
        'kernels.NAME = "void(np.float32[:])"', PLAIN, f"{NOTATION}np.float32 is NumPy's type", "write float32"
    ),
    "pythons_type": in_table('kernels.NAME = "void(float)"', PLAIN, f"{NOTATION}float is Python's type", "float64"),
    "ufunc": in_table(
        'kernels.NAME = "void(float32, float32)"',
        "@numba.vectorize  # here\ndef NAME(a, b):\n    return a + b",
        "is made by @vectorize or @guvectorize",
        "write a kernel",
    ),
    "too_many": in_table(
        'kernels.NAME = "void(f4[:], i4)"', "def NAME(x):  # here\n    x[0] = 1", "has 2 arguments where NAME takes 1"
    ),
    "twice": in_table(
        'kernels.NAME = ["void(float32)", "void(f4)"]', PLAIN, "NAME[1]: 'void(f4)' is the same", "remove one"
    ),
    "result": in_table('kernels.NAME = "float32(float32)"', PLAIN, "a kernel returns nothing", "write void(...)"),
    "some_funktion": in_table(
        'kernels.NAME = "void(f4)"', "def some_function(x):\n    pass", "did you mean some_function?"
    ),
    "dotted": in_table(
        'kernels.NAME = { python = "pkg._k.Held.held", signature = "void(float32[:])" }',
        "class Held:\n    def held(x):\n        pass",
        "pkg._k has no function pkg",
        "did you mean pkg._k:Held.held?",
    ),
    "TABLE": in_table(
        'kernels.NAME = "void(float32[:])"', "", "pkg._k.TABLE is of type dict", "name a Python function"
    ),
    "generator": in_table(
        'kernels.NAME = "void(f4)"', "def NAME(x):  # here\n    yield 1", "is a generator", "name a plain function"
    ),
    "keyword": in_table(
        'kernels.NAME = "void(f4, i4)"',
        "def NAME(x, *, n):  # here\n    pass",
        "takes n by keyword only",
        "use a fixed",
    ),
}


@pytest.fixture(scope="module")
def table_errors(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build_errors(tmp_path_factory.mktemp("tables"), TABLE_MISTAKES)


@pytest.mark.parametrize("name", TABLE_MISTAKES)
def test_table_error_has_key_and_fact(name: str, table_errors: dict[str, str]) -> None:
    assert_words(name, TABLE_MISTAKES[name], table_errors[name])


# Compilers name a line of a library for each of these statements, or no line. The error names the line of the user.
STATEMENTS = """\
x[0] = np.interp(1.0, x, x)
cuda.atomic.add(x, 'a', 1)
x[0] = np.unique(x)[0]
x[0] = sorted([3, 2])[0]
x[0] = random.random()
x[0] = x[x > 0][0]
x[0] = x.sum(axis=0, keepdims=True)
x[0] = np.linspace(0, 1, 3)[0]
x[0] = cuda.shfl_sync(1, 2)
x[0] = cuda.shared.array('a', 'b')[0]
x[0] = libdevice.sinf("a")
x[0] = xoroshiro128p_uniform_float32(x, 0)
x[0] = isinstance(x, 3)
x["a"] = 1
x[0] = helper(x[0], nothing=3)
raise ValueError(x)
""".splitlines()


@pytest.fixture(scope="module")
def statement_errors(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    mistakes = {f"k{at}": in_kernel(f"{statement}  # here\nx[1] = i") for at, statement in enumerate(STATEMENTS)}
    return build_errors(tmp_path_factory.mktemp("places"), mistakes)


@pytest.mark.parametrize("name", [f"k{at}" for at in range(len(STATEMENTS))])
def test_error_names_the_line_of_the_user(name: str, statement_errors: dict[str, str]) -> None:
    assert "(PLACE)" in statement_errors[name], STATEMENTS[int(name[1:])]
