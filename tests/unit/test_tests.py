"""Test that each test can fail."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAILS = {"raises", "warns", "fail", "deprecated_call", "check_call", "assert_allclose", "assert_array_equal"}
"""Functions that make a test fail, and are defined elsewhere."""


def called(function):
    """Return the last names of all that a function calls; `assert` where it asserts."""
    found = {"assert"} if any(isinstance(node, ast.Assert) for node in ast.walk(function)) else set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            found.add(node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
    return found


def silent(sources):
    """Return the tests of some modules that assert nothing, themselves or by a helper, with module and line."""
    tests, helpers = {}, defaultdict(list)
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                tests[f"{name}:{node.lineno} {node.name}"] = called(node)
            elif isinstance(node, ast.FunctionDef):
                helpers[node.name].append(called(node))
    asserting = {"assert", *FAILS}
    while more := {name for name, all_of in helpers.items() if all(asserting & one for one in all_of)} - asserting:
        asserting |= more
    return [test for test, calls in tests.items() if not calls & asserting]


def test_every_test_asserts_something():
    assert silent({str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}) == []


def test_test_that_asserts_nothing_is_found():
    helpers = "def checks():\n    assert 1\ndef passes_on():\n    checks()\ndef idle():\n    pass\n"
    tests = "def test_a():\n    passes_on()\ndef test_b():\n    idle()\ndef test_c():\n    with raises(E): pass\n"
    assert silent({"helpers.py": helpers, "test_x.py": tests}) == ["test_x.py:3 test_b"]
