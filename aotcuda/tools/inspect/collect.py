"""Make the report on a target, and compare each manifest with its images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.binary import cubin, fatbin, targets
from aotcuda.binary.budget import Budget, TooMuchError
from aotcuda.common.foreign import escape
from aotcuda.errors import ImageError, ManifestError, ToolchainError
from aotcuda.manifest import FILE_NAME, digest
from aotcuda.tools.inspect import images, mangling
from aotcuda.tools.inspect.report import Module, Report, Symbol
from aotcuda.tools.left_out import left_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from aotcuda import manifest
    from aotcuda.tools.inspect.images import Image
    from aotcuda.tools.inspect.report import SymbolImage

_SYMBOL_ITEMS, _ROW_ITEMS = 30, 12
"""The cost of a symbol and of each of its images in the budget, in items."""

_LTOIR_PADDING = 8
"""An uncompressed LTOIR entry is padded to a multiple of this many bytes, and its true size is lost."""


def collect(target: str) -> Report:
    """Read all modules and images in `target`.

    Raises:
        TargetError: It does not exist, or has no packaged module.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
        ImageError: An image cannot be read.
    """
    modules = [
        _image_report(item) if isinstance(item, targets.BareImage) else _module_report(item)
        for item in targets.find(target)
    ]
    return Report(modules=tuple(modules))


def _module_report(module: targets.PackagedModule) -> Module:
    content = module.manifest
    present = [image for image in content["images"] if "absent" not in image]
    kernels = _images(module, "kernels", content["files"].get("kernels"), present)
    functions = _images(module, "functions", content["files"].get("functions"), content["ltoir"])
    own = content["toolchain"].get("cuda", "")
    made = [(image, item.get("linker", own)) for image, item in zip(kernels, present, strict=True)]
    made += [(image, own) for image in functions]
    for other in content.get("toolchains", ()):
        file = other.get("functions")
        found = _images(module, file["path"] if file else "", file, other["ltoir"])
        made += [(image, other["versions"]["cuda"]) for image in found]
    linked = [(name, item["name"]) for item in content["linked"] for name in item["symbols"]]
    overloads = [(kernel, overload) for kernel in content["kernels"] for overload in kernel["overloads"]]
    _spend(module.budget, module.where, len(overloads), len(kernels))
    _spend(module.budget, module.where, len(content["functions"]), len(functions))
    _spend(module.budget, module.where, len(linked), 0)
    in_c = mangling.demangle(name for name, _ in linked)
    return Module(
        name=content["module"],
        where=module.where,
        toolchain=dict(content["toolchain"]),
        toolchains=tuple(dict(other["versions"]) for other in content.get("toolchains", ())),
        min_driver=content["min_driver"],
        settings={
            "front end": content["frontend"],
            "load": content["load"],
            "fallback": content["fallback"],
            **({"run time": content["runtime"]} if "runtime" in content else {}),
            **_callbacks(content),
        },
        images=tuple(replace(image.packed, cuda=cuda) for image, cuda in made),
        symbols=(
            *(_function(function, functions) for function in content["functions"]),
            *(_kernel(kernel, overload, content["frontend"], kernels, module.where) for kernel, overload in overloads),
            *(_linked(name, origin, in_c.get(name)) for name, origin in linked),
        ),
        left_out=left_out(content.get("left_out", [])),
    )


def _images(
    module: targets.PackagedModule, key: str, file: manifest.File | None, listed: list[manifest.Image]
) -> list[Image]:
    """Return the images of one of the module's fatbins, compared with those that the manifest lists.

    SASS is compared byte by byte. Packing changes the text of PTX and scrambles LTOIR, so only their target is
    compared, and the size of LTOIR. The digest of the whole file was checked before.
    """
    found: list[Image] = []
    if file is not None:
        where = f"{module.where}/{escape(file['path'])}"
        for entry in _entries(module.files[key], where, module.budget):
            if len(found) < len(listed):
                _check(listed[len(found)], entry, module.where)
            found.append(images.read(entry, where, module.budget))
    if len(found) != len(listed):
        raise _unlisted(module.where)
    return found


def _spend(budget: Budget, where: str, symbols: int, images: int) -> None:
    """Charge the budget for a list of symbols and their images."""
    try:
        budget.spend("items", symbols * (_SYMBOL_ITEMS + images * _ROW_ITEMS))
    except TooMuchError as error:
        message = f"{where} {error}"
        raise ImageError(message) from None


def _check(item: manifest.Image, entry: fatbin.Entry, where: str) -> None:
    if (item["arch"], item["kind"]) != (entry.arch, entry.kind):
        raise _unlisted(where)
    if (entry.kind == "sass" and digest(entry.content) != item["sha256"]) or (
        entry.kind == "ltoir" and not 0 <= entry.size - item["bytes"] < _LTOIR_PADDING
    ):
        message = f"{where}: the {entry.kind} image for {entry.arch} is not the one in {FILE_NAME}; install again"
        raise ManifestError(message)


def _unlisted(where: str) -> ManifestError:
    message = f"{where}/{FILE_NAME} does not list the images that its fatbin holds; install the package again"
    return ManifestError(message)


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


def _linked(name: str, origin: str, in_c: str | None) -> Symbol:
    """Return the symbol of a linked foreign function, which the linker may have inlined."""
    return Symbol(
        name=name, symbol=name, kind="function", abi=None, prototype=in_c, signature=None, origin=origin, images=()
    )


def _callbacks(content: manifest.Manifest) -> dict[str, str]:
    found = [
        f"{which} {item[which]} ({item['origin']})"
        for item in content["callbacks"]
        for which in ("setup", "teardown")
        if item[which]
    ]
    return {"callbacks": ", ".join(found)} if found else {}


def _kernel(
    kernel: manifest.Kernel, overload: manifest.Overload, frontend: str, found: list[Image], where: str
) -> Symbol:
    symbol = overload["symbol"]
    launches = overload.get("launches", {})
    for image in found:
        if symbol not in image.kernels and (not launches or image.entry.arch in launches):
            message = (
                f"{where}: the image for {image.entry.arch} lacks the kernel {escape(symbol)}, which {FILE_NAME} "
                "lists; install the package again"
            )
            raise ManifestError(message)
    return Symbol(
        name=kernel["name"],
        symbol=symbol,
        kind="kernel",
        abi=_kernel_abi(frontend),
        prototype=None,
        signature=overload["signature"],
        origin=kernel["origin"],
        images=tuple(
            replace(
                image.kernels[symbol],
                spills=_spills(overload["resources"].get(image.entry.arch)),
                dynamic=launches[image.entry.arch]["shared"] if image.entry.arch in launches else None,
            )
            for image in found
            if symbol in image.kernels
        ),
    )


def _spills(resources: manifest.Resources | None) -> int | None:
    """Return the spills in the linker's log."""
    return None if resources is None else resources.get("spills")


