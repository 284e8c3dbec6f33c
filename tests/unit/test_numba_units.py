"""Test which functions of Numba a unit may name, and with which signatures."""

from __future__ import annotations

import functools
import sys
import types

import pytest

pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed")

from numba import cuda

from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.numba import resolve, units
from aotcuda.builder.frontends.numba.config import NumbaUnit
from aotcuda.builder.frontends.numba_cuda.types import notation
from aotcuda.errors import CompileError, SourceError

DISPATCHER = type(cuda.jit(lambda x: None))


def unit(kind="kernel", signature="void(int32)", python="f", **changes):
    names = {"key": "KEY", "kind": kind, "module": "pkg.k", "name": "f", "symbol": "f", "origin": "pkg:f"}
    facts = {"signature": signature, "signature_key": "KEY.signature", "source": __name__, "sources": (__name__,)}
    return NumbaUnit(**names, options=Options(), python=python, **{**facts, **changes})


def plain(x): ...
def two(x, y=1): ...
def three(x, y=1, z=2): ...
def generator(x):
    yield x


def keyword(x, *, y): ...
def variadic(*x): ...


def loaded(function, device=None):
    """Return a function as `@cuda.jit` with `device` leaves it; None for a plain function."""
    value = function if device is None else cuda.jit(function, device=device)
    return resolve.LoadedFunction(__name__, value, function)


@pytest.mark.parametrize(
    ("function", "device", "changes", "text"),
    [
        (plain, None, {}, "void(int32)"),
        (plain, False, {}, "void(int32)"),
        (plain, True, {"kind": "function", "signature": "int32(int32)"}, "int32(int32)"),
        (plain, True, {"kind": "function"}, "void(int32)"),
        (plain, None, {"kind": "function"}, "void(int32)"),
        (plain, None, {"signature": "(float32[::1],)"}, "void(float32[::1])"),
        (two, None, {"signature": "void(int32,int8)"}, "void(int32, int8)"),
    ],
)
def test_signatures_that_fit_are_spelled_in_full(function, device, changes, text):
    assert units.resolve(unit(**changes), loaded(function, device), notation, "/").text == text


@pytest.mark.parametrize(
    ("function", "device", "changes", "message"),
    [
        (plain, None, {"signature": "void(int"}, "KEY.signature: 'void(int' is not a signature in Numba's notation"),
        (plain, None, {"signature": "void()"}, "'void()' has 0 arguments where f takes 1 ("),
        (two, None, {}, "has 1 argument where f takes 2 ("),
        (two, None, {}, "write a type for each parameter, also for y, since kernels have no default arguments"),
        (three, None, {}, "also for z, since"),
        (plain, True, {}, "is a device function (device=True); list it under functions, or remove device=True"),
        (plain, False, {"kind": "function"}, "is a kernel, which returns nothing; list it under kernels"),
        (plain, None, {"signature": "int32(int32)"}, "a kernel returns nothing; write void(...) where 'int32(int32)'"),
        (generator, None, {}, "is a generator or coroutine; name a plain function"),
        (keyword, None, {}, "takes y by keyword only; use a fixed number of positional arguments"),
        (variadic, None, {}, "takes *x; use a fixed number of positional arguments"),
    ],
)
def test_functions_and_signatures_that_do_not_fit_are_refused(function, device, changes, message):
    with pytest.raises((CompileError, SourceError)) as caught:
        units.resolve(unit(**changes), loaded(function, device), notation, "/")
    assert message in str(caught.value)


@pytest.mark.parametrize("number", [0, 3])
def test_a_wrong_number_of_types_says_nothing_of_defaults_that_do_not_help(number):
    with pytest.raises(CompileError) as caught:
        units.resolve(unit(signature=f"void({', '.join(['int8'] * number)})"), loaded(two), notation, "/")
    assert str(caught.value).endswith("; write a type for each parameter")


def declared(*signatures):
    function = loaded(plain, device=False)
    for text in signatures:
        resolve.declare(function.value, *notation.parse(text, {}))
    return function


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        (["void(int32)"], [("void(int32)", "f", 0)]),
        (["(int32,)", "void(int32)"], [("void(int32)", "f", 0)]),
        (["void(int32)", "void(int32)", "void(int8)"], [("void(int32)", "f__0", 0), ("void(int8)", "f__1", 2)]),
    ],
)
def test_declared_signatures_serve_a_unit_without_one(signatures, expected):
    made = units.complete(unit(signature=""), declared(*signatures), notation, "/")
    assert [(each.signature, each.symbol, each.declared) for each in made] == expected
    assert units.resolve(made[0], declared(*signatures), notation, "/").text == expected[0][0]


