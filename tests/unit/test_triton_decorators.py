"""Functions of heuristics that test an argument for None are recognised, and decorators are looked through."""

from __future__ import annotations

import pytest

from aotcuda.builder.frontends.triton import decorators
from aotcuda.common.heuristics import question

OTHER = "x"
named = lambda nargs: nargs["bias"] is not None  # noqa: E731 (a heuristic may have a name)


def defined(args):
    return args["x"] is None


def documented(args):
    """Say more than its code does."""
    return args["x"] is None


def made(value):
    return lambda args: args["x"] is value


@pytest.mark.parametrize(
    ("function", "asked"),
    [
        (lambda args: args["x"] is None, ("x", True)),
        (lambda args: args["x"] is not None, ("x", False)),
        (lambda META: META["a b"] is None, ("a b", True)),  # noqa: N803 (as packages write it)
        (named, ("bias", False)),
        (defined, ("x", True)),
    ],
)
def test_the_literal_form_is_recognised(function, asked):
    assert question(function) == asked


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


def test_decorators_of_triton_and_of_packages_are_looked_through():
    triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

    class Cached(triton.runtime.autotuner.Autotuner):
        """An autotuner of a package's own."""

    class Replaced:
        """A package's replacement of an autotuner."""

        def __init__(self, fn):
            self.fn, self.arg_names = fn, fn.arg_names
            self.configs = [triton.Config({"BLOCK": 32})]

        def run(self, *_args, **_named):
            raise NotImplementedError

    @triton.jit
    def kernel(x, n, HAS_X, EVEN, BLOCK):  # noqa: N803
        pass

    inner = triton.heuristics({"EVEN": lambda args: args["n"] % 2, "HAS_X": lambda args: args["x"] is None})(kernel)
    tuned = Cached(inner, inner.arg_names, [triton.Config({"BLOCK": 64})], ["n"], None, None)
    outer = triton.heuristics({"HAS_X": lambda args: args["x"] is not None, "B": len})(Replaced(tuned))
    around, function = decorators.layers(outer)
    assert function is kernel
    assert [type(item).__name__ for item in around] == ["Heuristics", "Replaced", "Cached", "Heuristics"]
    assert decorators.tuners(around) == [around[1], tuned]
    assert decorators.heuristics(around) == {"B": None, "EVEN": None, "HAS_X": ("x", True)}
