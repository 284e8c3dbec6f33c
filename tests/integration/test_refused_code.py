"""What is said of functions and signatures that cannot be compiled: the user's key, the reason and the place.

Mistakes of one kind are put into one project, since a build tells all of them at once.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, lines_of, refused, write

if TYPE_CHECKING:
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
    source = "from numba import cuda, float32\n\n" + "\n\n".join(
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
        def undefined(x):  # undefined_name
            x[0] = nowhere
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
        """{M}.kernels.opens: void(float32[:]): UnsupportedBytecodeError: The 'with (context manager) as (variable):'
        construct is not supported. ({F}:unsupported_statement)""",
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
            return fib(n - 1) + fib(n - 2)
        def recurses(x):
            x[0] = fib(x[0])
        """,
        'kernels.recurses = "void(int32[:])"',
        """{M}.kernels.recurses: void(int32[:]): a function that it calls is recursive and calls itself with other types
        than it was called with, which Numba-CUDA cannot compile; convert the arguments to the same types (int32 plus a
        literal is int64)""",
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
        def text_result(x):
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
            kernel cannot take; pass numbers, bool, complex, datetimes, records, pointers, arrays, or tuples of
            these""",
        )
        for name, signature, argument, ty in [
            ("optional", "Optional(float32)", "x", "OptionalType(float32)"),
            ("string", "unicode_type", "x", "unicode_type"),
            ("list", "ListType(float32)", "x", "ListType[float32]"),
            ("optional_in_tuple", "Tuple((int32, Optional(float32)))", "x[1]", "OptionalType(float32)"),
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


@pytest.fixture(scope="module")
def refused_by_the_compiler(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(tmp_path_factory.mktemp("compiling"), COMPILING)


@pytest.mark.parametrize("name", COMPILING)
def test_what_does_not_compile_is_named_by_key_reason_and_place(name: str, refused_by_the_compiler: list[str]) -> None:
    assert expected(COMPILING[name]) in refused_by_the_compiler


def test_what_does_not_compile_is_told_once_each(refused_by_the_compiler: list[str]) -> None:
    assert len(refused_by_the_compiler) == len(COMPILING)


PLAIN = "def plain(x):\n    x[0] = 1"
UNDERSTANDING = {
    "an_unknown_type": Mistake(
        PLAIN,
        'kernels.plain = "void(flot32[:])"',
        "{M}.kernels.plain: 'void(flot32[:])' is no signature in Numba's notation: 'flot32' is no Numba type",
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
        """{M}.functions.sized.signature: 'void(float32[3])' is no signature in Numba's notation: Can only index numba
        types with slices with no start or stop, got 3.""",
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
    "no_such_function_under_python": Mistake(
        "",
        'functions.called = { python = "some_funktion", signature = "int32(int32)" }',
        "{M}.functions.called: pkg._k has no function some_funktion; did you mean some_function?",
    ),
    "no_function": Mistake(
        "TABLE = {}",
        'kernels.TABLE = "void(float32[:])"',
        """{M}.kernels.TABLE: pkg._k.TABLE is a dict, not a function; name a Python function, plain or decorated with
        @cuda.jit""",
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
def refused_before_compiling(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(tmp_path_factory.mktemp("understanding"), UNDERSTANDING)


@pytest.mark.parametrize("name", UNDERSTANDING)
def test_what_is_not_understood_is_named_by_key_and_reason(name: str, refused_before_compiling: list[str]) -> None:
    assert expected(UNDERSTANDING[name]) in refused_before_compiling


def test_what_is_not_understood_is_told_once_each(refused_before_compiling: list[str]) -> None:
    assert len(refused_before_compiling) == len(UNDERSTANDING)