@pytest.mark.parametrize(
    ("kind", "signatures", "message"),
    [
        (
            "kernel",
            [],
            'write signatures = "void(float32[::1])", with its types, or let aotcuda record find them in a run',
        ),
        ("function", [], 'write signature = "void(float32[::1])", with its types'),
        ("function", ["int8(int8)", "int32(int32)"], 'choose one: signature = "int8(int8)"'),
    ],
)
def test_a_unit_without_one_signature_is_refused(kind, signatures, message):
    with pytest.raises(SourceError) as caught:
        units.complete(unit(kind, signature=""), declared(*signatures), notation, "/")
    assert str(caught.value).endswith(message)


@cuda.jit
def kernel(x): ...


@cuda.jit
def other(x): ...


@cuda.jit(device=True)
def helper(x): ...


@functools.wraps(kernel)
def wrapper(*args):
    kernel[1, 1](*args)


def launcher(*args):
    kernel[1, 1](*args)


def closure(kernel, helper):
    def launch(*args):
        kernel[1, 1](helper, *args)

    return launch


def holder(**items):
    return types.SimpleNamespace(**items)


class Slots:
    __slots__ = ("inner", "missing")

    def __init__(self, inner):
        self.inner = inner


class Raising:
    @property
    def __wrapped__(self):
        raise RuntimeError

    def __init__(self, inner):
        self.inner = inner


wrapped_kernel = closure(kernel, helper)
held = holder(inner=kernel, helper=helper)
nested = holder(inner=None, __wrapped__=holder(kernel=kernel))
slotted = Slots(kernel)
raising = Raising(kernel)
of_two = holder(one=kernel, two=other)
of_two_and_wrapped = holder(one=other, two=kernel, __wrapped__=kernel)
no_function = holder(name="text")
kind = Slots
same = kernel


@pytest.mark.parametrize(
    ("name", "found", "device"),
    [
        ("kernel", kernel, False),
        ("helper", helper, True),
        ("plain", plain, None),
        ("wrapper", kernel, False),
        ("wrapped_kernel", kernel, False),
        ("held", kernel, False),
        ("nested", kernel, False),
        ("slotted", kernel, False),
        ("raising", kernel, False),
        ("of_two_and_wrapped", kernel, False),
        ("launcher", launcher, None),
        ("held.helper", helper, True),
    ],
)
def test_the_kernel_inside_an_object_is_found(name, found, device):
    made = resolve.find(unit(python=name), DISPATCHER, notation, "/")
    assert made.value is found
    assert made.is_device is device
    assert made.python is getattr(found, "py_func", found)
    assert (made.module, made.declared) == (__name__, [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_two", "of_two holds several kernels: one ("),
        ("no_function", "no_function is of type SimpleNamespace, and no function; name a Python function, plain or"),
        ("kind", "kind is of type type, and no function"),
        ("missing", "missing"),
    ],
)
def test_objects_without_one_kernel_are_refused(name, message):
    with pytest.raises(SourceError) as caught:
        resolve.find(unit(python=name), DISPATCHER, notation, "/")
    assert message in str(caught.value)


@pytest.fixture
def module(monkeypatch):
    """Return a function that adds a module with these values."""

    def add(name, **values):
        made = types.ModuleType(name)
        vars(made).update(values)
        monkeypatch.setitem(sys.modules, name, made)
        return name

    return add


def test_of_several_modules_the_one_that_defines_the_function_has_it(module):
    first, second = module("first", plain=plain), module("second", plain=two)

    def find(*sources):
        return resolve.find(unit(python="plain", sources=sources), DISPATCHER, notation, "/")

    assert find(first).module == "first"
    assert find(first, __name__).module == "first"  # they have the same object
    assert (find(second, __name__).module, find(second, __name__).value) == (__name__, plain)
    with pytest.raises(SourceError, match=r'first and second each have plain; choose one with python = "first:plain"'):
        find(first, second)
