"""Linked images: the CUDA version that each one needs, and the resources of its kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.binary import cubin
from aotcuda.common import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aotcuda.arch import Target

_VERSION = re.compile(rb"^\.version\s+(\d+\.\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """The machine code of a kernel in an image; sizes are in bytes, see `aotcuda.binary.cubin.CubinKernel`.

    Attributes:
        spills: The spilled registers, from the linker's log; None without a log.
        layout: The offset and the size of each parameter.
    """

    code: int
    registers: int
    shared: int
    local: int | None
    constant: int
    spills: int | None
    parameter_bytes: int
    layout: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A linked image of a module.

    Attributes:
        data: The machine code or PTX; empty in the entry of a whole build, which has the fatbins.
        cuda: The CUDA version that the image needs. Drivers of this version load PTX, drivers of its major version a
            cubin.
        name: Its name among the images of its module for a target; see `frontends.protocol.Unit.image`.
        size: The number of bytes of `data`.
        sha256: The digest of `data`.
        kernels: The kernels of machine code, by symbol; none for PTX.
    """

    target: Target
    data: bytes
    cuda: tuple[int, int]
    linker: tuple[int, int]
    name: str = ""
    size: int = 0
    sha256: str = ""
    kernels: dict[str, KernelCode] = field(default_factory=dict)


def make_image(
    target: Target,
    data: bytes,
    linker: tuple[int, int],
    *,
    cuda: tuple[int, int] | None = None,
    spills: Mapping[str, int] | None = None,
    name: str = "",
) -> Image:
    """Return an image that the linker made.

    Args:
        target: Its target.
        data: The machine code or PTX.
        linker: The version of the linker.
        cuda: The CUDA version of machine code; by default the linker's.
        spills: By symbol the bytes of spilled registers, from the linker's log; None without a log.
        name: See `Image`.

    Raises:
        ImageError: The machine code cannot be read.
    """
    kernels = cubin.read(data, f"the image for {target}").kernels if target.kind == "sass" else ()
    if target.kind == "ptx" and (match := _VERSION.search(data)):
        cuda = gpu_facts.cuda_of_ptx(gpu_facts.pair(match[1].decode())) or cuda
    return Image(
        target,
        data,
        cuda or linker,
        linker,
        name=name,
        size=len(data),
        sha256=manifest.digest(data),
        kernels={
            kernel.name: KernelCode(
                code=kernel.code,
                registers=kernel.registers,
                shared=kernel.shared,
                local=kernel.local,
                constant=kernel.constant,
                spills=spills.get(kernel.name) if spills is not None else None,
                parameter_bytes=kernel.parameter_bytes,
                layout=tuple((offset, size) for _, offset, size in sorted(kernel.parameters)),
            )
            for kernel in kernels
        },
    )


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
