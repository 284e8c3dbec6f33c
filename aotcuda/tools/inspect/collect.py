"""Make the report on a target, and compare each manifest with its images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.binary import cubin, fatbin, targets
from aotcuda.binary.limit import Limit, TooMuchError
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

_ROW = 100
"""The bytes of a row of the report, for the limit of a target: a manifest may list as many symbols as images."""

_ELSEWHERE = frozenset(
    ("files", "fatbins", "functions", "generator", "kernels", "left_out", "ltoir", "min_driver", "module", "reads")
) | {"rebuild", "sources", "toolchain", "toolchains", "variables"}
"""Keys of manifests that the report has elsewhere, or that describe only the inputs of the build."""

_LTOIR_PADDING = 8
"""An uncompressed LTOIR entry is padded to a multiple of this number of bytes, and does not have its true size."""


def collect(target: str) -> Report:
    """Read all modules and images in `target`.

    Raises:
        TargetError: It does not exist, or has no packaged module.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
        ImageError: An image cannot be read.
    """
    modules = [
        _image_report(item) if isinstance(item, targets.BareImage) else module_report(item)
        for item in targets.find(target)
    ]
    return Report(modules=tuple(modules))


def module_report(module: targets.PackagedModule) -> Module:
    """Return the report on a packaged module. Errors are those of `collect`."""
    content = module.manifest
    functions = _images(module, "functions", content["files"].get("functions"), content["ltoir"])
    cuda = content["toolchain"].get("cuda", "")
    fatbins, packed = [], []
    for item in content["fatbins"]:
        present = [image for image in item["images"] if "absent" not in image]
        name = item["file"]["path"] if len(content["fatbins"]) > 1 else ""
        fatbins.append((name, _images(module, item["file"]["path"], item["file"], present)))
        packed += [
            replace(
                image.packed,
                cuda=listed.get("cuda", cuda),
                linker=listed.get("linker", cuda),
                of="kernels",
                fatbin=name,
            )
            for image, listed in zip(fatbins[-1][1], present, strict=True)
        ]
    packed += [replace(image.packed, cuda=cuda, linker=cuda, of="functions") for image in functions]
    for other in content.get("toolchains", ()):
        file = other.get("functions")
        others = _images(module, file["path"] if file else "", file, other["ltoir"])
        version = other["versions"]["cuda"]
        packed += [replace(image.packed, cuda=version, linker=version, of="functions") for image in others]
    linked = [(name, item["name"]) for item in content["linked"] for name in item["symbols"]]
    overloads = [(kernel, overload) for kernel in content["kernels"] for overload in kernel["overloads"]]
    rows = len(overloads) * max((len(item[1]) for item in fatbins), default=0)
    rows += len(content["functions"]) * len(functions)
    try:
        module.limit.add(_ROW * rows)
    except TooMuchError as error:
        message = f"{module.where} {error}"
        raise ImageError(message) from None
    prototypes = mangling.demangle(name for name, _ in linked)
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
            **_variants(content),
        },
        images=tuple(packed),
        symbols=(
            *(_function(function, functions) for function in content["functions"]),
            *(
                _kernel(kernel, overload, content["frontend"], *fatbins[overload.get("fatbin", 0)], module.where)
                for kernel, overload in overloads
            ),
            *(_linked(name, origin, prototypes.get(name)) for name, origin in linked),
        ),
        left_out=left_out(content.get("left_out", [])),
        facts={key: value for key, value in content.items() if key not in _ELSEWHERE}
        | {"recipe": "rebuild" in content},
    )


def _variants(content: manifest.Manifest) -> dict[str, str]:
    """Return the numbers of Triton's variants, and of constants that users may launch with values that are missing."""
    kernels = [kernel for kernel in content["kernels"] if kernel.get("exact")]
    every = [overload for kernel in kernels for overload in kernel["overloads"]]
    if not every:
        return {}
    general = sum(overload.get("general", False) for overload in every)
    missing = sum(content.get("general_left_out", {}).values())
    text = f"{len(every) - general} recorded or listed, {general} general"
    text += f", {missing} general left out for some target" if missing else ""
    fixed = {f"{kernel['name']}.{name}" for kernel in kernels for name in kernel.get("fixed", ())}
    constants = {"integer constants": f"{len(fixed)} packaged for recorded values alone"} if fixed else {}
    return {"variants": text, **constants}


