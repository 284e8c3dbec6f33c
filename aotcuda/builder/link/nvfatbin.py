"""Pack images into fatbins, by nvFatbin."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aotcuda.errors import ToolchainError

try:
    from cuda.bindings import nvfatbin
except ImportError:  # the extras of JIT builds, which pack nothing, do without it
    nvfatbin = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.arch import Target

SMALL = ["-compress-mode=size"]
"""Zstandard: code shrinks to about a third. The first drivers for CUDA 12 do not read it, those for CUDA 13 do."""

READ_BY_ALL = ["-compress-mode=speed", "-compress-all"]
"""LZ4, which all drivers for CUDA 12 read: to about a half. Without the second option small images stay as they are."""

_CONTAINER = struct.Struct("<IHHQ")
"""What a fatbin begins with: its magic number, the version of the form, its own size, and that of the entries."""


def version() -> str:
    """Return the packer's version."""
    return ".".join(map(str, nvfatbin.version()))


def options(versions: Iterable[tuple[int, int]]) -> list[str]:
    """Return options for a fatbin that all drivers for the CUDA versions of its images read."""
    return READ_BY_ALL if any(version < (13, 0) for version in versions) else SMALL


def packed(identifier: str, given: list[str], target: Target, data: bytes) -> bytes:
    """Pack a cubin for an `sm_*` target, or PTX for a `compute_*` one, into a fatbin of its own.

    Compressing takes a quarter of a second for fifty kernels and five targets, so each image is packed by itself, in
    the process that has linked it, or on whatever core is free.
    """
    add = nvfatbin.add_cubin if target.kind == "sass" else nvfatbin.add_ptx
    return _fatbin(given, identifier, f"the image for {target}", [(add, target, data)])


def joined(packed: Sequence[bytes]) -> bytes:
    """Join fatbins as nvFatbin writes one of all their images: the entries in a row, behind one header.

    Raises:
        ToolchainError: nvFatbin writes another form than the one that is known.
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
    return _fatbin(SMALL, identifier, "the functions", items)  # for linkers, which are as new as the code in it


def _fatbin(given: list[str], identifier: str, what: str, items: Iterable[tuple[Any, Target, bytes]]) -> bytes:
    handle = nvfatbin.create(given, len(given))
    try:
        for add, target, data in items:
            options = () if add is nvfatbin.add_cubin else ("",)
            add(handle, data, len(data), target.number, identifier, *options)
        buffer = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, buffer)
        return bytes(buffer)
    except nvfatbin.nvFatbinError as error:
        message = f"{identifier}: {what} cannot be packed ({error})"
        raise ToolchainError(message) from None
    finally:
        nvfatbin.destroy(handle)
