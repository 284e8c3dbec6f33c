"""Values that kernels read when they are compiled, compared with the values of a run."""

from __future__ import annotations

import importlib
import sys

import pytest

from aotcuda.builder.frontends.numba.read_values import read_values
from aotcuda.common import value_descriptions

np = pytest.importorskip("numpy")

HEAD = """
import enum, math
from collections import namedtuple
from types import SimpleNamespace
import numpy as np
from mypkg import config, helpers

class jit:  # stands for a decorator of Numba
    def __init__(self, function):
        self.py_func = function

V = {value}
"""
CONFIG = "V = {value}\nOTHER = {value}\n"
HELPERS = """
from mypkg import config

V = {value}

def inner(x):
    return x * config.V

def outer(x):
    return inner(x)
"""

READ = {
    "a global": ("x[0] = V", "V"),
    "a global in a function inside": ("f = lambda y: y + V\n    x[0] = f(1)", "V"),
    "an attribute of a module": ("x[0] = config.V", "config.V"),
    "an attribute of a module with another name": ("c = config\n    x[0] = c.V", "config.V"),
    "an attribute by getattr": ("x[0] = getattr(config, 'V')", "config.V"),
    "a global of a helper's helper": ("x[0] = helpers.outer(1)", "helpers.outer:inner:config.V"),
}
"""Kernel bodies that read the value 1 or 2, and the path of the value."""

DEFINED = {
    "a variable of a closure": (
        "def make(n):\n    @jit\n    def k(x):\n        x[0] = n\n    return k\nkernel = make(V)",
        "n",
    ),
    "a global of a helper": (
        "@jit\ndef helper(x):\n    return x * V\n@jit\ndef kernel(x):\n    x[0] = helper(1)",
        "helper:V",
    ),
    "a default argument of a helper": (
        "def helper(x, n=V):\n    return x * n\n@jit\ndef kernel(x):\n    x[0] = helper(1)",
        "helper:n",
    ),
    "a default argument of the kernel": ("@jit\ndef kernel(x, n=V):\n    x[0] = n", "n"),
    "a helper in a branch": (
        (
            "if V == 1:\n    def helper(x): return 1\nelse:\n    def helper(x): return 2\n"
            "@jit\ndef kernel(x):\n    x[0] = helper(1)"
        ),
        "helper",
    ),
    "a function under a name": (
        (
            "def one(x): return 1\ndef two(x): return 2\nhelper = one if V == 1 else two\n"
            "@jit\ndef kernel(x):\n    x[0] = helper(1)"
        ),
        "helper",
    ),
    "a global of a function in a tuple": (
        "def one(x): return V\nhelpers = (one,)\n@jit\ndef kernel(x):\n    x[0] = helpers[0](1)",
        "helpers.0:V",
    ),
    "a helper that calls itself": (
        "def helper(x): return helper(x - V) if x else 0\n@jit\ndef kernel(x):\n    x[0] = helper(4)",
        "helper:V",
    ),
    "a member of a named tuple": (
        "C = namedtuple('C', 'n unread')(V, 0)\n@jit\ndef kernel(x):\n    x[0] = C.n",
        "C.n",
    ),
    "a member of an enumeration": (
        "class E(enum.Enum):\n    A = V\n@jit\ndef kernel(x):\n    x[0] = E.A.value",
        "E.A",
    ),
    "an attribute of a class": ("class C:\n    n = V\n@jit\ndef kernel(x):\n    x[0] = C.n", "C.n"),
    **{
        f"the value {text}": (f"W = {text}\n@jit\ndef kernel(x):\n    x[0] = W", "W")
        for text in (
            *(
                "float(V)",
                "V == 1",
                "str(V)",
                "bytes([V])",
                "type('Size', (int,), {})(V)",
                "type('Scale', (float,), {'__repr__': lambda _: 'scale'})(V)",
                "V * 1j",
                "-0.0 if V == 1 else 0.0",
                "None if V == 1 else 0",
            ),
            *("(1, (V, 2))", "[V]", "{'a': V}", "frozenset([V])", "np.float32(V)", "np.float64(1) if V == 1 else 1.0"),
            *("np.arange(3) * V", "np.zeros(V)", "np.zeros(3, 'f4' if V == 1 else 'f8')", "np.dtype(f'i{4 * V}')"),
            *("np.array([(V, 1.0)], 'i4,f4')[0]", "np.float32 if V == 1 else np.float64", "1 if V == 1 else True"),
            "'a' * 300 + str(V)",
        )
    },
}
"""Text that defines `kernel`, which reads a value made from 1 or 2, and the path of the value."""


