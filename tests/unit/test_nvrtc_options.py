"""Check that each option of NVRTC changes machine code and PTX, or is refused with the key that replaces it."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_header_directory

from aotcuda import arch
from aotcuda.builder.config import nvrtc_options
from aotcuda.builder.config.keys import Key
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink, nvrtc
from aotcuda.errors import ConfigError
from support.errors import assert_message, cases
from support.images import cuobjdump

KEY = Key("options.nvrtc-options", "nvrtc-options")

MATH = """extern "C" __global__ void k(float *a, float *b, float *c)
{ c[0] = a[0] * b[0] + c[0]; c[1] = a[1] / b[1]; c[2] = sqrtf(a[2]); }"""
SWITCH = """extern "C" __global__ void k(int *a, int n) { int r = 0; switch (n) {
case 0: r = a[1] * 3; break; case 1: r = a[2] - 7; break; case 2: r = a[3] / a[9]; break;
case 3: r = a[5] ^ 9; break; case 5: r = a[6] % a[8]; break; case 9: r = a[4] << 3; } a[0] = r; }"""
LOOP = (
    'extern "C" __global__ void k(float *a, const float *b, int n) { for (int i = 0; i < n; i++) a[i] = b[i] + a[i]; }'
)
MACRO = 'extern "C" __global__ void k(int *a) { a[0] ^= VALUE; }'

EFFECTS = {
    "--ftz|true": (MATH, r"FFMA\.FTZ", r"fma\.rn\.ftz\.f32"),
    "--prec-div=false": (MATH, None, r"div\.(full|approx)\.f32"),
    "--prec-sqrt=false": (MATH, None, r"sqrt\.approx\.f32"),
    "-Ofc=max": (LOOP, None, None),
    "--ptxas-options|-O1": (LOOP, None, None),
    "-jtd=0": (SWITCH, None, r"brx\.idx"),
    "-D|VALUE=128432071": (MACRO, "0x7a7b7c7", "128432071"),
}
"""For each option (`|` separates two items): a source, and patterns of machine code and PTX. None: any change."""


@functools.cache
def build(source: str, options: Options, target: str) -> str:
    """Return the machine code or PTX of a link of CUDA C++ and LTOIR, as text."""
    other = LinkInput(kind="cu", name="other", data=b'extern "C" __device__ int other(int a) { return a; }')
    other = replace(other, kind="ltoir", data=nvrtc.compile_source(other, arch.parse(target), Options(), [], lto=True))
    item = LinkInput(kind="cu", name="csrc/k.cu", data=source.encode())
    data, _ = nvjitlink.link("pkg.k", [other, item], arch.parse(target), options, [])
    return data.decode() if target.startswith("compute") else _instructions(data)


def _instructions(data: bytes) -> str:
    return "\n".join(re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?);", cuobjdump(data, "-sass")))


@pytest.mark.parametrize("option", EFFECTS)
def test_accepted_options_change_machine_code_and_ptx(option):
    source, in_sass, in_ptx = EFFECTS[option]
    items = nvrtc_options.OptionList().read(option.split("|"), KEY)
    without = Options(defines=(("VALUE", "1"),) if source is MACRO else ())
    for target, pattern in (("sm_90", in_sass), ("compute_75", in_ptx)):
        with_option = build(source, Options(nvrtc_options=items), target)
        without_option = build(source, without, target)
        if "ptxas" in option.lower() and target.startswith("compute"):
            assert with_option == without_option  # the assembler's options are for machine code
        elif pattern is None:
            assert with_option != without_option or (option == "-Ofc=max" and target.startswith("compute"))
        else:
            assert re.search(pattern, with_option)
            assert not re.search(pattern, without_option)


def test_fast_math_flushes_subnormal_numbers_and_fma_false_fuses_nothing():
    """tests/integration/test_fma.py has `fma` without fast math."""
    for target, flushed, fused in (("sm_90", "FFMA.FTZ", "FFMA"), ("compute_75", "fma.rn.ftz.f32", "fma.")):
        assert flushed in build(MATH, Options(fastmath=True), target)
        assert fused not in build(MATH, Options(fma=False, fastmath=True), target)


@cases("nvrtc_options.txt", "options")
def test_other_options_are_refused_with_a_remedy(text, expected):
    with pytest.raises(ConfigError) as caught:
        nvrtc_options.OptionList().read(["-w", *text.split("|")], KEY)
    assert_message(str(caught.value), f'options.nvrtc-options[1]: "{text.replace("|", " ")}" {expected}')


HARMLESS = """-w --std=c++20 -UX -default-device -device-int128 -minimal -no-cache -no-err-no -no-source-include
-diag-suppress=177 -diag-warn=177 -diag-error=177 -brief-diag=true -modify-stack-limit=false -builtin-move-forward=false
-builtin-initializer-list=false"""


def test_compiler_accepts_options_without_effect():
    items = nvrtc_options.OptionList().read(HARMLESS.split(), KEY)
    assert "EXIT" in build(LOOP, Options(nvrtc_options=items), "sm_90")


def test_headers_of_the_toolkit_document_the_options():
    text = "".join(
        Path(find_nvidia_header_directory(header) or "", name).read_text(encoding="utf-8")
        for header, name in (("nvrtc", "nvrtc.h"), ("nvjitlink", "nvJitLink.h"))
    )
    words = {*re.findall(r"--?[\w-]+", text)}
    counterparts = {option.linker.partition("=")[0] for option in nvrtc_options.OPTIONS if option.linker}
    assert counterparts <= words
    # Newer toolkits document the others.
    documented = [option for option in nvrtc_options.OPTIONS if words.intersection(option.spellings)]
    assert len(documented) >= len(nvrtc_options.OPTIONS) - 7
