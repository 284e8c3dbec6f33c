"""Check linked images: their CUDA version, their spilled registers, and the fatbins into which they are packed."""

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
from aotcuda.builder.link import images, nvfatbin, nvjitlink
from aotcuda.builder.link.images import Image
from aotcuda.errors import ToolchainError
from support import images as real_images

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


def lowest_version(text: bytes, target: str) -> str:
    result = images.lower_ptx_version(text, partial(nvjitlink._assembled, parse(target)))
    assert re.sub(rb"(?m)^\.version .*$", b"", result) == re.sub(rb"(?m)^\.version .*$", b"", text)
    (version,) = re.findall(rb"(?m)^\.version (.*)$", result)
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
    assert lowest_version(ptx(instruction, target), f"compute_{target[3:]}") == version


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
    report = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    stores_and_loads = re.findall(r"(\d+) bytes spill (?:stores|loads)", report[report.index("properties for heavy") :])
    expected = sum(map(int, stores_and_loads[:2]))
    assert expected > 0
    item = LinkInput(kind="ptx", name="heavy", data=text)
    options = Options(max_registers=24)
    data, spills = nvjitlink.link("m", [item], parse("sm_90"), options, ())
    assert data.startswith(b"\x7fELF")
    assert spills == {"light": 0, "heavy": expected}


def test_ptx_is_unchanged_if_its_machine_code_would_differ() -> None:
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.lower_ptx_version(text, lambda code: code) == text
    assert images.lower_ptx_version(text, lambda code: None) == text
    assert images.lower_ptx_version(b"no PTX", lambda code: code) == b"no PTX"


def test_image_has_the_cuda_version_of_its_ptx_or_linker() -> None:
    linker = (13, 5)
    code = images.make_image(parse("sm_90"), real_images.numba_cubin("sm_90"), linker)
    assert (code.cuda, code.linker) == ((13, 5), linker)
    text = ptx("mul.f32 %f2, %f1, %f1;")
    assert images.make_image(parse("compute_75"), text.replace(b"8.8", b"8.0"), linker).cuda == (12, 0)
    assert images.make_image(parse("compute_75"), text.replace(b"8.8", b"9.9"), linker).cuda == linker


TEXT = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"


@pytest.mark.parametrize(
    ("cuda", "options"), [((13, 0), nvfatbin.ZSTANDARD), ((12, 9), nvfatbin.LZ4)], ids=["newer", "older"]
)
@pytest.mark.parametrize("archs", [("sm_90",), real_images.ARCHS])
def test_joined_is_what_the_packer_writes_of_all(
    archs: tuple[str, ...], cuda: tuple[int, int], options: list[str]
) -> None:
    cubins = [Image(parse(arch), real_images.numba_cubin(arch), cuda, cuda) for arch in archs]
    all_images = [*cubins, Image(parse("compute_75"), TEXT, cuda, cuda)]
    settings = nvfatbin.options(image.cuda for image in all_images)
    assert settings == options
    joined = nvfatbin.join([nvfatbin.pack("test", settings, image.target, image.data) for image in all_images])
    assert joined == real_images.pack(
        [(item.target.kind, str(item.target), item.data) for item in all_images], *options
    )


@pytest.mark.parametrize(
    "data", [b"\x50\xed\x55\xba\1\0\x10\0" + bytes([9, *[0] * 7]) + b"x", b"another form of 24 bytes"]
)
def test_fatbins_of_another_form_are_not_joined(data: bytes) -> None:
    with pytest.raises(ToolchainError, match="unknown form"):
        nvfatbin.join([data, data])
