"""What of a project's Python a unit depends on: never less than what can change it.

The oracle is Python itself: where two versions of a project have the same slice for a function, calling that function
gives the same in both.
"""

from __future__ import annotations

import ast
import keyword
import textwrap
import unicodedata
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcuda.builder.build_cache.slices import Slices

HEAD = "from numba import cuda\n"


def slice_of(source: str, *names: str, lines: bool = False, **others: str) -> dict[str, str] | None:
    files = {"k.py": textwrap.dedent(source), **{f"{name}.py": text for name, text in others.items()}}
    return Slices({name: text.encode() for name, text in files.items()}).of(names, lines=lines)


BASE = """\
from numba import cuda
SCALE = 2
def helper(x):
    return x * SCALE
def other(x):
    return x + 1
@cuda.jit
def k(x):
    x[0] = helper(x[0])
@cuda.jit(fastmath=True)
def second(x):
    x[0] = other(x[0])
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x + 1", "x + 2"),
        ("other(x[0])", "other(x[1])"),
        ("def other", "# a comment\n\n\ndef other"),
        ("x * SCALE", "x  *  SCALE  # twice"),
    ],
)
def test_what_a_unit_cannot_reach_is_left_out(before: str, after: str) -> None:
    assert before in BASE
    assert slice_of(BASE, "k") == slice_of(BASE.replace(before, after), "k")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SCALE = 2", "SCALE = 3"),
        ("x * SCALE", "x / SCALE"),
        ("helper(x[0])", "helper(x[1])"),
        ("fastmath=True", "fastmath=False"),
        ("def other(x)", "def other(x=3)"),
        ("def other(x)", "def other(x) -> None"),
        ("def other(x)", "def another(x)"),
    ],
)
def test_what_it_can_reach_counts(before: str, after: str) -> None:
    assert before in BASE
    assert slice_of(BASE, "k") != slice_of(BASE.replace(before, after), "k")


@pytest.mark.parametrize(
    "tail",
    [
        "TABLE = [other]",
        "TABLE = {'other': 1}",
        "class C:\n    f = other",
        "alias = other",
        "print(other(1))",
        "def k2(f=other): pass",
        "for f in (other,): pass",
        "if SCALE:\n    other(1)",
        "import k\nk.other",
    ],
)
def test_what_runs_when_the_file_is_imported_counts_with_all_that_it_names(tail: str) -> None:
    source = BASE + tail + "\n"
    assert slice_of(source, "k") != slice_of(source.replace("x + 1", "x + 2"), "k")


@pytest.mark.parametrize(
    "tail",
    [
        "TABLE = [f for f in globals().values()]",
        "TABLE = [v for v in vars().values()]",
        "import sys\nTABLE = sys.modules[__name__]",
        "TABLE = getattr(cuda, 'ot' + 'her', None)",
        "register(__name__)",
        "import inspect",
        "exec('oth' + 'er(1)')",
        "from importlib import import_module as load",
    ],
)
def test_nothing_is_left_out_where_functions_can_be_reached_without_their_names(tail: str) -> None:
    assert slice_of(BASE + tail + "\n", "k") is None


@pytest.mark.parametrize(
    "decorated",
    [
        "@register\ndef other(x):",
        "@cuda.jit\n@register\ndef other(x):",
        "@cuda.jit(register)\n@register\ndef other(x):",
        "@vectorize\ndef other(x):",
    ],
)
def test_a_function_under_a_decorator_that_may_call_it_counts(decorated: str) -> None:
    source = BASE.replace("def other(x):", decorated)
    assert slice_of(source, "k") != slice_of(source.replace("x + 1", "x + 2"), "k")


@pytest.mark.parametrize(
    "rebound",
    [
        "import fake as cuda",
        "cuda = object()",
        "class cuda: pass",
        "from fake import cuda",
        "from fake import *",
        "async def cuda(): pass",
        "match object():\n    case cuda: pass",
        "match [1, 2]:\n    case [_, *cuda]: pass",
        "match {1: 2}:\n    case {**cuda}: pass",
        "try:\n    import fake\nexcept ImportError as cuda:\n    pass",
    ],
)
def test_cuda_jit_is_a_decorator_like_any_other_where_cuda_is_not_the_compilers(rebound: str) -> None:
    source = BASE.replace("from numba import cuda", f"from numba import cuda\n{rebound}")
    assert slice_of(source, "k") != slice_of(source.replace("other(x[0])", "other(x[1])"), "k")


COMPILERS = {
    "import triton": ["triton.jit", "triton.jit(debug=True)", "triton.autotune([], [])\n@triton.jit"],
    "import triton as t": ["t.jit", "t.heuristics({})\n@t.jit"],
    "from triton import jit, autotune as tuned": ["jit", "tuned([], key=[])\n@jit"],
    "import cuda.tile as ct": ["ct.kernel", "ct.kernel(opt_level=2)", "ct.function"],
    "from cuda import tile": ["tile.kernel"],
    "from cuda.tile import kernel": ["kernel"],
    "import cuda.tile": ["cuda.tile.kernel"],
}
DECORATED = [(head, decorator) for head, decorators in COMPILERS.items() for decorator in decorators]


def of_compiler(head: str, decorator: str, more: str = "") -> str:
    return f"{head}\n{more}\n@{decorator}\ndef k(x):\n    return helper(x)\n@{decorator}\ndef other(x):\n    return 1\n"


@pytest.mark.parametrize(("head", "decorator"), DECORATED)
def test_decorators_of_other_compilers_wait_too(head: str, decorator: str) -> None:
    helper = f"@{decorator}\ndef helper(x):\n    return 2\n"
    source = of_compiler(head, decorator, helper)
    assert slice_of(source, "k") is not None
    assert slice_of(source, "k") == slice_of(source.replace("return 1", "return 3"), "k")
    assert slice_of(source, "k") != slice_of(source.replace("return 2", "return 3"), "k")


@pytest.mark.parametrize(
    "again", ["{0} = print", "from fake import {0}", "from numba import x as {0}", "from fake import *"]
)
@pytest.mark.parametrize(("head", "decorator"), DECORATED)
def test_but_not_where_their_names_may_stand_for_something_else(head: str, decorator: str, again: str) -> None:
    source = of_compiler(head, decorator, again.format(decorator.partition(".")[0].partition("(")[0]))
    assert slice_of(source, "k") != slice_of(source.replace("return 1", "return 3"), "k")


@pytest.mark.parametrize(("head", "decorator"), [item for item in DECORATED if "." in item[1] and "(" not in item[1]])
def test_a_compiler_may_have_another_decorator_from_any_file(head: str, decorator: str) -> None:
    assert slice_of(of_compiler(head, decorator), "k", other=f"{head}\n{decorator} = print\n") is None


@pytest.mark.parametrize("decorator", ["triton.constexpr_function", "triton.other", "triton.jit.more", "ct.kernel"])
def test_what_else_a_compiler_has_may_run_what_it_decorates(decorator: str) -> None:
    source = of_compiler("import triton", decorator)
    assert slice_of(source, "k") != slice_of(source.replace("return 1", "return 3"), "k")


def test_a_compilers_cuda_may_have_another_jit_from_any_file() -> None:
    patched = {"other": "import numba.cuda\nnumba.cuda.jit = print\n"}
    assert slice_of(BASE, "k", **patched) is None


@pytest.mark.parametrize("name", ["__getattr__", "__dir__", "__anything__"])
def test_what_python_calls_of_a_module_counts(name: str) -> None:
    source = "import constants\nSCALE = constants.SCALE\ndef k(x):\n    return SCALE\n"
    constants = f"def {name}(asked):\n    return 2\n"
    found = slice_of(source, "k", constants=constants)
    assert found is None or found != slice_of(source, "k", constants=constants.replace("return 2", "return 3"))


@pytest.mark.parametrize(("name", "owner"), [("_C__scale", "C"), ("_A__b__scale", "A__b")])
def test_what_a_class_calls_by_a_private_name_counts(name: str, owner: str) -> None:
    private = name.removeprefix(f"_{owner}")
    called = f"class {owner}:\n    SCALE = {private}()\ndef k(x):\n    return {owner}.SCALE\n"
    source = f"def {name}():\n    return 2\n{called}"
    assert outcome(source, "k") == 2
    assert slice_of(source, "k") != slice_of(source.replace("return 2", "return 3"), "k")


def test_functions_of_other_files_count_when_their_names_or_aliases_do() -> None:
    source = "from numba import cuda\nfrom helpers import one as first, two\n@cuda.jit\ndef k(x):\n    first(x)\n"
    helpers = "def one(x):\n    return 1\ndef two(x):\n    return 1\n"
    base = slice_of(source, "k", helpers=helpers)
    assert (
        slice_of(source, "k", helpers=helpers.replace("def two(x):\n    return 1", "def two(x):\n    return 2")) == base
    )
    assert (
        slice_of(source, "k", helpers=helpers.replace("def one(x):\n    return 1", "def one(x):\n    return 2")) != base
    )


def test_places_in_files_count_where_they_show() -> None:
    moved = BASE.replace("SCALE = 2", "\nSCALE = 2")
    assert slice_of(BASE, "k") == slice_of(moved, "k")
    assert slice_of(BASE, "k", lines=True) != slice_of(moved, "k", lines=True)


def test_a_file_that_cannot_be_read_as_python_leaves_nothing_out() -> None:
    assert slice_of(BASE, "k", broken="def f(:\n") is None


NAMES = ["a", "b", "c", "d"]
TAILS = [
    "",
    "T = {other}",
    "V = {other}(2)",
    "{other} = {this}",
    "W = [{other}, {this}]",
    "def {this}(x):\n    return x - {other}(x) if x > 0 else 7",
    "class K:\n    run = staticmethod({other})",
    "L = lambda x: {other}(x)",
    "__all__ = ['{other}']",
    "D = dict(f={other})['f'](1)",
]


@st.composite
def projects(draw: st.DrawFn) -> tuple[str, str]:
    """A module whose functions call each other, and the same with one number of it changed."""
    lines = []
    for name in NAMES:
        callee = draw(st.sampled_from([*NAMES, "V", "K.run", "L", "T", "W[0]"]))
        lines.append(f"def {name}(x):\n    return {len(lines) + 10} + ({callee}(x - 1) if x > 0 else 1)")
        tail = draw(st.sampled_from(TAILS))
        lines.append(tail.format(other=draw(st.sampled_from(NAMES[: NAMES.index(name) + 1])), this=name))
    source = "\n".join(lines) + "\n"
    number = draw(st.integers(0, 3)) * 2 + 10
    return source, source.replace(f"return {number} +", f"return {number + 500} +")


def outcome(source: str, name: str) -> object:
    space: dict[str, object] = {"__name__": "k"}
    try:
        exec(compile(source, "k.py", "exec"), space)
        return space[name](4)
    except (TypeError, NameError, RecursionError, AttributeError, LookupError) as error:
        return type(error).__name__


@settings(max_examples=300, deadline=None, derandomize=True)
@given(projects(), st.sampled_from(NAMES))
def test_functions_with_equal_slices_do_the_same(project: tuple[str, str], name: str) -> None:
    before, after = project
    if slice_of(before, name) == slice_of(after, name):
        assert outcome(before, name) == outcome(after, name)


def test_the_property_is_about_something() -> None:
    """Of two versions that differ in a function that nothing names, the slices are equal."""
    before = "def a(x):\n    return 10 + 1\ndef b(x):\n    return 12 + 1\n"
    assert slice_of(before, "a") == slice_of(before.replace("12", "512"), "a")
    assert slice_of(before, "b") != slice_of(before.replace("12", "512"), "b")


def test_many_units_take_the_text_of_each_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = "".join(f"@cuda.jit\ndef k{number}(x):\n    x[0] = helper(x[{number}])\n" for number in range(30))
    slices = Slices({"k.py": f"{HEAD}def helper(x):\n    return x\n{functions}".encode()})
    dumped: list[object] = []
    original = ast.dump
    monkeypatch.setattr(ast, "dump", lambda node, **given: dumped.append(node) or original(node, **given))
    found = [slices.of([f"k{number}"], lines=False) for number in range(30)]
    assert len({str(each) for each in found}) == 30
    functions_dumped = [node for node in dumped if isinstance(node, ast.FunctionDef)]
    assert len(functions_dumped) == 31


@pytest.mark.parametrize("name", ["Δ", "ñandu", "änderung", "x\u0304", "名前", "ﬁne", "K", "_C__x\u0304"])
@pytest.mark.parametrize("use", ["{}(x[0])", "table['{}'](x[0])"])
def test_names_of_every_script_are_reached(name: str, use: str) -> None:
    before = f"{HEAD}def {name}(x):\n    return x * 2\n@cuda.jit\ndef k(x):\n    x[0] = {use.format(name)}\n"
    assert slice_of(before, "k") is not None
    assert slice_of(before, "k") != slice_of(before.replace("x * 2", "x * 3"), "k")
    assert slice_of(before, name) != slice_of(before.replace("x * 2", "x * 3"), name)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6))
def test_whatever_is_a_name_is_reached_by_it(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(unicodedata.normalize("NFKC", name)):
        return
    before = f"{HEAD}def {name}(y):\n    return y * 2\n@cuda.jit\ndef kernel(y):\n    y[0] = {name}(y[0])\n"
    first, second = (slice_of(text, "kernel") for text in (before, before.replace("y * 2", "y * 3")))
    assert first is None or first != second


@pytest.mark.parametrize("value", [f"0x{'f' * 4000}", " + ".join(["1"] * 3000)], ids=["a long number", "a deep sum"])
def test_what_has_no_dump_leaves_nothing_out(value: str) -> None:
    assert slice_of(f"{BASE}BIG = {value}\n", "k") is None


def test_what_ran_while_it_was_imported_counts_whoever_called_it() -> None:
    files = {"k.py": BASE.encode()}
    line = next(number for number, text in enumerate(BASE.splitlines(), 1) if text.startswith("def other"))
    for at, counts in ((line, True), (line + 1, True), (line - 1, False), (line + 2, False)):
        before = Slices(files, [("k.py", at), ("another.py", line)]).of(["k"], lines=False)
        edited = {"k.py": BASE.replace("x + 1", "x + 2").encode()}
        assert (Slices(edited, [("k.py", at)]).of(["k"], lines=False) != before) is counts


@pytest.mark.parametrize("tail", ["", "getattr(cuda, 'x')\n"])
def test_what_a_unit_was_made_of_is_held_against_what_counts(tail: str) -> None:
    source = BASE + tail
    slices = Slices({"k.py": source.encode()})
    lines = {text: number for number, text in enumerate(source.splitlines(), 1)}
    assert slices.hold(["k"], [("k.py", lines["def helper(x):"]), ("k.py", lines["@cuda.jit"])])
    assert slices.hold(["k"], [("other.py", lines["def other(x):"])])
    left_out = [("k.py", lines["def other(x):"])]
    assert slices.hold(["k"], left_out) is bool(tail)
    assert slices.hold(["second"], left_out)


def test_a_module_by_which_functions_are_reached_may_be_imported_from() -> None:
    assert slice_of(BASE + "from inspect import getsource\n", "k") is None
    assert slice_of(BASE + "from runpy import run_path as run\n", "k") is None


def test_what_the_import_warns_of_is_not_told_twice() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slice_of('PATTERN = "\\d"\n' + BASE, "k")
    assert caught == []
