"""Check the errors for code and signatures that cannot be compiled: the user's key, the fact and the place.

Mistakes of one kind are put into one project, since a build reports all of them at once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration.projects import MODULE, lines_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Mistake(NamedTuple):
    """Code, the key that names it, and words of the error.

    The line that ends in `# here` is the error's place. In all three, NAME stands for the mistake's name.
    """

    source: str
    key: str
    words: tuple[str, ...]


def in_kernel(code: str, *words: str, signature: str = "float32[::1], int32") -> Mistake:
    """Return a kernel of x and n with a mistake in the last line, or in the one that is marked."""
    code = code if "# here" in code else f"{code}  # here"
    lines = "".join(f"    {line}\n" for line in code.split("\n"))
    return Mistake(f"def NAME(x, n):\n    i = 1\n{lines}", f'kernels.NAME = "void({signature})"', words)


def in_function(signature: str, code: str, *words: str) -> Mistake:
    """Return a device function of x with the C ABI."""
    lines = "".join(f"    {line}\n" for line in code.split("\n"))
    return Mistake(f"def NAME(x):\n{lines}", f'functions.NAME = "{signature}"', words)


def errors(folder: Path, mistakes: dict[str, Mistake]) -> dict[str, str]:
    """Build a project that makes all `mistakes`; return the error of each, with (PLACE) for its own file and line."""
    source, module, places = HEAD, [], {}
    for name, mistake in mistakes.items():
        source += f"\n{mistake.source.replace('NAME', name)}"
        if "# here" in mistake.source:
            places[name] = source[: source.rindex("# here")].count("\n") + 1
        module.append(mistake.key.replace("NAME", name))
    lines = lines_of(refused(write(folder / "project", source, module="\n".join(module))).err)
    assert len(lines) == len(mistakes), "\n".join(lines)
    found = {}
    for name, key in zip(mistakes, module, strict=True):
        start = f"{MODULE}.{key.partition(' =')[0]}"
        (line,) = [line for line in lines if line.startswith(start) and line[len(start)] in ":.["]
        found[name] = line.replace(f"(pkg/_k.py:{places.get(name)})", "(PLACE)")
    return found


def assert_words(name: str, mistake: Mistake, line: str) -> None:
    """Check that the error has the words of the mistake, in their order, and its place."""
    rest = line
    for word in mistake.words:
        assert word.replace("NAME", name) in rest, line
        rest = rest.partition(word.replace("NAME", name))[2]
    assert ("(PLACE)" in line) == ("# here" in mistake.source), line


HEAD = """\
import collections, math, os, random, signal
import numba
import numba.typed
import numpy
import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice
from numba.cuda.random import xoroshiro128p_normal_float64, xoroshiro128p_uniform_float32
from numpy import int16 as narrow

TABLE = {1: 2}
LIST = [1, 2]
declared = cuda.declare_device("declared", "float32(float32, float32)", abi="c")

@cuda.jit
def launched(x):
    x[0] = 1

@numba.vectorize
def vectorized(a, b):
    return a + b

def helper(a, b=2):
    return a + b

def by_name(a, *, b=2):
    return a + b

class Bomb:
    @property
    def _numba_type_(self):
        os.kill(os.getpid(), signal.SIGSEGV)

