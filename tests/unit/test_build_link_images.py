"""Linked images: the CUDA version that each is written for."""

from __future__ import annotations

import re
from functools import partial

import pytest

from aotcuda.arch import parse
from aotcuda.builder.link import images, nvjitlink

PLAIN = b"""
.version 8.8
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .b64 %r;
  .reg .f32 %f<3>;
  ld.param.u64 %r, [p];
  ld.f32 %f1, [%r];
  INSTRUCTION
  st.f32 [%r], %f2;
  ret;
}
"""


def lowered(text: bytes, target: str) -> str:
    found = images.for_older_drivers(text, partial(nvjitlink._assembled, parse(target)))
    assert re.sub(rb"(?m)^\.version .*$", b"", found) == re.sub(rb"(?m)^\.version .*$", b"", text)
    (version,) = re.findall(rb"(?m)^\.version (.*)$", found)
    return version.decode()


def ptx(instruction: str, target: str = "sm_75") -> bytes:
    return PLAIN.replace(b"INSTRUCTION", instruction.encode()).replace(b"sm_75", target.encode())


@pytest.mark.parametrize(
    ("instruction", "target", "version"),
    [
        ("mul.f32 %f2, %f1, %f1;", "sm_75", "8.0"),
        ("mul.f32 %f2, %f1, %f1;", "sm_100", "8.6"),  # PTX ISA: "Target Architectures", .target sm_100
        ("mul.f32 %f2, %f1, %f1;", "sm_103", "8.8"),
        ("max.f32 %f2, %f1, %f1, %f1;", "sm_100", "8.8"),  # PTX ISA, "max": three inputs since 8.8
    ],
)
def test_ptx_says_the_lowest_version_that_the_assembler_takes(instruction: str, target: str, version: str) -> None:
    assert lowered(ptx(instruction, target), f"compute_{target[3:]}") == version


def test_ptx_stays_as_it_is_where_the_machine_code_would_differ() -> None:
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.for_older_drivers(text, lambda given: given) == text
    assert images.for_older_drivers(text, lambda given: None) == text
    assert images.for_older_drivers(b"no PTX", lambda given: given) == b"no PTX"


def test_an_image_tells_the_cuda_that_it_is_written_for() -> None:
    linker = (13, 5)
    code = images.described(parse("sm_90"), b"\x7fELF", linker)
    assert (code.cuda, code.linker) == ((13, 5), linker)
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.described(parse("compute_75"), text.replace(b"8.8", b"8.0"), linker).cuda == (12, 0)
    assert images.described(parse("compute_75"), text.replace(b"8.8", b"9.9"), linker).cuda == linker
