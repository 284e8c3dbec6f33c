"""What is said of functions and signatures that cannot be compiled: the user's key, the reason and the place.

Mistakes of one kind are put into one project, since a build tells all of them at once.
"""

from __future__ import annotations

import functools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, lines_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Mistake:
    """Code, the key that names it, and what is said of it: `{M}` is the module's key, `{F}` the path of the source."""

    source: str
    key: str
    said: str


def expected(mistake: Mistake) -> str:
    return " ".join(mistake.said.split()).replace("{M}", MODULE).replace("{F}", "pkg/_k.py")


def line_number(source: str, marker: str) -> int:
    return source[: source.index(marker)].count("\n") + 1


def told(folder: Path, mistakes: dict[str, Mistake]) -> list[str]:
    """Build a project that makes all `mistakes`; what was said, one line each."""
    source = "from numba import cuda, float32\n\n@cuda.jit\ndef launched(x):\n    x[0] = 1\n\n" + "\n\n".join(
        textwrap.dedent(mistake.source).strip() for mistake in mistakes.values()
    )
    module = "\n".join(mistake.key for mistake in mistakes.values())
    project = write(folder / "project", source, module=module)
    done = refused(project)
    assert done.err.startswith("aotcuda: tool.aotcuda")
    lines = lines_of(done.err)
    # Lines are counted in the whole source; the cases say them by a comment.
    for name in mistakes:
        marker = f"# {name}"
        if marker in source:
            lines = [line.replace(f"pkg/_k.py:{line_number(source, marker)})", f"pkg/_k.py:{name})") for line in lines]
    return lines


