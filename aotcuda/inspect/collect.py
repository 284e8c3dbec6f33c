"""From a target to its report: each manifest is held against the images it describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.errors import ManifestError
from aotcuda.inspect import cubin, fatbin, images, targets
from aotcuda.inspect.mangling import demangled
from aotcuda.inspect.report import Module, Report, Symbol
from aotcuda.manifest import FILE_NAME, digest

if TYPE_CHECKING:
    from typing import Literal

    from aotcuda import manifest
    from aotcuda.inspect.images import Image
    from aotcuda.inspect.report import SymbolImage

_KERNEL_ABI = {"numba-cuda": "numba"}
"""By front end: how its kernels take their arguments. Others are called by the front end's own name."""

_LTOIR_PADDING = 8
"""An LTOIR entry that was stored uncompressed is padded to this many bytes and does not keep its true size."""


def collect(target: str) -> Report:
    """Find and read everything in `target`.

    Raises:
        TargetError: There is no such thing, or nothing in it that aotcuda built.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
        ImageError: An image cannot be read.
    """
    found = targets.find(target)
    return Report(modules=tuple(_bare(item) if isinstance(item, targets.BareImage) else _built(item) for item in found))


def _built(module: targets.BuiltModule) -> Module:
    content = module.manifest
    kernels, functions = (_images(module, "kernels"), _images(module, "functions"))
    try:
        _check(content["images"], kernels, module.where)
        _check(content["ltoir"], functions, module.where)
        return Module(
            name=content["module"],
            where=module.where,
            toolchain=dict(content["toolchain"]),
            min_driver=content["min_driver"],
            settings={
                "front end": content["frontend"],
                "load": content["load"],
                "fallback": content["fallback"],
                **_callbacks(content),
            },
            images=tuple(image.packed for image in kernels + functions),
            symbols=(
                *(_function(function, functions) for function in content["functions"]),
                *(
                    _kernel(kernel, overload, content["frontend"], kernels, module.where)
                    for kernel in content["kernels"]
                    for overload in kernel["overloads"]
                ),
                *(_linked(name, item["name"]) for item in content.get("linked", ()) for name in item["symbols"]),
            ),
        )
    except (LookupError, TypeError, AttributeError, ValueError):
        message = f"{module.where}/{FILE_NAME} was altered: its shape is not a manifest's; install the package again"
        raise ManifestError(message) from None


def _images(module: targets.BuiltModule, key: Literal["kernels", "functions"]) -> list[Image]:
    if key not in module.files:
        return []
    where = f"{module.where}/{module.manifest['files'][key]['path']}"
    data = module.files[key]
    return [images.read(entry, where) for entry in _entries(data, where, is_fatbin=data.startswith(fatbin.MAGIC))]


def _check(listed: list[manifest.Image], found: list[Image], where: str) -> None:
    """Hold what the manifest lists against what the fatbin holds.

    Of SASS every byte counts. Packing changes the text of PTX and scrambles LTOIR, so of those the architecture is
    compared, and the size of LTOIR; the digest of the whole file was checked before.
    """
    if [(item["arch"], item["kind"]) for item in listed] != [(image.entry.arch, image.entry.kind) for image in found]:
        message = f"{where}/{FILE_NAME} does not list the images that its fatbin holds; install the package again"
        raise ManifestError(message)
    for item, image in zip(listed, found, strict=True):
        entry = image.entry
        if (entry.kind == "sass" and digest(entry.content) != item["sha256"]) or (
            entry.kind == "ltoir" and not 0 <= entry.size - item["bytes"] < _LTOIR_PADDING
        ):
            message = f"{where}: the {entry.kind} image for {entry.arch} is not the one in {FILE_NAME}; install again"
            raise ManifestError(message)


def _function(function: manifest.Function, found: list[Image]) -> Symbol:
    return Symbol(
        name=function["name"],
        symbol=function["name"],
        kind="function",
        abi=function["abi"],
        prototype=function["prototype"],
        signature=function["signature"],
        origin=function["origin"],
        images=tuple(image.whole for image in found),
    )


def _linked(name: str, origin: str) -> Symbol:
    """A foreign function that was linked in; what became of it, inlined or not, is the linker's affair."""
    return Symbol(
        name=name,
        symbol=name,
        kind="function",
        abi=None,
        prototype=demangled(name),
        signature=None,
        origin=origin,
        images=(),
    )


def _callbacks(content: manifest.Manifest) -> dict[str, str]:
    found = [
        f"{which} {item[which]} ({item['origin']})"
        for item in content.get("callbacks", ())
        for which in ("setup", "teardown")
        if item[which]
    ]
    return {"callbacks": ", ".join(found)} if found else {}


def _kernel(
    kernel: manifest.Kernel, overload: manifest.Overload, frontend: str, found: list[Image], where: str
) -> Symbol:
    symbol = overload["symbol"]
    for image in found:
        if symbol not in image.kernels:
            message = (
                f"{where}: the image for {image.entry.arch} lacks the kernel {symbol}, which {FILE_NAME} lists; "
                "install the package again"
            )
            raise ManifestError(message)
    return Symbol(
        name=kernel["name"],
        symbol=symbol,
        kind="kernel",
        abi=_KERNEL_ABI.get(frontend, frontend),
        prototype=None,
        signature=overload["signature"],
        origin=kernel["origin"],
        images=tuple(image.kernels[symbol] for image in found),
    )


def _entries(data: bytes, where: str, *, is_fatbin: bool) -> tuple[fatbin.Entry, ...]:
    """The images in a fatbin; a bare cubin, as the JIT fallback keeps it, is one image."""
    if is_fatbin:
        return fatbin.read(data, where)
    arch = cubin.read(data, where).arch
    name, size = Path(where).name, len(data)
    return (fatbin.Entry(arch=arch, kind="sass", name=name, size=size, packed=size, content=data),)


def _bare(found: targets.BareImage) -> Module:
    name = Path(found.where).name
    entries = _entries(found.data, found.where, is_fatbin=found.is_fatbin)
    content = [images.read(entry, found.where) for entry in entries]
    functions = dict.fromkeys(function for image in content for function in image.functions)
    kernels = dict.fromkeys(kernel for image in content for kernel in image.kernels)
    return Module(
        name=name,
        where=found.where,
        toolchain={},
        min_driver=None,
        settings={},
        images=tuple(image.packed for image in content),
        symbols=(
            *(
                _bare_symbol(
                    function, "function", name, [image.whole for image in content if function in image.functions]
                )
                for function in functions
            ),
            *(
                _bare_symbol(
                    kernel, "kernel", name, [image.kernels[kernel] for image in content if kernel in image.kernels]
                )
                for kernel in kernels
            ),
        ),
    )


def _bare_symbol(name: str, kind: Literal["function", "kernel"], origin: str, found: list[SymbolImage]) -> Symbol:
    return Symbol(
        name=name,
        symbol=name,
        kind=kind,
        abi=None,
        prototype=demangled(name),
        signature=None,
        origin=origin,
        images=tuple(found),
    )
