"""Test that kernels with their own options replace those of a PTX text, together with the functions that they call."""

from __future__ import annotations

import pytest

from aotcuda.builder.link.kernel_swap import swap_kernels
from aotcuda.errors import LinkError

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.global .align 4 .u32 table[4];\n"
PRINTF = ".extern .func  (.param .b32 result) vprintf\n(\n\t.param .b64 text\n)\n;\n"


def function(name, body):
    return f".func  (.param .b32 result) {name}(\n\t.param .b32 x\n)\n{{\n\t{body};\n}}\n"


def kernel(name, body):
    return f".visible .entry {name}(\n\t.param .u64 x\n)\n{{\n\t{body};\n}}\n"


PLAIN = [PRINTF, function("scale", "mul.f32"), kernel("first", "call scale"), kernel("second", "call scale")]
OWN = [
    PRINTF,
    function("scale", "fma.rn.f32"),
    kernel("first", "fma.rn.f32; call scale; call vprintf; ld.param [scale_param_0]; mov %scale"),
    kernel("second", "fma.rn.f32; call scale"),
]
OF_FIRST = kernel("first", "fma.rn.f32; call scale__own_options; call vprintf; ld.param [scale_param_0]; mov %scale")
ALONE = [kernel("first", "mul.f32"), kernel("second", "mul.f32")]
OWN_ALONE = [kernel("first", "fma.rn.f32"), kernel("second", "fma.rn.f32")]


@pytest.mark.parametrize(
    ("plain", "own", "names", "result"),
    [
        (PLAIN, OWN, {"first"}, [function("scale__own_options", "fma.rn.f32"), *PLAIN[:2], OF_FIRST, PLAIN[3]]),
        (ALONE, OWN_ALONE, {"second"}, [ALONE[0], OWN_ALONE[1]]),
        (ALONE, OWN_ALONE, {"first", "second"}, OWN_ALONE),
        (ALONE, OWN_ALONE, {"missing"}, ALONE),
    ],
    ids=["with a function", "one", "all", "none"],
)
def test_chosen_kernels_and_their_functions_come_from_the_second_text(plain, own, names, result):
    text = swap_kernels("".join([HEAD, *plain]), "".join([HEAD, *own]), names)
    assert text == "".join([HEAD, *result])


@pytest.mark.parametrize("head", [HEAD.replace("[4]", "[8]"), f"{HEAD}.visible .const .u32 other;\n", ""])
def test_texts_that_define_other_variables_are_refused(head):
    with pytest.raises(LinkError, match="define other variables than the rest; write fma = false"):
        swap_kernels(HEAD + ALONE[0], head + OWN_ALONE[0], {"first"})


def test_texts_may_differ_in_other_lines_before_the_first_kernel():
    other = HEAD.replace("8.0", "8.1")
    assert swap_kernels(HEAD + ALONE[0], other + OWN_ALONE[0], {"first"}) == HEAD + OWN_ALONE[0]