def _images(
    module: targets.PackagedModule, key: str, file: manifest.File | None, listed: list[manifest.Image]
) -> list[Image]:
    """Return the images of one of the module's fatbins, compared with those that the manifest lists.

    SASS is compared byte by byte. Packing changes the text of PTX and scrambles LTOIR, so only their target is
    compared, and the size of LTOIR. The digest of the whole file was checked before.
    """
    contents: list[Image] = []
    if file is not None:
        where = f"{module.where}/{escape(file['path'])}"
        for entry in _entries(module.files[key], where, module.limit):
            if len(contents) < len(listed):
                _check(listed[len(contents)], entry, module.where)
            contents.append(images.read(entry, where))
    if len(contents) != len(listed):
        raise _unlisted(module.where)
    return contents


def _check(item: manifest.Image, entry: fatbin.Entry, where: str) -> None:
    """Raise ManifestError unless an entry of a fatbin is the listed image."""
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


def _function(function: manifest.Function, contents: list[Image]) -> Symbol:
    return Symbol(
        name=function["name"],
        symbol=function["name"],
        kind="function",
        abi=function["abi"],
        prototype=function["prototype"],
        signature=function["signature"],
        origin=function["origin"],
        images=tuple(image.whole for image in contents),
        facts={"records": function["records"]} if "records" in function else {},
    )


def _linked(name: str, origin: str, prototype: str | None) -> Symbol:
    """Return the symbol of a linked foreign function, which the linker may have inlined."""
    return Symbol(
        name=name,
        symbol=name,
        kind="function",
        abi=None,
        prototype=prototype,
        signature=None,
        origin=origin,
        images=(),
    )


def _callbacks(content: manifest.Manifest) -> dict[str, str]:
    texts = [
        f"{key} {item[key]} ({item['origin']})"
        for item in content["callbacks"]
        for key in ("setup", "teardown")
        if item[key]
    ]
    return {"callbacks": ", ".join(texts)} if texts else {}


def _kernel(
    kernel: manifest.Kernel, overload: manifest.Overload, frontend: str, file: str, contents: list[Image], where: str
) -> Symbol:
    symbol = overload["symbol"]
    launches = overload.get("launches", {})
    for image in contents:
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
            for image in contents
            if symbol in image.kernels
        ),
        fatbin=file,
        facts={
            key: value
            for key, value in overload.items()
            if key not in {"signature", "symbol", "fatbin", "resources", "launches", "raises"}
        },
    )


def _spills(resources: manifest.Resources | None) -> int | None:
    """Return the spills in the linker's log."""
    return None if resources is None else resources.get("spills")


def _kernel_abi(frontend: str) -> str:
    """Return the kernel ABI of a front end, or the name of an unregistered one."""
    try:
        registration = registry.find(frontend)
    except ToolchainError:
        registration = None
    return (registration.kernel_abi if registration is not None else "") or frontend


def _entries(data: bytes, where: str, limit: Limit) -> Iterator[fatbin.Entry]:
    """Yield the images in a fatbin; a bare cubin is one image."""
    if data.startswith(fatbin.MAGIC):
        yield from fatbin.entries(data, where, limit)
        return
    arch = cubin.read(data, where).arch
    name, size = Path(where).name, len(data)
    yield fatbin.Entry(arch=arch, kind="sass", name=name, size=size, packed=size, content=data)


def _image_report(file: targets.BareImage) -> Module:
    """Return the report on a fatbin or cubin without a manifest."""
    name, limit = Path(file.where).name, Limit(len(file.data))
    packed = []
    symbols: dict[Literal["function", "kernel"], dict[str, list[SymbolImage]]] = {"function": {}, "kernel": {}}
    for entry in _entries(file.data, file.where, limit):
        image = images.read(entry, file.where)
        packed.append(image.packed)
        for function in image.functions:
            symbols["function"].setdefault(function, []).append(image.whole)
        for kernel, facts in image.kernels.items():
            symbols["kernel"].setdefault(kernel, []).append(facts)
    prototypes = mangling.demangle(symbol for names in symbols.values() for symbol in names)
    return Module(
        name=name,
        where=file.where,
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
                prototype=prototypes.get(symbol),
                signature=None,
                origin=name,
                images=tuple(symbol_images),
            )
            for kind, names in symbols.items()
            for symbol, symbol_images in names.items()
        ),
    )
