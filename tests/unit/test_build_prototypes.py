"""Check that declarations in CUDA C++ are compared with the C header of the linked module."""

from __future__ import annotations

import string

import pytest

from aotcuda.arch import Target
from aotcuda.builder.config.model import Options
from aotcuda.builder.emit.c_header import header
from aotcuda.builder.frontends.protocol import CompiledFunction, External, LinkInput
from aotcuda.builder.link import prototypes
from aotcuda.errors import LinkError

TARGET = Target("sass", 8, 0, "")
TWICE = CompiledFunction(ir=b"", signature="float32(float32)", result="float", parameters=(("float", "x"),))


def check(declaration, body=""):
    code = f'{declaration}\nextern "C" __global__ void k(float *x) {{ {body} }}'
    source = LinkInput(kind="cu", name="csrc/k.cu", data=code.encode())
    text = header.render("other.functions", [("twice", TWICE)])
    item = LinkInput(kind="fatbin", name="other.functions", data=b"", header=text.encode())
    return prototypes.check_source(source, item, TARGET, Options(), [], "tool.aotcuda.modules.x.link[0]")


@pytest.mark.parametrize("declaration", ["double twice(float)", "float twice(double)", "float twice(float, int)"])
def test_another_declaration_is_refused_with_the_right_one(declaration):
    with pytest.raises(LinkError) as caught:
        check(f'extern "C" __device__ {declaration};')
    assert str(caught.value) == (
        "tool.aotcuda.modules.x.link[0]: csrc/k.cu declares a function of other.functions otherwise than that module "
        'exports it; write extern "C" __device__ float twice(float x);'
    )


def test_cpp_function_differs_from_exported_function():
    with pytest.raises(LinkError, match=r'write extern "C" __device__ float twice\(float x\);'):
        check("__device__ float twice(float);")


@pytest.mark.parametrize(
    ("declaration", "body"),
    [
        ('extern "C" __device__ float twice(float);', ""),
        ("", ""),
        ('extern "C" __device__ int other(int);', ""),
        ("", "x[0] = nothing;"),  # the compilation of the file reports it
    ],
)
def test_equal_or_absent_declarations_are_accepted(declaration, body):
    assert check(declaration, body) is None


@pytest.mark.parametrize("macros", [string.ascii_letters, ["kind", "kinds", "list", "same", "type", "value"]])
def test_macros_of_a_source_do_not_change_its_prototypes(macros):
    code = 'extern "C" __device__ float bump(float x) { return x; }\n' + "\n".join(
        f"#define {name} 1" for name in macros
    )
    source = LinkInput(kind="cu", name="csrc/k.cu", data=code.encode())
    prototypes.check(source, [External(name="bump", result="float32", parameters=("float32",))], TARGET, Options(), [])
    with pytest.raises(LinkError, match=r"float bump.*declares it as double bump"):
        prototypes.check(
            source, [External(name="bump", result="float64", parameters=("float64",))], TARGET, Options(), []
        )
