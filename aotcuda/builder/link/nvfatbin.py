"""Pack images into fatbins, by nvFatbin."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aotcuda.errors import ToolchainError

try:
    from cuda.bindings import nvfatbin
except ImportError:  # the extras for the JIT fallback lack it, since the fallback packs no fatbins
    nvfatbin = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.arch import Target

ZSTANDARD = ["-compress-mode=size"]
"""Zstandard shrinks code to about a third. All drivers for CUDA 13 read it, but not the first ones for CUDA 12."""

LZ4 = ["-compress-mode=speed", "-compress-all"]
"""LZ4 shrinks code to about a half. All drivers for CUDA 12 read it. The second option compresses small images too."""

_CONTAINER = struct.Struct("<IHHQ")
"""The header of a fatbin: magic number, version of the format, size of the header, size of the entries."""


def version() -> str:
    """Return the packer's version."""
    return ".".join(map(str, nvfatbin.version()))


def options(versions: Iterable[tuple[int, int]]) -> list[str]:
    """Return options for a fatbin that all drivers for the CUDA versions of its images read."""
    return LZ4 if any(version < (13, 0) for version in versions) else ZSTANDARD


def pack(identifier: str, settings: list[str], target: Target, data: bytes) -> bytes:
    """Pack a cubin for an `sm_*` target, or PTX for a `compute_*` target, into a fatbin.

    Compression takes a quarter of a second for fifty kernels and five targets. The process that links an image
    therefore packs it, and the build only joins the fatbins.
    """
    add = nvfatbin.add_cubin if target.kind == "sass" else nvfatbin.add_ptx
    return _fatbin(settings, identifier, f"the image for {target}", [(add, target, data)])


def join(packed: Sequence[bytes]) -> bytes:
    """Join fatbins into the one that nvFatbin writes for all their images: the entries in a row, behind one header.

    Raises:
        ToolchainError: The fatbins do not have the expected format.
    """
    if len(packed) == 1:
        return packed[0]
    heads = {(magic, version, size) for magic, version, size, _ in map(_CONTAINER.unpack_from, packed)}
    if any(_CONTAINER.unpack_from(data)[3] != len(data) - _CONTAINER.size for data in packed) or len(heads) != 1:
        message = (
            f"nvFatbin {version()} writes fatbins of an unknown form; install one that this aotcuda was tested with"
        )
        raise ToolchainError(message)
    entries = b"".join(data[_CONTAINER.size :] for data in packed)
    return _CONTAINER.pack(*heads.pop(), len(entries)) + entries


def functions(images: Iterable[tuple[Target, bytes]], identifier: str) -> bytes:
    """Pack device functions: LTOIR for `sm_*` targets, one for each capability, and PTX for `compute_*` ones.

    nvJitLink takes the LTOIR that fits its target when it links with link-time optimisation, and the PTX otherwise.
    """
    kinds = {"sass": nvfatbin.add_ltoir, "ptx": nvfatbin.add_ptx}
    items = [(kinds[target.kind], target, data) for target, data in images]
    # Linkers that read LTOIR of this toolkit read Zstandard too.
    return _fatbin(ZSTANDARD, identifier, "the functions", items)


def _fatbin(settings: list[str], identifier: str, subject: str, items: Iterable[tuple[Any, Target, bytes]]) -> bytes:
    handle = nvfatbin.create(settings, len(settings))
    try:
        for add, target, data in items:
            options = () if add is nvfatbin.add_cubin else ("",)
            add(handle, data, len(data), target.number, identifier, *options)
        buffer = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, buffer)
        return bytes(buffer)
    except nvfatbin.nvFatbinError as error:
        message = f"{identifier}: {subject} cannot be packed ({error})"
        raise ToolchainError(message) from None
    finally:
        nvfatbin.destroy(handle)
