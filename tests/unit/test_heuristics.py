"""Functions of heuristics that only test an argument for None are recognised."""

from __future__ import annotations

import pytest

from aotcuda.common.heuristics import question

OTHER = "x"
named = lambda nargs: nargs["bias"] is not None  # noqa: E731 (a heuristic may have a name)


def defined(args):
    return args["x"] is None


def documented(args):
    """Return a value as `defined` does, with a docstring."""
    return args["x"] is None


def made(value):
    return lambda args: args["x"] is value


@pytest.mark.parametrize(
    ("function", "test"),
    [
        (lambda args: args["x"] is None, ("x", True)),
        (lambda args: args["x"] is not None, ("x", False)),
        (lambda META: META["a b"] is None, ("a b", True)),  # noqa: N803 (as packages write it)
        (named, ("bias", False)),
        (defined, ("x", True)),
    ],
)
def test_the_literal_form_is_recognised(function, test):
    assert question(function) == test


def test_a_function_of_another_form_is_not_recognised():
    alike = [
        lambda args: args["x"] is None or args["y"],
        lambda args: args["x"] == None,  # noqa: E711
        lambda args: args["x"] is True,
        lambda args: args[OTHER] is None,
        lambda args: args["x"]["y"] is None,
        lambda args: args.get("x") is None,
        lambda args: args[0] is None,
        lambda args: args["x"] is args["y"],
        lambda args, default=None: args["x"] is default,
        lambda *args: args["x"] is None,
        lambda args: bool(args["x"] is None),
        made(None),
        documented,
        len,
    ]
    assert [function for function in alike if question(function) is not None] == []
