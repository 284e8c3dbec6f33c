"""Test that the kernels of a project are found without importing its sources."""

from __future__ import annotations

import ast

import pytest

from aotcuda.tools.record import source_kernels

IMPORTS = """
import functools
import numba, numba as nb, numba.cuda, numba.cuda as nc, aotcuda.numba as an
from numba import cuda, cuda as c, float32, int32, types, void
from numba.cuda import jit, jit as gpujit
from numba_cuda_mlir import cuda as mc
from aotcuda.numba import cuda as ac
from ._compat import cuda
f1 = float32[:]
SIG = "void(float32[::1])"
BOTH = [SIG, "void(float64[::1])"]
fast = functools.partial(cuda.jit, fastmath=True)
other = cuda.jit
"""

WITHOUT = ["@cuda.jit", "@nb.cuda.jit", "@nc.jit", "@ac.jit", "@jit", "@fast", "@other", "@cuda.jit(fastmath=True)"]
WITH = ["@cuda.jit(SIG)", "@fast(SIG)", "@cuda.jit(func_or_sig='void(float32[::1])')", "@cuda.jit(signatures())"]
NONE = ["@njit", "@numba.njit", "@cuda.reduce", "@nb.vectorize", "@mine.jit", "@functools.lru_cache", "@cuda"]


def read(text: str) -> source_kernels.Content:
    return source_kernels.read(ast.parse(text))


def only(decorator: str) -> source_kernels.JitFunction:
    (function,) = read(f"{IMPORTS}{decorator}\ndef k(x): pass\n").functions
    return function


@pytest.mark.parametrize("decorator", [*WITHOUT, *WITH])
def test_decorated_function_is_a_kernel(decorator: str) -> None:
    function = only(decorator)
    assert (function.path, function.frontend, function.device) == ("k", "numba-cuda", False)
    assert function.has_signatures is (decorator in WITH)


@pytest.mark.parametrize("decorator", NONE)
def test_other_decorators_make_no_kernel(decorator: str) -> None:
    assert read(f"{IMPORTS}{decorator}\ndef k(x): pass\n").functions == ()


@pytest.mark.parametrize(
    ("body", "others", "device"),
    [
        ("return x + 1", "", True),
        ("if x:\n        return 1", "", True),
        ("x[0] = 1", "@cuda.jit\ndef other(x):\n    k(x)\n", True),
        ("return None", "", False),
        ("def inner(y):\n        return y\n    x[0] = inner(1)", "", False),
        ("x[0] = 1", "def launch(x):\n    k[1, 32](x)\n", False),
        ("x[0] = 1", "def called_on_the_host(x):\n    return k(x)\n", False),
        ("x[0] = 1 if k is None else 2", "", False),
    ],
)
def test_helper_with_a_bare_decorator_is_no_kernel(body: str, others: str, device: bool) -> None:
    functions = {item.path: item for item in read(f"{IMPORTS}@cuda.jit\ndef k(x):\n    {body}\n{others}").functions}
    assert functions["k"].device is device
    assert "other" not in functions or not functions["other"].device


def test_device_functions_and_the_other_compiler() -> None:
    assert only("@cuda.jit('float32(float32)', device=True)").device
    assert not only("@cuda.jit(device=False)").device
    assert only("@mc.jit").frontend == "numba-cuda-mlir"


def test_kernels_in_classes_functions_and_calls_are_found() -> None:
    functions = read(
        IMPORTS
        + """
class Solver:
    @staticmethod
    @cuda.jit
    def step(x): pass

def make(n):
    @cuda.jit
    def inner(x): pass
    return inner

if cuda.is_available():
    @cuda.jit
    def real(x): pass

def plain(x): pass
direct = cuda.jit(plain)
typed = cuda.jit(SIG)(plain)
made = make(3)
decorator = cuda.jit(SIG)
"""
    ).functions
    assert [(item.path, item.enclosing) for item in functions] == [
        ("Solver.step", ""),
        ("make.inner", "make"),
        ("real", ""),
        ("direct", ""),
        ("typed", ""),
    ]
    assert functions[-1].has_signatures


KERNEL = "@triton.jit\ndef kernel(x):\n    {}\n"


@pytest.mark.parametrize(
    ("imports", "call", "device"),
    [
        ("from mypkg.ops.utils import softcap", "softcap(x)", True),
        ("from .utils import softcap as cap", "cap(x)", True),
        ("from ..ops import softcap", "softcap(x)", True),  # which the package hands on
        ("from . import utils", "utils.softcap(x)", True),
        ("import mypkg.ops.utils as u", "u.softcap(x)", True),
        ("from .others import softcap", "softcap(x)", False),
        ("from .utils import softcap", "tl.store(x, 1)", False),
    ],
)
def test_function_called_by_another_modules_kernel_is_no_kernel(imports: str, call: str, device: bool) -> None:
    triton = "from aotcuda.triton import triton, tl\n"
    modules = source_kernels.mark_device_functions(
        {
            "mypkg.ops.norm": read(f"{triton}{imports}\n{KERNEL.format(call)}"),
            "mypkg.ops.utils": read(f"import triton\n{KERNEL.format('pass').replace('kernel', 'softcap')}"),
        }
    )
    assert [(item.path, item.device) for content in modules.values() for item in content.functions] == [
        ("kernel", False),
        ("softcap", device),
    ]