def _kernel_abi(frontend: str) -> str:
    """Return the kernel ABI of a front end, or the name of an unregistered one."""
    try:
        found = registry.find(frontend)
    except ToolchainError:
        found = None
    return (found.kernel_abi if found is not None else "") or frontend


def _entries(data: bytes, where: str, budget: Budget) -> Iterator[fatbin.Entry]:
    """Yield the images in a fatbin; a bare cubin is one image."""
    if data.startswith(fatbin.MAGIC):
        yield from fatbin.entries(data, where, budget)
        return
    arch = cubin.read(data, where, Budget(len(data))).arch
    name, size = Path(where).name, len(data)
    yield fatbin.Entry(arch=arch, kind="sass", name=name, size=size, packed=size, content=data)


def _image_report(found: targets.BareImage) -> Module:
    name, budget = Path(found.where).name, Budget(len(found.data))
    packed = []
    functions: dict[str, list[SymbolImage]] = {}
    kernels: dict[str, list[SymbolImage]] = {}
    for entry in _entries(found.data, found.where, budget):
        image = images.read(entry, found.where, budget)
        packed.append(image.packed)
        for function in image.functions:
            functions.setdefault(function, []).append(image.whole)
        for kernel, facts in image.kernels.items():
            kernels.setdefault(kernel, []).append(facts)
        _spend(budget, found.where, len(image.functions) + len(image.kernels), 1)
    in_c = mangling.demangle([*functions, *kernels])
    listed: tuple[tuple[Literal["function", "kernel"], dict[str, list[SymbolImage]]], ...]
    listed = (("function", functions), ("kernel", kernels))
    return Module(
        name=name,
        where=found.where,
        toolchain={},
        min_driver=None,
        settings={},
        images=tuple(packed),
        symbols=tuple(
            Symbol(
                name=symbol,
                symbol=symbol,
                kind=kind,
                abi=None,
                prototype=in_c.get(symbol),
                signature=None,
                origin=name,
                images=tuple(found_in),
            )
            for kind, symbols in listed
            for symbol, found_in in symbols.items()
        ),
    )