COMPILING = {
    "unknown_attribute": Mistake(
        """
        def attribute(x):
            x[0] = x.nothing  # unknown_attribute
        """,
        'kernels.attribute = "void(float32[:])"',
        """{M}.kernels.attribute: void(float32[:]): Unknown attribute 'nothing' of type array(float32, 1d, A)
        ({F}:unknown_attribute)""",
    ),
    "in_a_helper": Mistake(
        """
        def helper(value):
            return value.nothing  # in_a_helper
        def calls_helper(x):
            x[0] = helper(x[0])
        """,
        'kernels.calls_helper = "void(float32[:])"',
        """{M}.kernels.calls_helper: void(float32[:]): Unknown attribute 'nothing' of type float32 ({F}:in_a_helper)""",
    ),
    "no_implementation": Mistake(
        """
        def adds(x):
            x[0] = x + "a"  # no_implementation
        """,
        'kernels.adds = "void(float32[:])"',
        """{M}.kernels.adds: void(float32[:]): No implementation of add(array(float32, 1d, A), Literal[str](a))
        ({F}:no_implementation)""",
    ),
    "undefined_name": Mistake(
        """
        def undefined(x):
            x[0] = nowhere  # undefined_name
        """,
        'kernels.undefined = "void(float32[:])"',
        """{M}.kernels.undefined: void(float32[:]): NameError: name 'nowhere' is not defined ({F}:undefined_name)""",
    ),
    "unsupported_statement": Mistake(
        """
        def opens(x):  # unsupported_statement
            with open("a") as file:
                x[0] = 1
        """,
        'kernels.opens = "void(float32[:])"',
        """{M}.kernels.opens: void(float32[:]): with statements are not compiled for GPUs ({F}:unsupported_statement);
        do what it does outside the kernel""",
    ),
    "a_kernel_that_returns": Mistake(
        """
        def returns(x):
            return x[0]  # a_kernel_that_returns
        """,
        'kernels.returns = "void(float32[:])"',
        """{M}.kernels.returns: void(float32[:]): a kernel returns nothing, and this one returns float32
        ({F}:a_kernel_that_returns); store the result in an array""",
    ),
    "recursion": Mistake(
        """
        def fib(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)  # recursion
        def recurses(x):
            x[0] = fib(x[0])
        """,
        'kernels.recurses = "void(int32[:])"',
        """{M}.kernels.recurses: void(int32[:]): a function that it calls is recursive and calls itself with other types
        than it was called with, which Numba-CUDA cannot compile ({F}:recursion); convert the arguments to the same
        types (int32 plus a literal is int64)""",
    ),
    "a_crash": Mistake(
        """
        import os, signal
        class Bomb:
            @property
            def _numba_type_(self):
                os.kill(os.getpid(), signal.SIGSEGV)
        BOMB = Bomb()
        def crashes(x):
            x[0] = BOMB
        """,
        'kernels.crashes = "void(float32[:])"',
        """{M}.kernels.crashes: pkg.k.crashes void(float32[:]) for sm_80: the compiler crashed (SIGSEGV); this is a
        defect of the compiler or linker. Simplify that function, or report it with its source""",
    ),
    "a_function_that_raises": Mistake(
        """
        def raises(x):
            if x > 3:
                raise ValueError("no")  # a_function_that_raises
            return x
        """,
        'functions.raises = "int32(int32)"',
        """{M}.functions.raises: int32(int32): a function with the C ABI cannot raise, and this one raises ValueError
        ({F}:a_function_that_raises); return a value instead""",
    ),
    "a_function_that_asserts": Mistake(
        """
        def asserts(x):
            assert x > 0  # a_function_that_asserts
            return x
        """,
        'functions.asserts = "int32(int32)"',
        """{M}.functions.asserts: int32(int32): a function with the C ABI cannot raise, and this one raises
        AssertionError ({F}:a_function_that_asserts); return a value instead""",
    ),
    "nothing_in_some_cases": Mistake(
        """
        def sometimes(x):
            if x > 3:  # nothing_in_some_cases
                return x
        """,
        'functions.sometimes = "int32(int32)"',
        """{M}.functions.sometimes: int32(int32): it returns nothing in some cases, where its signature says int32
        ({F}:nothing_in_some_cases); make the two agree""",
    ),
    "an_inferred_optional": Mistake(
        """
        def perhaps(x):
            if x > 3:
                return x
        """,
        'functions.perhaps = "Optional(int32)(int32)"',
        """{M}.functions.perhaps: Optional(int32)(int32): a function with the C ABI cannot return None in some cases and
        a value in others; return a value in every case""",
    ),
    "another_result": Mistake(
        """
        def pair(x):
            return (x, x)  # another_result
        """,
        'functions.pair = "int32(int32)"',
        """{M}.functions.pair: int32(int32): it returns UniTuple(int32 x 2), where its signature says int32
        ({F}:another_result); make the two agree""",
    ),
    "text_for_c": Mistake(
        """
        def text_result(x):  # text_for_c
            return "text"
        """,
        'functions.text_result = "unicode_type(int32)"',
        """{M}.functions.text_result: unicode_type(int32): it returns unicode_type, which has no type in the C ABI;
        return a number, bool, complex, datetime, pointer or a tuple of these, or write through a pointer argument""",
    ),
    "an_optional_for_c": Mistake(
        """
        def optional_argument(x):
            return 1
        """,
        'functions.optional_argument = "int32(Optional(float32))"',
        """{M}.functions.optional_argument: int32(Optional(float32)): argument 'x' is of type OptionalType(float32),
        which has no type in the C ABI; take a number, bool, complex, datetime, pointer, record, array, or tuple of
        these""",
    ),
    **{
        f"a_kernel_that_takes_{name}": Mistake(
            f"def takes_{name}(x):\n    pass",
            f'kernels.takes_{name} = "void({signature})"',
            f"""{{M}}.kernels.takes_{name}: void({signature}): argument {argument!r} is of type {ty}, which a packaged
            kernel cannot take; pass numbers, bool, complex, datetimes, records, pointers, arrays, types, or tuples of
            these""",
        )
        for name, signature, argument, ty in [
            ("optional", "Optional(float32)", "x", "OptionalType(float32)"),
            ("string", "unicode_type", "x", "unicode_type"),
            ("list", "ListType(float32)", "x", "ListType[float32]"),
            ("optional_in_tuple", "Tuple((int32, Optional(float32)))", "x[1]", "OptionalType(float32)"),
        ]
    },
    "try": Mistake(
        """
        def tries(x):
            try:
                x[0] = 1  # try
            except Exception:
                x[0] = 2
        """,
        'kernels.tries = "void(float32[:])"',
        """{M}.kernels.tries: void(float32[:]): try and except are not compiled for GPUs ({F}:try); test for what may go
        wrong before it does""",
    ),
    "try_for_one_exception": Mistake(
        """
        def tries_one(x):
            try:
                x[0] = 1 / x[1]
            except ZeroDivisionError:  # try_for_one_exception
                x[0] = 2
        """,
        'kernels.tries_one = "void(float32[:])"',
        """{M}.kernels.tries_one: void(float32[:]): try and except are not compiled for GPUs
        ({F}:try_for_one_exception); test for what may go wrong before it does""",
    ),
    "a_function_of_numpys": Mistake(
        """
        import numpy
        def middles(x):
            x[0] = numpy.median(x)  # a_function_of_numpys
        """,
        'kernels.middles = "void(float32[:])"',
        """{M}.kernels.middles: void(float32[:]): No implementation of median(array(float32, 1d, A))
        ({F}:a_function_of_numpys); NumPy's median is not among what kernels can call: write it out; arrays come as
        arguments""",
    ),
    "a_list": Mistake(
        """
        def lists(x):
            x[0] = [1, 2][int(x[1])]  # a_list
        """,
        'kernels.lists = "void(float32[:])"',
        """{M}.kernels.lists: void(float32[:]): it makes a list or a dict, for which memory would be allocated on
        the GPU ({F}:a_list); use a tuple, an array that is an argument, or cuda.local.array of a constant size""",
    ),
    "a_dict": Mistake(
        """
        def dicts(x):
            found = {}
            found[1] = x[0]  # a_dict
        """,
        'kernels.dicts = "void(float32[:])"',
        """{M}.kernels.dicts: void(float32[:]): it makes a list or a dict, for which memory would be allocated on
        the GPU ({F}:a_dict); use a tuple, an array that is an argument, or cuda.local.array of a constant size""",
    ),
    **{
        name: Mistake(
            f"""
            def {name}_(x):
                {before}
                {statement}  # {name}
                x[0] = 1
            """,
            f'kernels.{name}_ = "void(float32[:])"',
            f"""{{M}}.kernels.{name}_: void(float32[:]): it imports a module, which happens on the host alone
            ({{F}}:{name}); import it at the top of the file"""
            if "import" in statement
            else f"""{{M}}.kernels.{name}_: void(float32[:]): it sets or deletes a global variable, of which compiled
            code has the value alone ({{F}}:{name}); take an array as an argument, and write to an element of it""",
        )
        for name, before, statement in [
            ("an_import", "pass", "import math"),
            ("an_import_from", "pass", "from math import sin"),
            ("a_global", "global counted", "counted = 1"),
            ("a_global_added_to", "global counted", "counted += 1"),
            ("a_global_deleted", "global counted", "del counted"),
        ]
    },
    "linear_algebra": Mistake(
        """
        import numpy
        def norms(x):
            x[0] = numpy.linalg.norm(x)  # linear_algebra
        """,
        'kernels.norms = "void(float32[:])"',
        """{M}.kernels.norms: void(float32[:]): it calls NumPy's linear algebra, which is not there for GPUs
        ({F}:linear_algebra); write out what it computes""",
    ),
    "try_in_a_helper": Mistake(
        """
        def guarded(x):
            try:
                x[0] = 1  # try_in_a_helper
            except Exception:
                x[0] = 2
        def calls_guarded(x):
            guarded(x)
        """,
        'kernels.calls_guarded = "void(float32[:])"',
        """{M}.kernels.calls_guarded: void(float32[:]): try and except are not compiled for GPUs ({F}:try_in_a_helper);
        test for what may go wrong before it does""",
    ),
    **{
        f"text_of_values_{name}": Mistake(
            f"def text_{name}(x):\n    y = x[0]\n    print({code})  # text_of_values_{name}",
            f'kernels.text_{name} = "void(float32[:])"',
            f"""{{M}}.kernels.text_{name}: void(float32[:]): it makes text of values, as an f-string does
            ({{F}}:text_of_values_{name}); GPUs have no text but constants: give print the parts, as in
            print("x is", x[i])""",
        )
        for name, code in [("plain", 'f"{y} and {x[1]}"'), ("formatted", 'f"{y:.3f}"'), ("made", "str(y)")]
    },
    **{
        f"a_{kind}_array_of_{name}": Mistake(
            f"from numba import cuda, float32\ndef {kind}_{name}(x, n):\n    i = 1\n"
            f"    tile = cuda.{kind}.array({code}, float32)  # a_{kind}_array_of_{name}\n    x[0] = tile[0]",
            f'kernels.{kind}_{name} = "void(float32[:], int32)"',
            f"""{{M}}.kernels.{kind}_{name}: void(float32[:], int32): the size of an array must be known when it is
            compiled, and {shape} is known at run time alone ({{F}}:a_{kind}_array_of_{name}); make it a constant, or
            take cuda.shared.array(0, dtype), which is as large as the launch makes it""",
        )
        for kind, name, code, shape in [
            ("shared", "n", "n", "int32"),
            ("shared", "size", "x.size", "int64"),
            ("shared", "pairs", "(2, n)", "Tuple(Literal[int](2), int32)"),
            ("shared", "square", "(n, n)", "UniTuple(int32 x 2)"),
            ("local", "n", "n", "int32"),
        ]
    },
    "keywords_for_a_declared_function": Mistake(
        """
        from numba import cuda
        declared = cuda.declare_device("declared", "float32(float32, float32)", abi="c")
        def names_declared(x):
            y = x[0]
            x[0] = declared(y, y=x[1])  # keywords_for_a_declared_function
        """,
        'kernels.names_declared = "void(float32[:])"',
        """{M}.kernels.names_declared: void(float32[:]): a function that takes its arguments by position alone is called
        with keywords ({F}:keywords_for_a_declared_function); give them in order, without names""",
    ),
    "keywords_for_an_atomic": Mistake(
        """
        from numba import cuda
        def names_atomic(x):
            y = x[0]
            cuda.atomic.add(ary=x, idx=0, val=y)  # keywords_for_an_atomic
        """,
        'kernels.names_atomic = "void(float32[:])"',
        """{M}.kernels.names_atomic: void(float32[:]): a function that takes its arguments by position alone is called
        with keywords ({F}:keywords_for_an_atomic); give them in order, without names""",
    ),
    "keywords_only": Mistake(
        """
        def by_name(a, *, b=2):
            return a + b
        def names_b(x):
            y = x[0]
            x[0] = by_name(y, b=3)  # keywords_only
        """,
        'kernels.names_b = "void(float32[:])"',
        """{M}.kernels.names_b: void(float32[:]): by_name, which it calls, takes b by keyword only, which Numba-CUDA
        cannot compile ({F}:keywords_only); remove the * from its definition""",
    ),
    "vectorized": Mistake(
        """
        import numba
        @numba.vectorize
        def wide(a, b):
            return a + b
        def calls_wide(x):
            y = x[0]
            x[0] = wide(y, x[1])  # vectorized
        """,
        'kernels.calls_wide = "void(float32[:])"',
        """{M}.kernels.calls_wide: void(float32[:]): wide is made by @vectorize, which makes functions of whole arrays
        ({F}:vectorized); call the plain function, or one with @cuda.jit(device=True)""",
    ),
    "a_ufunc_of_numpys": Mistake(
        """
        import numpy
        def roots(x):
            x[0] = numpy.sqrt(x[1])  # a_ufunc_of_numpys
        """,
        'kernels.roots = "void(float32[:])"',
        """{M}.kernels.roots: void(float32[:]): NumPy's sqrt is not among what kernels can call
        ({F}:a_ufunc_of_numpys); of one number take math's function, or an operator; else write out what it
        computes""",
    ),
    **{
        name: Mistake(
            f"from numba import cuda, float32\nimport math, random\nimport numpy\nTABLE = {{1: 2}}\nLIST = [1, 2]\n"
            f"def {name}_(x):\n{before}    {statement}  # {name}",
            f'kernels.{name}_ = "void({signature})"',
            f"{{M}}.kernels.{name}_: void({signature}): {what} ({{F}}:{name}); {remedy}",
        )
        for name, signature, before, statement, what, remedy in [
            (
                "more_indices_than_dimensions",
                "float32[::1]",
                "",
                "x[0] = x[0, 1]",
                "it gives 2 indices to a 1d array",
                "make the two agree; a signature has a colon for each dimension, as in float32[:, ::1]",
            ),
            (
                "more_indices_than_a_local_array_has",
                "float32[::1]",
                "    tile = cuda.local.array((2, 2), float32)\n",
                "x[0] = tile[0, 0, 0]",
                "it gives 3 indices to a 2d array",
                "make the two agree; a signature has a colon for each dimension, as in float32[:, ::1]",
            ),
            (
                "an_index_of_float",
                "float32[::1]",
                "",
                "x[x[1]] = 1",
                "an index is float32",
                "convert it, as with int(x); if it is a parameter, make it an integer in the signature",
            ),
            *[
                (
                    f"a_number_for_an_array_that_is_{name}",
                    "float32",
                    "",
                    statement,
                    what,
                    "if that is a parameter which is an array, say so in the signature, as with float32[::1]",
                )
                for name, statement, what in [
                    ("read", "y = x[0]", "it takes an element of a number, float32"),
                    ("read_twice", "y = x[0, 0]", "it takes an element of a number, float32"),
                    ("written", "x[0] = 1", "it takes an element of a number, float32"),
                    ("added_to", "cuda.atomic.add(x, 0, 1)", "it gives a number to a function that takes an array"),
                ]
            ],
            (
                "text_in_an_array",
                "float32[::1]",
                "",
                'x[0] = "a"',
                "it stores Literal[str](a) in array(float32, 1d, C)",
                "an element takes a number of its type",
            ),
            (
                "an_array_in_an_array",
                "float32[::1]",
                "",
                "x[0] = x",
                "it stores array(float32, 1d, C) in array(float32, 1d, C)",
                "an element takes a number of its type",
            ),
            (
                "a_dict_of_the_module",
                "float32[::1]",
                "",
                "x[0] = TABLE[1]",
                "TABLE is of type dict, which kernels cannot use",
                "make it a number, a tuple or an array of NumPy's, or take it as an argument",
            ),
            (
                "a_list_of_the_module",
                "float32[::1]",
                "",
                "x[0] = LIST[0]",
                "it takes an element of what has none on a GPU, such as a list of the module's",
                "make it a tuple, or an array of NumPy's",
            ),
            (
                "a_function_of_pythons",
                "float32[::1]",
                "",
                "x[0] = input()",
                "Python's input is not among what kernels can call",
                "write out what it computes",
            ),
            (
                "a_misspelt_function",
                "float32[::1]",
                "",
                "x[0] = math.sqtr(x[0])",
                "AttributeError: module 'math' has no attribute 'sqtr'",
                "did you mean sqrt?",
            ),
            (
                "random_numbers_of_numpys",
                "float32[::1]",
                "",
                "x[0] = numpy.random.rand()",
                "NumPy's random numbers are not there for GPUs",
                "take the states of numba.cuda.random as an argument: xoroshiro128p_uniform_float32(states, i)",
            ),
            (
                "a_set",
                "float32[::1]",
                "",
                "x[0] = len({1, 2})",
                "it makes a set, for which memory would be allocated on the GPU",
                "use a tuple, or an array that is an argument",
            ),
            (
                "a_list_comprehension",
                "float32[::1]",
                "",
                "x[:] = [y * 2 for y in x]",
                "it makes a list or a dict, for which memory would be allocated on the GPU",
                "use a tuple, an array that is an argument, or cuda.local.array of a constant size",
            ),
            (
                "text_by_percent",
                "float32[::1]",
                "",
                'print("%d" % x[0])',
                "it makes text of values, as an f-string does",
                'GPUs have no text but constants: give print the parts, as in print("x is", x[i])',
            ),
            (
                "a_local_array_without_a_type",
                "float32[::1]",
                "",
                "tile = cuda.local.array(4)",
                "cuda.shared.array and cuda.local.array take a shape and the type of an element",
                "write for example cuda.local.array(4, float32)",
            ),
            (
                "a_whole_array_for_a_number",
                "float32[::1]",
                "",
                "x[0] = math.sin(x)",
                "sin is called with a whole array(float32, 1d, C)",
                "give it an element, as in x[i]",
            ),
            (
                "a_launch",
                "float32[::1]",
                "",
                "launched[1, 1](x)",
                "it launches launched, and only the host launches kernels",
                "launch it from the host, or call a function that both kernels call",
            ),
            (
                "a_tuple_too_short",
                "float32[::1]",
                "",
                "a, b, c = x[0], x[1]",
                "it takes 3 values out of a tuple of 2",
                "make the two agree",
            ),
            (
                "an_atomic_without_a_value",
                "float32[::1]",
                "",
                "cuda.atomic.add(x, 0)",
                "it calls a function that takes 3 arguments with another number of them",
                "give it as many",
            ),
            (
                "two_types",
                "float32[::1]",
                '    if x[1] > 0:\n        y = 1\n    else:\n        y = "a"\n',
                "print(y)",
                "y is Literal[str](a) in one place and Literal[int](1) in another",
                "give a variable one type",
            ),
            (
                "a_variable_deleted",
                "float32[::1]",
                "    y = x[0]\n",
                "del y",
                "del is not compiled for GPUs",
                "leave it out",
            ),
        ]
    },
    "device_array": Mistake(
        """
        def makes(x):
            y = x.copy()  # device_array
            x[0] = y[1]
        """,
        'kernels.makes = "void(float32[::1])"',
        """{M}.kernels.makes: void(float32[::1]): it makes an array on the device, which a packaged kernel cannot do
        ({F}:device_array); pass one in""",
    ),
}


