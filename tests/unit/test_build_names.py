"""Check names in C and C++, cuda.h, and callbacks, before anything is linked."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from aotcuda.arch import Target
from aotcuda.builder.config import checks
from aotcuda.builder.config.model import Options
from aotcuda.builder.config.parser import parse
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvrtc, preconditions, symbols
from aotcuda.builder.plan import toolchain
from aotcuda.errors import ConfigError, ImageError, SourceError

TARGET = Target("sass", 9, 0, "")


def is_refused(name, **options):
    try:
        preconditions.check_names({name: "KEY"}, TARGET, Options(**options))
    except ConfigError as error:
        assert str(error).startswith(f'KEY: "{name}" is a name of CUDA C++ itself')  # noqa: PT017
        return True
    return False


_HEADERS = ("crt/math_functions.h", "crt/device_double_functions.h", "device_atomic_functions.h", "vector_functions.h")
_DECLARED = re.compile(r"(?:__device__|__device_builtin__|_DECL__)\b[^;{}()]*?\b([a-zA-Z]\w*)\s*\(")


def declared_by_cuda():
    folder = Path(toolchain.include_dirs()[0])
    texts = [(folder / name).read_text(errors="replace") for name in _HEADERS]
    return sorted({name for text in texts for name in _DECLARED.findall(text)} - {"compiler", "defined"})


def test_every_function_that_cuda_declares_is_refused():
    """One line of a probe for each name: the first name that CUDA declares is named, so each is tried alone."""
    names = declared_by_cuda()
    assert len(names) > 250
    assert {"rsqrt", "rsqrtf", "sinf", "norm3d", "normcdff", "atomicAdd", "make_float4"} <= {*names}
    sixteenth = {*names[::8], "rsqrt", "norm3d", "normcdff", "sinf"}
    newer = re.compile("make_.*_(?:16|32)a")  # the headers have them, and NVRTC has not
    assert [name for name in sixteenth if not newer.fullmatch(name) and not is_refused(name)] == []


@pytest.mark.parametrize("name", ["axpy", "step", "rsqrt3", "clampf", "lerp"])
def test_names_that_cuda_does_not_declare_are_accepted(name):
    assert not is_refused(name, defines=((name, "1"),), nvrtc_options=("-std=c++20",))


def test_all_names_are_checked_at_once():
    with pytest.raises(ConfigError, match=r'^second: "sinf" is a name of CUDA C\+\+ itself'):
        preconditions.check_names({"axpy": "first", "sinf": "second", "cosf": "third"}, TARGET, Options())


def test_modules_with_equal_names_in_c_are_refused():
    module = {"source": "p._k", "kernels": {"k": "void(float32[::1])"}}
    table = {"arch": ["sm_90"], "modules": {"p.a_b": module, "p.a.b": module}}
    with pytest.raises(ConfigError, match=r'"p\.a\.b": its names in C begin with p_a_b_, as those of .*"p\.a_b"'):
        checks.check(parse(table, environ={}))


CASES = {
    ("p.Kernels", "p.kernels"): '"p.kernels" and "p.Kernels" of',
    ("p.a.K", "p.a.k"): '"p.a.k" and "p.a.K" of',
    ("Pkg.a", "pkg.b"): '"pkg" and "Pkg" of',
    ("p.Sub.a", "p.sub.b"): '"p.sub" and "p.Sub" of',
    ("p.a_B", "p.a.b"): "its names in C begin with p_a_b_, as those of",
}


@pytest.mark.parametrize(("one", "other"), CASES)
def test_modules_that_differ_in_case_alone_are_refused(one, other):
    module = {"source": "src._k", "kernels": {"k": "void(float32[::1])"}}
    table = {"arch": ["sm_90"], "modules": {one: module, other: module}}
    with pytest.raises(ConfigError, match=re.escape(CASES[one, other])) as error:
        checks.check(parse(table, environ={}))
    assert f'"{one}"' in str(error.value)
    assert f'modules."{other}"' in str(error.value)
    assert "\n" not in str(error.value)


def test_driver_header_has_its_types():
    code = b"#include <cuda.h>\n#include <mma.h>\n__global__ void k(CUtensorMap m, CUdeviceptr p, cuuint64_t n) {}"
    item = LinkInput(kind="cu", name="k.cu", data=code)
    assert b".entry _Z1k" in nvrtc.compile_source(item, TARGET, Options(), [], lto=False)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"int main() {}", b".version 8.0\n", b".target sm_90\n"])
def test_file_that_is_no_ptx_is_refused(data):
    with pytest.raises(ImageError, match=r"^k\.ptx is no PTX: it lacks \.version and \.target; make it by nvcc"):
        symbols.read_symbols(LinkInput(kind="ptx", name="k.ptx", data=data), TARGET, Options(), [])


class Callable:
    def __call__(self, code):
        pass


@pytest.mark.parametrize("function", [lambda code: None, lambda *codes: None, lambda code, more=1: None, Callable()])
def test_callback_with_one_parameter_is_accepted(function):
    inputs.check_parameter(function, "KEY")


async def waits(code): ...


async def waits_and_yields(code):
    yield


class Waits:
    async def __call__(self, code): ...


@pytest.mark.parametrize("function", [waits, waits_and_yields, lambda code: (yield), Waits(), functools.partial(waits)])
def test_callback_that_a_call_does_not_run_is_refused(function):
    with pytest.raises(SourceError, match=r"^KEY is a generator or a coroutine, which a call does not run; name an "):
        inputs.check_parameter(function, "KEY")


@pytest.mark.parametrize("function", [lambda: None, lambda a, b: None, lambda *, code: None, lambda **codes: None])
def test_callback_that_takes_no_module_is_refused(function):
    with pytest.raises(SourceError, match=r"^KEY is called with one argument, the loaded module, and takes \("):
        inputs.check_parameter(function, "KEY")
