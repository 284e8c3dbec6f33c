"""Check that a build honours each option of a decorator, or refuses it with a remedy."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace

import pytest

from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.numba import jit_options
from aotcuda.builder.frontends.numba.config import NumbaUnit
from aotcuda.errors import CompileError
from support import front_ends

UNIT = NumbaUnit(
    key="kernels.axpy",
    kind="kernel",
    module="pkg.k",
    name="axpy",
    symbol="axpy",
    options=Options(),
    origin="",
    source="",
    python="axpy",
)


def stored_options(front_end: str, **options: object) -> dict[str, object]:
    """Return the options that the compiler's decorator stores."""
    cuda = importlib.import_module(f"{'numba' if front_end == front_ends.NUMBA else 'numba_cuda_mlir'}.cuda")
    return cuda.jit(**options)(lambda x: None).targetoptions


@pytest.mark.parametrize("front_end", [front_ends.NUMBA, front_ends.MLIR])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"fastmath": True}, {"fastmath": True}),
        ({"lineinfo": True}, {"lineinfo": True}),
        ({"debug": True, "opt": False}, {"debug": True, "opt_level": 0}),
        ({"cache": True}, {}),
    ],
)
def test_supported_options_change_the_compile_options(front_end, options, expected):
    assert jit_options.read(UNIT, stored_options(front_end, **options)).options == Options(**expected)


OPT = "@cuda.jit(opt=False) of axpy cannot be honoured for one kernel; write opt-level = 0 in the options of pkg.k"
REFUSED = {
    front_ends.NUMBA: [
        ({"opt": False}, OPT),
        ({"fma": False}, "@cuda.jit has no option fma, which axpy gives it; write fma = false at kernels.axpy"),
        ({"fastmaths": True}, "@cuda.jit has no option fastmaths, which axpy gives it; did you mean fastmath?"),
        ({"nonsense": None}, "@cuda.jit has no option nonsense, which axpy gives it; remove it"),
        ({"extensions": [1]}, "@cuda.jit(extensions=[1]) of axpy cannot be honoured; remove it"),
    ],
    front_ends.MLIR: [
        ({"opt": False}, OPT),
        ({"opt_level": 1}, "@cuda.jit(opt_level=1) of axpy cannot be honoured for one kernel; write opt-level = 1"),
        ({"lto": False}, "@cuda.jit(lto=False) of axpy cannot be honoured; remove it"),
        ({"chip": "sm_90"}, "@cuda.jit(chip='sm_90') of axpy cannot be honoured; remove it, and list the targets"),
    ],
}


@pytest.mark.parametrize(
    ("front_end", "options", "message"), [(name, *case) for name in REFUSED for case in REFUSED[name]]
)
def test_other_options_are_refused(front_end, options, message):
    with pytest.raises(CompileError) as caught:
        jit_options.read(UNIT, stored_options(front_end, **options))
    assert str(caught.value).startswith(f"kernels.axpy: {message}")


@pytest.mark.parametrize("front_end", [front_ends.NUMBA, front_ends.MLIR])
def test_optimization_level_of_the_module_is_accepted(front_end):
    unit = replace(UNIT, options=Options(opt_level=0))
    assert jit_options.read(unit, stored_options(front_end, opt=False)).options.opt_level == 0


def test_every_option_of_the_compilers_is_known():
    dispatcher = importlib.import_module("numba.cuda.dispatcher")
    mlir = importlib.import_module("numba_cuda_mlir.decorators")
    names = set(inspect.signature(dispatcher._Kernel.__init__).parameters) - {"self", "py_func", "argtypes"}
    names |= {option.name for option in mlir._get_schema()}
    known = {*jit_options._HONOURED, *jit_options._WITHOUT_EFFECT, *jit_options._REFUSED}
    assert names <= known