# The same code, of which the second front end's compiler says something else.
OTHERWISE = {
    "a_ufunc_of_numpys": """{M}.kernels.roots: void(float32[:]): it calls what numba-cuda-mlir has no code for
    ({F}:a_ufunc_of_numpys); write out what it computes, or see whether the front end numba-cuda has it""",
    "a_function_of_numpys": """{M}.kernels.middles: void(float32[:]): it calls what numba-cuda-mlir has no code for
    ({F}:a_function_of_numpys); write out what it computes, or see whether the front end numba-cuda has it""",
    "text_for_c": """{M}.functions.text_result: unicode_type(int32): it allocates memory on the device (Numba's NRT),
    which a packaged kernel cannot do ({F}:text_for_c)""",
    "no_implementation": """{M}.kernels.adds: void(float32[:]): AttributeError: 'UnicodeType' object has no attribute
    'dtype' ({F}:no_implementation)""",
    "undefined_name": """{M}.kernels.undefined: void(float32[:]): NameError: name 'nowhere' is not defined
    ({F}:undefined_name)""",
    "recursion": COMPILING["recursion"].said.replace("Numba-CUDA", "numba-cuda-mlir"),
}
# What that compiler takes: its shared arrays of a size of run time lie in the memory whose size the launch gives.
TAKEN = ("keywords_only", *(name for name in COMPILING if name.startswith("a_shared_array_of_")))
# What it has other words or places for: test_mlir_refused has an array of its own.
OF_NUMBA_CUDA = ("device_array", "try_for_one_exception")
# And what it takes most of a minute to refuse: another function of NumPy's for which it says the same.
QUICKER = {"a_function_of_numpys": ("numpy.median(x)", "numpy.percentile(x, 5)")}
REFUSED = {
    front_ends.NUMBA: COMPILING,
    front_ends.MLIR: {
        name: Mistake(
            mistake.source.replace(*QUICKER.get(name, ("", ""))), mistake.key, OTHERWISE.get(name, mistake.said)
        )
        for name, mistake in COMPILING.items()
        if name not in TAKEN and name not in OF_NUMBA_CUDA
    },
}


