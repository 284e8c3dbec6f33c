"""Check the CUDA version of linked images, and their spilled registers."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from aotcuda.arch import parse
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import images, nvjitlink

if TYPE_CHECKING:
    from pathlib import Path

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
    found = images.lower_ptx_version(text, partial(nvjitlink._assembled, parse(target)))
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
def test_ptx_has_the_lowest_version_that_assembles_equally(instruction: str, target: str, version: str) -> None:
    assert lowered(ptx(instruction, target), f"compute_{target[3:]}") == version


HEAVY = b"""
.version 8.8
.target sm_75
.address_size 64
.visible .entry light(.param .u64 p) { ret; }
.visible .entry heavy(.param .u64 p)
{
  .reg .b64 %r;
  .reg .f32 %f<65>;
  ld.param.u64 %r, [p];
LOADS
  bar.sync 0;
STORES
  ret;
}
"""


def test_spilled_bytes_are_those_that_ptxas_reports(tmp_path: Path) -> None:
    loads = "".join(f"  ld.volatile.global.f32 %f{at}, [%r+{4 * at}];\n" for at in range(64))
    stores = "".join(f"  st.volatile.global.f32 [%r+{4 * at}], %f{63 - at};\n" for at in range(64))
    text = HEAVY.replace(b"LOADS", loads.encode()).replace(b"STORES", stores.encode())
    (tmp_path / "heavy.ptx").write_bytes(text)
    ptxas = find_nvidia_binary_utility("ptxas")
    assert ptxas is not None
    command = [ptxas, "-v", "-arch=sm_90", "-maxrregcount=24", "heavy.ptx", "-o", "heavy.cubin"]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    stores_and_loads = re.findall(r"(\d+) bytes spill (?:stores|loads)", told[told.index("properties for heavy") :])
    expected = sum(map(int, stores_and_loads[:2]))
    assert expected > 0
    item = LinkInput(kind="ptx", name="heavy", data=text)
    options = Options(max_registers=24)
    data, spills = nvjitlink.link("m", [item], parse("sm_90"), options, ())
    assert data.startswith(b"\x7fELF")
    assert spills == {"light": 0, "heavy": expected}


def test_ptx_is_unchanged_if_its_machine_code_would_differ() -> None:
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.lower_ptx_version(text, lambda given: given) == text
    assert images.lower_ptx_version(text, lambda given: None) == text
    assert images.lower_ptx_version(b"no PTX", lambda given: given) == b"no PTX"


def test_image_has_the_cuda_version_of_its_ptx_or_linker() -> None:
    linker = (13, 5)
    code = images.make_image(parse("sm_90"), b"\x7fELF", linker)
    assert (code.cuda, code.linker) == ((13, 5), linker)
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.make_image(parse("compute_75"), text.replace(b"8.8", b"8.0"), linker).cuda == (12, 0)
    assert images.make_image(parse("compute_75"), text.replace(b"8.8", b"9.9"), linker).cuda == linker
