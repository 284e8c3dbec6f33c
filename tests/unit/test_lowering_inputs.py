"""Compare the descriptions of functions before and after edits: equal only if Numba would compile equal code."""

from __future__ import annotations

import builtins
import functools
import math
import signal
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from aotcuda.builder.cache import hashing
from aotcuda.builder.frontends.numba.lowering_inputs import UnknownError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

np = pytest.importorskip("numpy")


class Pair(NamedTuple):
    first: int
    second: int


class Dispatcher:
    """A stand-in for the compiler's object around a function."""

    def __init__(self, function: Any, *, can_compile: bool = True, **options: object) -> None:
        self.py_func, self.targetoptions, self._can_compile = function, options, can_compile


SOURCE = """\
import math

import settings

NUMBER = 1
PAIR = (1, (2.0, NUMBER))


def helper(x, n=NUMBER, *, scale=1):
    return x * scale + n


def make(number):
    def kernel(x):
        "Text."
        for i in range(NUMBER):
            x[i] = helper(math.sin(x[i])) + number + settings.SIZE + PAIR[0] + decorated(x[0])
        return [y + 0.0 for y in x]
    return kernel


decorated = jit(lambda x: x + 2, inline="never")
kernel = make(3)
"""


def named(source: str, size: object = 4) -> str:
    """Return the digest of the description of `kernel` in a source."""
    settings = types.ModuleType("settings")
    settings.SIZE = size  # type: ignore[attr-defined]
    space: dict[str, Any] = {"jit": Dispatcher, "settings": settings, "__name__": "source"}
    exec(compile(source.replace("import settings\n", ""), "source.py", "exec"), space)
    return hashing.digest(describe(space["kernel"], (), Dispatcher))


EDITS = [
    ("NUMBER = 1", "NUMBER = 2"),
    ("NUMBER = 1", "NUMBER = True"),
    ("NUMBER = 1", "NUMBER = 1.0"),
    ("(2.0, NUMBER)", "(-2.0, NUMBER)"),
    ("(1, (2.0, NUMBER))", "[1, (2.0, NUMBER)]"),
    ("n=NUMBER", "n=2"),
    ("scale=1", "scale=2"),
    ("x * scale", "scale * x"),
    ("make(3)", "make(4)"),
    ("math.sin", "math.cos"),
    ("x + 2", "x + 3"),
    ('inline="never"', 'inline="always"'),
    ("y + 0.0", "y + -0.0"),
    ("y + 0.0", "y + 0"),
    ("[y + 0.0", "[y + False"),
    ("Text.", "Other text."),
    ("def kernel(x)", "def kernel(y, x)"),
    ("def kernel(x)", "def kernel(*x)"),
    ("def helper", "def range(n):\n    return (1,)\n\n\ndef helper"),
]


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_edit_that_changes_code_changes_the_description(before: str, after: str) -> None:
    assert before in SOURCE
    assert named(SOURCE) == named(SOURCE)
    assert named(SOURCE.replace(before, after)) != named(SOURCE)


def test_attribute_of_another_module_changes_the_description() -> None:
    assert named(SOURCE, 4) != named(SOURCE, 5)
    assert named(SOURCE, np.float32(4)) != named(SOURCE, np.float64(4))


def test_lines_and_unread_values_do_not_change_the_description() -> None:
    text = SOURCE.replace("NUMBER = 1", "# comment\n\nOTHER = 5\nNUMBER = 1")
    assert named(text.replace("    def kernel", "    # note\n    def kernel")) == named(SOURCE)


def test_new_builtin_changes_the_description(monkeypatch: pytest.MonkeyPatch) -> None:
    before = named(SOURCE)
    monkeypatch.setattr(builtins, "range", lambda n: (n,))
    assert named(SOURCE) != before


ARRAYS = [
    (lambda: np.array([1, 2]), lambda: np.array([1, 3])),
    (lambda: np.array([1, 2]), lambda: np.array([1, 2], np.uint8)),
    (lambda: np.zeros((2, 3)), lambda: np.zeros((3, 2))),
    (lambda: np.zeros((2, 2)), lambda: np.zeros((2, 2), order="F")),
    (lambda: np.dtype([("a", "f4"), ("b", "f8")]), lambda: np.dtype([("a", "f4"), ("b", "f8")], align=True)),
    (lambda: np.float32(0.0), lambda: np.float32(-0.0)),
]


def reader(value: Any) -> types.FunctionType:
    """Return a function that reads a value from outside."""
    space: dict[str, Any] = {"VALUE": value}
    exec("def kernel(x):\n    return VALUE", space)
    return space["kernel"]


@pytest.mark.parametrize(("first", "second"), ARRAYS)
def test_arrays_are_described_by_their_content(first: Callable[[], Any], second: Callable[[], Any]) -> None:
    def of(make: Callable[[], Any]) -> str:
        return hashing.digest(describe(reader(make()), (), Dispatcher))

    assert of(first) == of(first)
    assert of(first) != of(second)


def late() -> Any:
    def kernel(x: Any) -> Any:
        return x + number

    made = kernel
    if made is None:
        number = 1
    return made


@pytest.mark.parametrize(
    "value",
    [
        object(),
        type("Config", (), {"SIZE": 1}),
        signal.SIGINT,
        Pair(1, 2),
        functools.partial(math.sin, 1),
        {"a": 1},
        {1, 2},
        np.array([object()]),
        Dispatcher(lambda x: x, can_compile=False),
        Dispatcher(lambda x: x, link=["file.cu"]),
        Dispatcher(lambda x: x, extensions=[object()]),
        (1, object()),
        memoryview(b"x"),
        late(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unknown_objects_have_no_description(value: Any) -> None:
    with pytest.raises(UnknownError):
        describe(reader(value), (), Dispatcher)


def test_recursive_functions_have_a_description() -> None:
    space: dict[str, Any] = {}
    exec("def even(n):\n    return n == 0 or odd(n - 1)\n\n\ndef odd(n):\n    return n != 0 and even(n - 1)\n", space)
    assert hashing.digest(describe(space["even"], (), Dispatcher)) != hashing.digest(
        describe(space["odd"], (), Dispatcher)
    )


def test_function_that_borrows_the_name_of_a_tool_is_described_by_its_code() -> None:
    def impostor(number: int) -> Any:
        def sin(x: Any) -> Any:
            return x + number

        sin.__module__, sin.__qualname__ = "posixpath", "join"
        return sin

    descriptions = {hashing.digest(describe(reader(impostor(number)), (), Dispatcher)) for number in (1, 2)}
    assert len(descriptions) == 2