@pytest.fixture(scope="module")
def _told_by_the_compiler(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    @functools.cache
    def build(front_end: str) -> list[str]:
        return told(tmp_path_factory.mktemp("compiling"), REFUSED[front_end])

    return build


@pytest.fixture
def refused_by_the_compiler(front_end: str, _told_by_the_compiler: Callable[[str], list[str]]) -> list[str]:
    """What a front end's build said; a fixture of the module would build anew for each of the pairs below."""
    return _told_by_the_compiler(front_end)


@pytest.mark.parametrize(
    ("front_end", "name"),
    [(front_end, name) for front_end, mistakes in REFUSED.items() for name in mistakes],
    indirect=["front_end"],
    scope="module",
)
def test_what_does_not_compile_is_named_by_key_reason_and_place(
    front_end: str, name: str, refused_by_the_compiler: list[str]
) -> None:
    assert expected(REFUSED[front_end][name]) in refused_by_the_compiler


def test_what_does_not_compile_is_told_once_each(front_end: str, refused_by_the_compiler: list[str]) -> None:
    assert len(refused_by_the_compiler) == len(REFUSED[front_end])


PLAIN = "def plain(x):\n    x[0] = 1"
UNDERSTANDING = {
    "an_unknown_type": Mistake(
        PLAIN,
        'kernels.plain = "void(flot32[:])"',
        """{M}.kernels.plain: 'void(flot32[:])' is no signature in Numba's notation: 'flot32' is no Numba type; did you
        mean float32?""",
    ),
    "no_signature": Mistake(
        "def comma(x):\n    x[0] = 1",
        'kernels.comma = { signatures = ["void(float32[:])", "void(float32,,)"] }',
        "{M}.kernels.comma.signatures[1]: 'void(float32,,)' is no signature in Numba's notation: invalid syntax",
    ),
    "no_type_at_all": Mistake(
        "def number(x):\n    x[0] = 1",
        'kernels.number.signature = "void(3)"',
        """{M}.kernels.number.signature: 'void(3)' is no signature in Numba's notation: it must be made of Numba types,
        as void(float32[::1], int32)""",
    ),
    "a_sized_array": Mistake(
        "def sized(x):\n    x[0] = 1",
        'functions.sized = { signature = "void(float32[3])" }',
        """{M}.functions.sized.signature: 'void(float32[3])' is no signature in Numba's notation: float32[3] is no type,
        since arrays have no sizes here; write float32[::1], or float32[:, ::1] in 2D""",
    ),
    "an_array_without_a_size": Mistake(
        "def unsized(x):\n    x[0] = 1",
        'kernels.unsized = "void(float32[])"',
        """{M}.kernels.unsized: 'void(float32[])' is no signature in Numba's notation: float32[] is no type,
        since arrays have no sizes here; write float32[::1], or float32[:, ::1] in 2D""",
    ),
    "a_semicolon": Mistake(
        "def apart(x, y):\n    x[0] = y",
        'kernels.apart = "void(float32[:]; float32)"',
        """{M}.kernels.apart: 'void(float32[:]; float32)' is no signature in Numba's notation: it has a semicolon; write
        commas between types, and nothing after the last bracket""",
    ),
    "a_bracketed_type": Mistake(
        "def alone(x):\n    return x",
        'functions.alone = "(float32)"',
        """{M}.functions.alone: '(float32)' is no signature in Numba's notation: brackets around one type are no list of
        arguments; write (float32,) or void(float32)""",
    ),
    **{
        f"a_type_of_{whose}": Mistake(
            f"import numpy as np\nfrom numpy import int16 as narrow\ndef of_{whose}(x):\n    x[0] = 1",
            f'kernels.of_{whose} = "void({written})"',
            f"""{{M}}.kernels.of_{whose}: 'void({written})' is no signature in Numba's notation: {name} is {owner} type,
            and a signature has Numba's; write {own}""",
        )
        for whose, written, name, owner, own in [
            ("numpy", "np.float32[:]", "np.float32", "NumPy's", "float32"),
            ("numpy_alone", "np.float64", "np.float64", "NumPy's", "float64"),
            ("numpy_in_a_tuple", "UniTuple(np.bool_, 2)", "np.bool_", "NumPy's", "bool"),
            ("numpy_by_another_name", "narrow[::1]", "narrow", "NumPy's", "int16"),
            ("numpy_that_is_not_imported", "numpy.uint8", "numpy.uint8", "NumPy's", "uint8"),
            ("python", "float", "float", "Python's", "float64"),
            ("python_in_an_array", "int[:, ::1]", "int", "Python's", "int64"),
        ]
    },
    "a_vectorized_function": Mistake(
        """
        import numba
        @numba.vectorize  # a_vectorized_function
        def wide(a, b):
            return a + b
        """,
        'kernels.wide = "void(float32, float32)"',
        """{M}.kernels.wide: pkg._k.wide ({F}:a_vectorized_function) is made by @vectorize or @guvectorize, which launch
        kernels of their own; write a kernel that calls the plain function for each element, and name that""",
    ),
    "too_many_types": Mistake(
        "def one(x):  # too_many_types\n    x[0] = 1",
        'kernels.one = "void(float32[:], int32)"',
        "{M}.kernels.one: 'void(float32[:], int32)' has 2 arguments where one takes 1 ({F}:too_many_types)",
    ),
    "too_few_types": Mistake(
        "def two(x, y):  # too_few_types\n    return 1",
        'functions.two = { signature = "int32(int32)" }',
        "{M}.functions.two.signature: 'int32(int32)' has 1 argument where two takes 2 ({F}:too_few_types)",
    ),
    "the_same_types_twice": Mistake(
        "def twice(x):\n    x[0] = 1",
        'kernels.twice = ["void(float32[:])", "void(f4[:])"]',
        "{M}.kernels.twice[1]: 'void(f4[:])' is the same signature as 'void(float32[:])'; remove one of them",
    ),
    "a_kernel_with_a_result": Mistake(
        "def result(x):\n    return x",
        'kernels.result = "float32(float32)"',
        "{M}.kernels.result: a kernel returns nothing; write void(...) where 'float32(float32)' stands",
    ),
    "no_such_function": Mistake(
        "def some_function(x):\n    pass",
        'kernels.some_funktion = "void(float32[:])"',
        "{M}.kernels.some_funktion: pkg._k has no function some_funktion; did you mean some_function?",
    ),
    "a_dot_for_a_colon": Mistake(
        "class Held:\n    def held(x):\n        pass",
        'kernels.held = { python = "pkg._k.Held.held", signature = "void(float32[:])" }',
        "{M}.kernels.held: pkg._k has no function pkg; did you mean pkg._k:Held.held?",
    ),
    "no_such_function_under_python": Mistake(
        "",
        'functions.called = { python = "some_funktion", signature = "int32(int32)" }',
        "{M}.functions.called: pkg._k has no function some_funktion; did you mean some_function?",
    ),
    "no_function": Mistake(
        "TABLE = {}",
        'kernels.TABLE = "void(float32[:])"',
        """{M}.kernels.TABLE: pkg._k.TABLE is of type dict, and no function; name a Python function, plain or
        decorated with @cuda.jit, or what holds one""",
    ),
    "a_generator": Mistake(
        "def generator(x):  # a_generator\n    yield 1",
        'kernels.generator = "void(float32[:])"',
        "{M}.kernels.generator: generator ({F}:a_generator) is a generator or coroutine; name a plain function",
    ),
    "any_number_of_arguments": Mistake(
        "def star(*xs):  # any_number_of_arguments\n    pass",
        'kernels.star = "void(float32[:])"',
        """{M}.kernels.star: star ({F}:any_number_of_arguments) takes *xs; take a fixed number of arguments, each by its
        position""",
    ),
    "by_keyword_only": Mistake(
        "def keyword(x, *, n):  # by_keyword_only\n    pass",
        'kernels.keyword = "void(float32[:], int32)"',
        """{M}.kernels.keyword: keyword ({F}:by_keyword_only) takes n by keyword only; take a fixed number of arguments,
        each by its position""",
    ),
}


@pytest.fixture(scope="module")
def refused_before_compiling(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(tmp_path_factory.mktemp("understanding"), UNDERSTANDING)


@pytest.mark.parametrize("name", UNDERSTANDING)
def test_what_is_not_understood_is_named_by_key_and_reason(name: str, refused_before_compiling: list[str]) -> None:
    assert expected(UNDERSTANDING[name]) in refused_before_compiling


def test_what_is_not_understood_is_told_once_each(refused_before_compiling: list[str]) -> None:
    assert len(refused_before_compiling) == len(UNDERSTANDING)


# Each is refused somewhere in a compiler's own library, or with no place at all; the user's line is told all the same.
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
IMPORTED = """\
import random
import numpy as np
from numba import cuda
from numba.cuda import libdevice
from numba.cuda.random import xoroshiro128p_normal_float64, xoroshiro128p_uniform_float32

def helper(a, b=2):
    return a + b
"""


def place_told(folder: Path) -> dict[str, tuple[str, str]]:
    """For each of STATEMENTS, as the second of three lines of a kernel: where it stands, and what was said of it."""
    source, module, places = IMPORTED, [], {}
    for number, statement in enumerate(STATEMENTS):
        source += f"\ndef k{number}(x):\n    y = 1\n    {statement}\n    x[1] = y\n"
        module.append(f'kernels.k{number} = "void(float32[::1])"')
        places[f"{MODULE}.kernels.k{number}"] = f"(pkg/_k.py:{source.count(chr(10)) - 1})"
    lines = lines_of(refused(write(folder / "project", source, module="\n".join(module))).err)
    said = {line.partition(": ")[0]: line for line in lines}
    return {
        statement: (place, said.get(key, ""))
        for statement, (key, place) in zip(STATEMENTS, places.items(), strict=True)
    }


@pytest.fixture(scope="module")
def places(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    return place_told(tmp_path_factory.mktemp("places"))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_users_own_line_is_told(statement: str, places: dict[str, tuple[str, str]]) -> None:
    place, said = places[statement]
    assert place in said
