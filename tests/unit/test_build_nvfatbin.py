"""Check that images that are packed one by one and joined equal the fatbin that nvFatbin makes of all."""

from __future__ import annotations

import pytest

from aotcuda.arch import parse
from aotcuda.builder.link import nvfatbin
from aotcuda.builder.link.images import Image
from aotcuda.errors import ToolchainError
from support import images

TEXT = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"


@pytest.mark.parametrize(
    ("cuda", "options"), [((13, 0), nvfatbin.ZSTANDARD), ((12, 9), nvfatbin.LZ4)], ids=["newer", "older"]
)
@pytest.mark.parametrize("archs", [("sm_90",), images.ARCHS])
def test_joined_is_what_the_packer_writes_of_all(
    archs: tuple[str, ...], cuda: tuple[int, int], options: list[str]
) -> None:
    made = [Image(parse(arch), images.numba_cubin(arch), cuda, cuda) for arch in archs]
    every = [*made, Image(parse("compute_75"), TEXT, cuda, cuda)]
    given = nvfatbin.options(image.cuda for image in every)
    assert given == options
    joined = nvfatbin.join([nvfatbin.pack("test", given, image.target, image.data) for image in every])
    assert joined == images.pack([(one.target.kind, str(one.target), one.data) for one in every], *options)


@pytest.mark.parametrize(
    "data", [b"\x50\xed\x55\xba\1\0\x10\0" + bytes([9, *[0] * 7]) + b"x", b"another form of 24 bytes"]
)
def test_fatbins_of_another_form_are_not_joined(data: bytes) -> None:
    with pytest.raises(ToolchainError, match="unknown form"):
        nvfatbin.join([data, data])