BOMB = Bomb()
"""
TEXT = ("makes or reads text", "give print the parts")
SIZE = ("the size of an array must be known", "make it a constant")
MEMORY = ("a list, dict or set", "use a tuple")
GENERATOR = ("generators are not compiled", "for loop")
ROW = ("where one number belongs", "as many indices")
GLOBAL = ("sets or deletes a global variable", "element of an array")
NUMBER = ("a number is used as an array", "float32[::1]")
TRY = ("try and except are not compiled for GPUs", "check for the fault before it happens")
NO_C_TYPE = "which has no type in the C ABI"

COMPILING = {
    "attribute": in_kernel("x[0] = x.nothing", "Unknown attribute 'nothing' of type array(float32", "use an attribute"),
    "in_a_helper": Mistake(
        "def bad(value):\n    return value.nothing  # here\ndef NAME(x):\n    x[0] = bad(x[0])\n",
        'kernels.NAME = "void(float32[:])"',
        ("void(float32[:]): Unknown attribute 'nothing' of type float32",),
    ),
    "types": in_kernel(
        'x[0] = x + "a"', ("No implementation of add(array(float32, 1d, C), Literal[str](a))"), "pass arguments"
    ),
    "undefined": in_kernel("x[0] = nowhere", "NameError: name 'nowhere' is not defined"),
    "misspelt": in_kernel("x[0] = math.sqtr(x[0])", "module 'math' has no attribute 'sqtr'"),
    "opens": Mistake(
        'def NAME(x):  # here\n    with open("a") as file:\n        x[0] = 1\n',
        'kernels.NAME = "void(float32[:])"',
        ("The 'with (context manager)",),
    ),
    "returns": in_kernel("return x[0]", "a kernel returns nothing, and this one returns float32", "store the result"),
    "recursion": Mistake(
        "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)  # here\n"
        "def NAME(x):\n    x[0] = fib(x[0])\n",
        'kernels.NAME = "void(int32[:])"',
        ("is recursive and calls itself with other types", "convert the arguments"),
    ),
    "crash": Mistake(
        "def NAME(x):\n    x[0] = BOMB\n", 'kernels.NAME = "void(float32[:])"', ("the compiler crashed (SIGSEGV)",)
    ),
    **{
        f"takes_{name}": Mistake(
            "def NAME(x):\n    pass\n",
            f'kernels.NAME = "void({signature})"',
            (f"argument {argument!r} is of type {kind}, which a packaged kernel cannot accept; pass numbers",),
        )
        for name, signature, argument, kind in [
            ("optional", "Optional(float32)", "x", "OptionalType(float32)"),
            ("string", "unicode_type", "x", "unicode_type"),
            ("list", "ListType(float32)", "x", "ListType[float32]"),
            ("optional_in_tuple", "Tuple((int32, Optional(float32)))", "x[1]", "OptionalType(float32)"),
        ]
    },
    "try_": in_kernel("try:\n    x[0] = 1  # here\nexcept Exception:\n    x[0] = 2", *TRY),
    "try_for_one_exception": in_kernel(
        "try:\n    x[0] = 1 / x[1]\nexcept ZeroDivisionError:  # here\n    x[0] = 2", *TRY
    ),
    "numpys": in_kernel("x[0] = numpy.median(x)", "No implementation of median(array(float32", "write its computation"),
    "ufunc": in_kernel("x[0] = numpy.sqrt(x[1])", "kernels cannot call NumPy's sqrt", "math"),
    "linear_algebra": in_kernel(
        "x[0] = numpy.linalg.norm(x)", "linear algebra is not compiled", "write its computation"
    ),
    "random_numbers": in_kernel(
        "x[0] = numpy.random.rand()", "kernels cannot call numpy.random.rand", "write its computation"
    ),
    "list_": in_kernel("x[0] = [1, 2][int(x[1])]", *MEMORY),
    "dict_": in_kernel("found = {}\nfound[1] = x[0]", *MEMORY),
    "set_": in_kernel("x[0] = len({1, 2})", *MEMORY),
    "comprehension": in_kernel("x[:] = [y * 2 for y in x]", *MEMORY),
    **{
        f"{name}_": in_kernel(code, *MEMORY)
        for name, code in [
            ("dict_of_constants", "found = {1: 2}"),
            ("dict_of_a_variable", "found = {n: x[0]}"),
            ("dict_called", "found = dict()"),
            ("dict_comprehension", "found = {k: 1 for k in range(3)}"),
            ("typed_dict", "found = numba.typed.Dict()"),
            ("list_called", "found = list()"),
            ("list_appended_to", "found = [1]\nfound.append(n)"),
            ("set_called", "found = set()"),
            ("set_comprehension", "found = {k for k in range(n)}"),
            ("frozenset_called", "found = frozenset((1, 2))"),
            ("bytearray_called", "found = bytearray(3)"),
            ("deque", "found = collections.deque()"),
        ]
    },
    "generator_expression": in_kernel("x[0] = sum(k for k in range(n))", *GENERATOR),
    "generator_of_another_function": Mistake(
        "def NAME_each(n):\n    for k in range(n):\n        yield k\n"
        "def NAME(x, n):\n    for k in NAME_each(n):\n        x[0] += k\n",
        'kernels.NAME = "void(float32[::1], int32)"',
        GENERATOR,
    ),
    "class_": in_kernel("class Own:  # here\n    pass", "defines a class", "a NumPy record"),
    "starred": in_kernel("a, *b = (1, 2, 3)", "a starred name", "name each"),
    "text_indexed": in_kernel('y = "abc"\nx[0] = y[0] == "a"', *TEXT),
    "text_by_method": in_kernel('y = "{}".format(n)', *TEXT),
    "zeros": in_kernel("y = np.zeros(3)", "makes an array on the device", "pass one in"),
    **{
        f"indexed_{name}": in_kernel(code, f"a {own}-D array is indexed as", "as many", signature=types)
        for types, own in [("float32[::1], int32", 1), ("float32[:, ::1], int32", 2)]
        for given, index in [(2, "(n, 0)"), (3, "(n, 0, i)")]
        if given > own
        for name, code in [
            (f"{given}_of_{own}_load", f"y = x[{index}]"),
            (f"{given}_of_{own}_store", f"x[{index}] = 1"),
            (f"{given}_of_{own}_both", f"x[{index}] += 1"),
            (f"{given}_of_{own}_atomic", f"cuda.atomic.add(x, {index}, 1)"),
        ]
    },
    "indexed_shared": in_kernel("y = cuda.shared.array(3, float32)\ny[0, 0] = 1", "1-D array is indexed as a 2-D one"),
    "indexed_grid": in_kernel("p, q = cuda.grid(2)\nx[p, q] = 1", "a 1-D array is indexed as a 2-D one"),
    "indexed_row": in_kernel("x[0, 0] = x[1] + 1", *ROW, signature="float32[:, ::1], int32"),
    "indexed_local": in_kernel("y = cuda.local.array((3, 3), float32)\nx[0] = y[0]", *ROW),
    "indexed_too_little": in_kernel(
        "x[0] += 1", "computes with whole arrays", "as many indices", signature="float32[:, ::1], int32"
    ),
    "indexed_too_little_atomic": in_kernel(
        "cuda.atomic.add(x, 0, 1)", "a 2-D array is indexed as a 1-D one", signature="float32[:, ::1], int32"
    ),
    "shape_index": in_kernel("y = x.shape[1]", "no value of this index", ".shape"),
    "shape_names": in_kernel("a, b = x.shape", "a tuple of 1 is unpacked into 2 names", ".shape"),
    "grid_names": in_kernel("p, q = cuda.grid(1)", "one number is unpacked", "cuda.grid(2) gives two"),
    "import_": in_kernel("import math", "imports a module", "at the top of the file"),
    "import_from": in_kernel("from math import sin", "imports a module", "at the top of the file"),
    "global_": in_kernel("global counted\ncounted = 1", *GLOBAL),
    "global_deleted": in_kernel("global counted\ndel counted", *GLOBAL),
    "text_plain": in_kernel('print(f"{x[0]} and {x[1]}")', *TEXT),
    "text_formatted": in_kernel('print(f"{x[0]:.3f}")', *TEXT),
    "text_made": in_kernel("y = x[0]\nprint(str(y))", *TEXT),
    "text_by_percent": in_kernel('print("%d" % x[0])', *TEXT),
    "shared_n": in_kernel("t = cuda.shared.array(n, float32)  # here\nx[0] = t[0]", *SIZE),
    "shared_pair": in_kernel("t = cuda.shared.array((2, n), float32)  # here\nx[0] = t[0, 0]", *SIZE),
    "local_n": in_kernel("t = cuda.local.array(n, float32)  # here\nx[0] = t[0]", *SIZE),
    "keywords": in_kernel("x[0] = declared(x[0], y=x[1])", "Keyword arguments are not supported"),
    "keywords_of_atomic": in_kernel("cuda.atomic.add(ary=x, idx=0, val=x[0])", "AssertionError: assert not kw"),
    "keywords_only": in_kernel("x[0] = by_name(x[0], b=3)", "takes b by keyword only", "remove the *"),
    "ufunc_of_numbas": in_kernel("x[0] = vectorized(x[0], x[1])", "vectorized has type DUFunc", "make it a number"),
    "global_dict": in_kernel("x[0] = TABLE[1]", "TABLE has type dict", "make it a number, a tuple or a NumPy array"),
    "global_list": in_kernel("x[0] = LIST[0]", "a global list", "make it a tuple or a NumPy array"),
    "pythons": in_kernel("x[0] = input()", "input has type builtin_function_or_method", "make it"),
    "index": in_kernel("x[x[1]] = 1", "No implementation of setitem(array(float32, 1d, C), float32", "pass arguments"),
    "launch": in_kernel("launched[1, 1](x)", "(<function launched>)", "pass arguments"),
    "short_tuple": in_kernel("a, b, c = x[0], x[1]", "a tuple of 2 is unpacked into 3 names"),
    "device_array": in_kernel("y = x.copy()  # here\nx[0] = y[1]", "makes an array on the device", "pass one in"),
    **{
        f"number_{name}": in_kernel(code, *NUMBER, signature="float32, int32")
        for name, code in [("read", "y = x[0]"), ("written", "x[0] = 1"), ("added_to", "cuda.atomic.add(x, 0, 1)")]
    },
    "raises": in_function(
        "int32(int32)",
        'if x > 3:\n    raise ValueError("no")  # here\nreturn x',
        "the C ABI cannot raise, and this one raises ValueError",
        "return a value instead",
    ),
    "sometimes": in_function(
        "int32(int32)",
        "if x > 3:  # here\n    return x",
        "it returns nothing in some cases, and its signature returns int32",
        "make the two agree",
    ),
    "perhaps": in_function("Optional(int32)(int32)", "if x > 3:\n    return x", "cannot return None in some cases"),
    "pair": in_function(
        "int32(int32)", "return (x, x)  # here", "returns UniTuple(int32 x 2), and its signature returns int32"
    ),
    "text_for_c": in_function("unicode_type(int32)", 'return "text"', f"returns unicode_type, {NO_C_TYPE}"),
    "optional_for_c": in_function("int32(Optional(float32))", "return 1", f"OptionalType(float32), {NO_C_TYPE}"),
}
# For the same code, the words of the second front end's compiler; None where it compiles the code.
MLIR_WORDS: dict[str, tuple[str, ...] | None] = {
    "ufunc": ("for which numba-cuda-mlir has no code", "write its computation"),
    "linear_algebra": ("kernels cannot call numpy.linalg.norm",),
    "types": ("AttributeError: 'UnicodeType' object has no attribute 'dtype'",),
    "indexed_too_little": ROW,
    "indexed_too_little_atomic": None,  # it takes one index for that of the whole memory
    "text_for_c": ("it allocates memory on the device",),
    "keywords_only": None,
    "shared_n": None,
    "shared_pair": None,
    "device_array": None,  # test_mlir_refused has an array of its own
    "try_for_one_exception": None,  # it names another line
    "numpys": None,  # it takes most of a minute
}
BY_MLIR = {
    name: mistake._replace(words=words)
    for name, mistake in COMPILING.items()
    if (words := MLIR_WORDS.get(name, mistake.words)) is not None
}
OF_CI = {name: BY_MLIR[name] for name in BY_MLIR if name in MLIR_WORDS or name in [*BY_MLIR][::4]}
"""CI has those of the second compiler that have words of its own, and a sample of the others."""

REFUSED = {
    (front_ends.NUMBA, "all"): COMPILING,
    (front_ends.MLIR, "sample"): OF_CI,
    (front_ends.MLIR, "rest"): {name: mistake for name, mistake in BY_MLIR.items() if name not in OF_CI},
}


@pytest.fixture(scope="module")
def reported_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, str]]:
    return functools.cache(lambda *part: errors(tmp_path_factory.mktemp("compiling"), REFUSED[part]))


@pytest.mark.parametrize(
    ("front_end", "part", "name"),
    [
        pytest.param(*part, name, marks=[pytest.mark.matrix] * (part[1] == "rest"))
        for part, mistakes in REFUSED.items()
        for name in mistakes
    ],
    indirect=["front_end"],
    scope="module",
)
def test_compile_error_has_key_fact_and_place(
    front_end: str, part: str, name: str, reported_by: Callable[[str, str], dict[str, str]]
) -> None:
    assert_words(name, REFUSED[front_end, part][name], reported_by(front_end, part)[name])


def table(key: str, source: str, *words: str) -> Mistake:
    """Return a mistake in the table: in the value of a key, or in what it names."""
    return Mistake(f"{source}\n", key, words)


PLAIN = "def NAME(x):\n    x[0] = 1"
NOTATION = "is no signature in Numba's notation: "
UNDERSTANDING = {
    "unknown_type": table(
        'kernels.NAME = "void(flot32[:])"', PLAIN, f"{NOTATION}'flot32' is no", "did you mean float32?"
    ),
    "comma": table(
        'kernels.NAME = { signatures = ["void(float32[:])", "void(float32,,)"] }',
        PLAIN,
        "NAME.signatures[1]: ",
        NOTATION,
    ),
    "number": table(
        'kernels.NAME.signature = "void(3)"', PLAIN, f"NAME.signature: 'void(3)' {NOTATION}it must be made"
    ),
    "sized": table(
        'kernels.NAME = "void(float32[3])"', PLAIN, f"{NOTATION}float32[3] is no type", "write float32[::1]"
    ),
    "unsized": table(
        'kernels.NAME = "void(float32[])"', PLAIN, f"{NOTATION}float32[] is no type", "write float32[::1]"
    ),
    "semicolon": table('kernels.NAME = "void(float32; f4)"', PLAIN, f"{NOTATION}it has a semicolon", "write commas"),
    "bracketed": table('functions.NAME = "(float32)"', PLAIN, f"{NOTATION}brackets around one", "write (float32,)"),
    **{
        f"type_of_{whose}": table(
            f'kernels.NAME = "void({written})"', PLAIN, f"{NOTATION}{name} is {owner} type", f"write {own}"
        )
        for whose, written, name, owner, own in [
            ("numpy", "np.float32[:]", "np.float32", "NumPy's", "float32"),
            ("numpy_in_a_tuple", "UniTuple(np.bool_, 2)", "np.bool_", "NumPy's", "bool"),
            ("numpy_by_another_name", "narrow[::1]", "narrow", "NumPy's", "int16"),
            ("numpy_whole_name", "numpy.uint8", "numpy.uint8", "NumPy's", "uint8"),
            ("python", "float", "float", "Python's", "float64"),
            ("python_in_an_array", "int[:, ::1]", "int", "Python's", "int64"),
        ]
    },
    "ufunc": table(
        'kernels.NAME = "void(float32, float32)"',
        "@numba.vectorize  # here\ndef NAME(a, b):\n    return a + b",
        "is made by @vectorize or @guvectorize",
        "write a kernel",
    ),
    "too_many": table(
        'kernels.NAME = "void(f4[:], i4)"', "def NAME(x):  # here\n    x[0] = 1", "has 2 arguments where NAME takes 1"
    ),
    "too_few": table(
        'functions.NAME.signature = "i4(i4)"',
        "def NAME(x, y):  # here\n    return 1",
        "has 1 argument where NAME takes 2",
    ),
    "twice": table(
        'kernels.NAME = ["void(float32)", "void(f4)"]', PLAIN, "NAME[1]: 'void(f4)' is the same", "remove one"
    ),
    "result": table('kernels.NAME = "float32(float32)"', PLAIN, "a kernel returns nothing", "write void(...)"),
    "some_funktion": table(
        'kernels.NAME = "void(f4)"', "def some_function(x):\n    pass", "did you mean some_function?"
    ),
    "dotted": table(
        'kernels.NAME = { python = "pkg._k.Held.held", signature = "void(float32[:])" }',
        "class Held:\n    def held(x):\n        pass",
        "pkg._k has no function pkg",
        "did you mean pkg._k:Held.held?",
    ),
    "called": table(
        'functions.NAME = { python = "help", signature = "i4(i4)" }', "", "no function help", "mean helper?"
    ),
    "TABLE": table('kernels.NAME = "void(float32[:])"', "", "pkg._k.TABLE is of type dict", "name a Python function"),
    "generator": table(
        'kernels.NAME = "void(f4)"', "def NAME(x):  # here\n    yield 1", "is a generator", "name a plain function"
    ),
    "star": table('kernels.NAME = "void(f4)"', "def NAME(*xs):  # here\n    pass", "takes *xs", "use a fixed number"),
    "keyword": table(
        'kernels.NAME = "void(f4, i4)"',
        "def NAME(x, *, n):  # here\n    pass",
        "takes n by keyword only",
        "use a fixed",
    ),
}


@pytest.fixture(scope="module")
def before_compiling(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return errors(tmp_path_factory.mktemp("understanding"), UNDERSTANDING)


@pytest.mark.parametrize("name", UNDERSTANDING)
def test_table_error_has_key_and_fact(name: str, before_compiling: dict[str, str]) -> None:
    assert_words(name, UNDERSTANDING[name], before_compiling[name])


# Each is refused somewhere in a compiler's own library, or with no place; the error names the user's line all the same.
STATEMENTS = """\
x[0] = np.linalg.norm(x)
x[0] = np.interp(1.0, x, x)
x[0] = x.mean(3, 4)
cuda.atomic.add(x, 'a', 1)
x[0] = np.unique(x)[0]
x[0] = np.sort(x)[0]
x[0] = np.array([1.0, 2.0])[0]
x[0] = np.cumsum(x)[0]
x[0] = np.percentile(x, 3)
x[0] = sorted([3, 2])[0]
x[0] = {1: 2}[1]
x[0] = [i for i in range(3)][0]
x[0] = random.random()
x[0] = int("3")
x[0] = str(3) == "3"
x[0] = np.where(x > 0, x, 1)[0]
x[0] = x[x > 0][0]
x[:] = x + x
x[0] = np.asarray(x, dtype='f8')[0]
x[0] = x.astype(np.float64)[0]
x[0] = x.sum(axis=0, keepdims=True)
x[0] = np.linspace(0, 1, 3)[0]
x[0] = np.histogram(x)[0][0]
x[0] = np.nanmean(x, axis=1)
x[0] = cuda.shfl_sync(1, 2)
x[0] = cuda.shared.array('a', 'b')[0]
x[0] = libdevice.sinf("a")
x[0] = xoroshiro128p_uniform_float32(x, 0)
x[0] = xoroshiro128p_normal_float64(x, 0)
x[0] = range(3, 4, 5, 6)[0]
x[0] = getattr(x, "nothing")
x[0] = isinstance(x, 3)
x[0] = round("a")
x["a"] = 1
x[0].y = 1
x[0] = (1, "a")[int(x[0])]
a, b, c = (1, 2)
x[0] = undefined_name
print("%d" % 3)
x[0] = helper(x[0], nothing=3)
x[0] = min(x[0], key=3)
raise ValueError(x)
""".splitlines()


@pytest.fixture(scope="module")
def statements(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    mistakes = {f"k{at}": in_kernel(f"{statement}  # here\nx[1] = i") for at, statement in enumerate(STATEMENTS)}
    return errors(tmp_path_factory.mktemp("places"), mistakes)


@pytest.mark.parametrize("name", [f"k{at}" for at in range(len(STATEMENTS))])
def test_error_names_the_line_of_the_user(name: str, statements: dict[str, str]) -> None:
    assert "(PLACE)" in statements[name], STATEMENTS[int(name[1:])]
