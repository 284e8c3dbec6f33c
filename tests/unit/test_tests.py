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