def _load(tmp_path, monkeypatch, text, *, value, only=None):
    """Return the Python function of `kernel` in a package whose values are `value`; `only` limits it to one file."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {"k": HEAD + text, "config": CONFIG, "helpers": HELPERS, "__init__": ""}
    (tmp_path / "mypkg").mkdir(exist_ok=True)
    for name, content in files.items():
        shown = value if only in (None, name) else 1
        (tmp_path / "mypkg" / f"{name}.py").write_text(content.replace("{value}", str(shown)))
        sys.modules.pop("mypkg" if name == "__init__" else f"mypkg.{name}", None)
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    function = importlib.import_module("mypkg.k").kernel.py_func
    for name in files:
        sys.modules.pop("mypkg" if name == "__init__" else f"mypkg.{name}", None)
    return function


def _recorded(function, root):
    return {path: [description] for path, description in read_values(function, str(root)).items()}


CASES = DEFINED | {what: (f"@jit\ndef kernel(x):\n    {body}", path) for what, (body, path) in READ.items()}


@pytest.mark.parametrize("text_and_path", CASES.values(), ids=CASES)
def test_another_value_of_the_run_is_found(tmp_path, monkeypatch, text_and_path):
    text, path = text_and_path
    recorded = _recorded(_load(tmp_path, monkeypatch, text, value=1), tmp_path)
    assert path in recorded
    assert value_descriptions.difference(_load(tmp_path, monkeypatch, text, value=1), recorded) is None
    difference = value_descriptions.difference(_load(tmp_path, monkeypatch, text, value=2), recorded)
    assert difference is not None
    assert difference.endswith(" in the build")


@pytest.mark.parametrize(
    "body",
    ["x[0] = helpers.outer(1)", "x[0] = config.V", "x[0] = math.pi", "x[0] = np.float32(1)", "x[0] = len(x)"],
)
def test_values_that_a_kernel_does_not_read_do_not_count(tmp_path, monkeypatch, body):
    text = f"@jit\ndef kernel(x):\n    {body}"
    recorded = _recorded(_load(tmp_path, monkeypatch, text, value=1), tmp_path)
    function = _load(tmp_path, monkeypatch, text, value=2, only="k")  # V is another number there
    function.__globals__["config"].OTHER = 2
    assert value_descriptions.difference(function, recorded) is None


def test_a_value_that_is_gone_differs(tmp_path, monkeypatch):
    text = "@jit\ndef kernel(x):\n    x[0] = config.V"
    recorded = _recorded(_load(tmp_path, monkeypatch, text, value=1), tmp_path)
    function = _load(tmp_path, monkeypatch, text, value=1)
    del function.__globals__["config"].V
    assert value_descriptions.difference(function, recorded) == "config.V does not exist, and was 1 in the build"


def test_one_of_several_values_of_the_build_is_accepted(tmp_path, monkeypatch):
    function = _load(tmp_path, monkeypatch, "@jit\ndef kernel(x):\n    x[0] = V", value=2)
    assert value_descriptions.difference(function, {"V": [["int", "1"], ["int", "2"]]}) is None
    assert (
        value_descriptions.difference(function, {"V": [["int", "1"], ["int", "3"]]}) == "V is 2, and was 1 in the build"
    )


def test_nan_equals_itself():
    assert value_descriptions.describe(float("nan")) == value_descriptions.describe(float("nan"))


def test_functions_of_other_distributions_count_by_name(tmp_path, monkeypatch):
    text = "from textwrap import dedent as helper\n@jit\ndef kernel(x):\n    x[0] = helper(1)"
    recorded = _recorded(_load(tmp_path, monkeypatch, text, value=1), tmp_path)
    assert recorded == {"helper": [["function", "textwrap.dedent"]]}
    assert value_descriptions.difference(_load(tmp_path, monkeypatch, text, value=2), recorded) is None
    other = _load(tmp_path, monkeypatch, text.replace("dedent as", "indent as"), value=1)
    assert (
        value_descriptions.difference(other, recorded)
        == "helper is textwrap.indent, and was textwrap.dedent in the build"
    )


def test_stand_ins_for_types_equal_the_types():
    numba = pytest.importorskip("numba")
    cuda_module = importlib.import_module("aotcuda.integrations.in_place.cuda_module")
    names = [name for name in sorted(cuda_module._SCALARS) if hasattr(numba, name)]
    described = {name: value_descriptions.describe(getattr(numba, name)) for name in names}
    for name, description in described.items():
        proxy = cuda_module._proxy("numba", "numba", name)
        if description is not None:
            assert value_descriptions.describe(proxy) == description, name
    assert described["float32"] == ["type", "float32"]
    assert (
        value_descriptions.difference(lambda: T, {"T": [["type", "float32"]]})
        == "T is float64, and was float32 in the build"
    )


T = np.float64
