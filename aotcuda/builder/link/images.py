"""Linked images, and the CUDA version that each one needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aotcuda.common import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aotcuda.arch import Target

_VERSION = re.compile(rb"^\.version\s+(\d+\.\d+)", re.MULTILINE)


class Image(NamedTuple):
    """A linked image of a module.

    Attributes:
        cuda: The CUDA version that the image needs. Drivers of this version load PTX, drivers of its major version a
            cubin.
        spills: By symbol the bytes of spilled registers, from the linker's log; None without a log.
        name: Its name among the images of its module for a target; see `frontends.protocol.Unit.image`.
    """

    target: Target
    data: bytes
    cuda: tuple[int, int]
    linker: tuple[int, int]
    spills: Mapping[str, int] | None = None
    name: str = ""


def make_image(target: Target, data: bytes, linker: tuple[int, int], spills: Mapping[str, int] | None = None) -> Image:
    """Return an image that the linker made, with the CUDA version that it needs."""
    cuda = None
    if target.kind == "ptx" and (match := _VERSION.search(data)):
        cuda = gpu_facts.cuda_of_ptx(gpu_facts.pair(match[1].decode()))
    return Image(target, data, cuda or linker, linker, spills)


def lower_ptx_version(text: bytes, assemble: Callable[[bytes], bytes | None]) -> bytes:
    """Return PTX with the lowest PTX version of the same major version under which its machine code is the same.

    A toolkit writes its own version into all PTX, and older drivers refuse newer versions. The assembler refuses
    instructions that are newer than the version in the text.

    Args:
        text: The PTX.
        assemble: Returns the machine code of PTX for its own target, or None if the assembler refuses it.
    """
    match = _VERSION.search(text)
    if match is None:
        return text
    version = gpu_facts.pair(match[1].decode())
    lower = [isa for isa, _ in gpu_facts.ptx_versions() if isa[0] == version[0] and isa < version]
    code = assemble(text) if lower else None
    for isa in lower:
        candidate = text[: match.start(1)] + gpu_facts.dotted(isa).encode() + text[match.end(1) :]
        if code is not None and assemble(candidate) == code:
            return candidate
    return text
