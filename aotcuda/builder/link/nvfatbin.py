"""Packing images into fatbins, by nvFatbin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.errors import ToolchainError

try:
    from cuda.bindings import nvfatbin
except ImportError:  # the extras of JIT builds, which pack nothing, do without it
    nvfatbin = None

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.arch import Target

# Machine code and PTX shrink to about a third. Drivers read this (zstandard) from CUDA 12.4 on.
_OPTIONS = ["-compress-mode=size"]


def version() -> str:
    """The packer's version."""
    return ".".join(map(str, nvfatbin.version()))


def kernels(images: Iterable[tuple[Target, bytes]], identifier: str) -> bytes:
    """A fatbin of linked images: cubins for `sm_*` targets, PTX for `compute_*` ones."""
    handle = nvfatbin.create(_OPTIONS, len(_OPTIONS))
    try:
        for target, data in images:
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
    handle = nvfatbin.create(_OPTIONS, len(_OPTIONS))
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
