"""Test that each test can fail."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
# What makes a test fail by itself, whoever defines it.
FAILS = {"raises", "warns", "fail", "deprecated_call", "check_call", "assert_allclose", "assert_array_equal"}


@functools.cache
def parsed(text):
    return ast.parse(text)


def functions(tree):
    """Every function of a module, with those inside classes and functions."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def called(function):
    """Return the last names of all that a function calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node.func.id


def says_something(function):
    """Return True if a function asserts, or ends a test in another way, by itself."""
    return any(isinstance(node, ast.Assert) for node in ast.walk(function)) or FAILS & {*called(function)}


def asserting(defined):
    """Return the names of all helpers that assert, or call one that does."""
    found = {name for name, functions in defined.items() if all(map(says_something, functions))}
    while more := {
        name
        for name, functions in defined.items()
        if name not in found and all(says_something(each) or found & {*called(each)} for each in functions)
    }:
        found |= more
    return found


def silent(sources):
    """Return the tests among some modules that assert nothing, by module and line."""
    trees = {name: parsed(text) for name, text in sources.items()}
    defined = defaultdict(list)
    for tree in trees.values():
        for function in functions(tree):
            if not function.name.startswith("test_"):
                defined[function.name].append(function)
    helpers = asserting(defined)
    return [
        f"{name}:{function.lineno} {function.name}"
        for name, tree in trees.items()
        for function in functions(tree)
        if function.name.startswith("test_") and not says_something(function) and not helpers & {*called(function)}
    ]


def test_every_test_asserts_something():
    sources = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}
    assert silent(sources) == []


def test_one_that_asserts_nothing_is_found():
    helpers = "def checks():\n    assert 1\ndef passes_on():\n    checks()\ndef idle():\n    pass\n"
    tests = "def test_a():\n    passes_on()\ndef test_b():\n    idle()\ndef test_c():\n    with raises(E): pass\n"
    assert silent({"helpers.py": helpers, "test_x.py": tests}) == ["test_x.py:3 test_b"]


def decorators(function, name):
    """Return the decorators of some last name, each with the call's arguments."""
    for node in function.decorator_list:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if isinstance(call.func, ast.Attribute) and call.func.attr == name:
            yield call


def arguments(function):
    return {argument.arg for argument in function.args.args}


def closure(names, fixtures):
    """Some fixtures with all that they ask for, as far as the module has them."""
    found = set(names)
    while more := {name for one in found & fixtures.keys() for name in arguments(fixtures[one])} - found:
        found |= more
    return found


def built_for_each(text):
    """The tests of a module that get a fixture's parameter in pairs with another one, and use what is built from it.

    To pytest each pair has a parameter of its own, so a fixture of the module is made anew for each.
    """
    tree = parsed(text)
    scopes = {
        function.name: next((item.value.value for item in call.keywords if item.arg == "scope"), "function")
        for function in functions(tree)
        for call in decorators(function, "fixture")
    }
    fixtures = {function.name: function for function in functions(tree) if function.name in scopes}
    for test in functions(tree):
        for call in decorators(test, "parametrize"):
            given = {item.arg: item.value for item in call.keywords}.get("indirect")
            if given is None or not isinstance(call.args[0], ast.Tuple):
                continue
            indirect = {node.value for node in ast.walk(given) if isinstance(node, ast.Constant)}
            kept = {name for name in closure(arguments(test), fixtures) if scopes.get(name) in ("module", "session")}
            if any(closure({name}, fixtures) & indirect for name in kept):
                yield test.name


def test_nothing_is_built_for_each_test_that_was_meant_for_all():
    found = {path.name: [*built_for_each(path.read_text())] for path in TESTS.rglob("test_*.py")}
    assert {name: tests for name, tests in found.items() if tests} == {}


def test_one_that_is_built_for_each_is_found():
    text = """
@pytest.fixture(scope="{}")
def built(front_end):
    pass
@pytest.fixture
def lines(built):
    pass
@pytest.mark.parametrize(("front_end", "name"), PAIRS, indirect=["front_end"])
def test_a(front_end, name, lines):
    pass
@pytest.mark.parametrize("name", NAMES)
def test_b(name, lines):
    pass
"""
    assert [*built_for_each(text.format("module"))] == ["test_a"]
    assert [*built_for_each(text.format("function"))] == []
