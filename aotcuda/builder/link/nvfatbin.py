"""Packing images into fatbins, by nvFatbin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.errors import ToolchainError

try:
    from cuda.bindings import nvfatbin
except ImportError:  # the extras of JIT builds, which pack nothing, do without it
    nvfatbin = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.link.images import Image

SMALL = ["-compress-mode=size"]
"""Zstandard: code shrinks to about a third. The first drivers for CUDA 12 do not read it, those for CUDA 13 do."""

READ_BY_ALL = ["-compress-mode=speed", "-compress-all"]
"""LZ4, which all drivers for CUDA 12 read: to about a half. Without the second option small images stay as they are."""


def version() -> str:
    """The packer's version."""
    return ".".join(map(str, nvfatbin.version()))


def kernels(images: Sequence[Image], identifier: str) -> bytes:
    """A fatbin of linked images: cubins for `sm_*` targets, PTX for `compute_*` ones; the oldest driver can read it."""
    options = READ_BY_ALL if any(image.cuda < (13, 0) for image in images) else SMALL
    handle = nvfatbin.create(options, len(options))
    try:
        for image in images:
            target, data = image.target, image.data
            if target.kind == "sass":
                nvfatbin.add_cubin(handle, data, len(data), target.number, identifier)
            else:
                nvfatbin.add_ptx(handle, data, len(data), target.number, identifier, "")
        return _bytes(handle)
    except nvfatbin.nvFatbinError as error:
        message = f"{identifier}: the images cannot be packed ({error})"
        raise ToolchainError(message) from None
    finally:
        nvfatbin.destroy(handle)


def functions(images: Iterable[tuple[Target, bytes]], identifier: str) -> bytes:
    """A fatbin of device functions: LTOIR for `sm_*` targets, one for each capability, and PTX for `compute_*` ones.

    nvJitLink takes the LTOIR that fits its target when it links with link-time optimisation, and the PTX otherwise.
    """
    handle = nvfatbin.create(SMALL, len(SMALL))  # for linkers, which are as new as the code in it
    try:
        for target, data in images:
            add = nvfatbin.add_ltoir if target.kind == "sass" else nvfatbin.add_ptx
            add(handle, data, len(data), target.number, identifier, "")
        return _bytes(handle)
    except nvfatbin.nvFatbinError as error:
        message = f"{identifier}: the functions cannot be packed ({error})"
        raise ToolchainError(message) from None
    finally:
        nvfatbin.destroy(handle)


def _bytes(handle: int) -> bytes:
    buffer = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, buffer)
    return bytes(buffer)
