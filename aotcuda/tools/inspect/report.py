"""The report on a wheel, a package or a fatbin, as plain values.

`json` returns the object that `aotcuda inspect --json` prints. Its `version` grows when a key is removed or changes its
meaning. New keys may appear in each release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from aotcuda.tools.left_out import LeftOut

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SymbolImage:
    """One symbol in one image; sizes are in bytes.

    Attributes:
        arch: `sm_90`, `compute_75`.
        kind: `sass`, `ptx` or `ltoir`.
        size: For SASS the machine code of this kernel; for PTX and LTOIR the whole image.
        registers: Registers per thread. For PTX and LTOIR, this and the following numbers are None, except `dynamic`.
        shared: Static shared memory per block.
        dynamic: Dynamic shared memory per block if the compiler fixed its size.
        local: Local memory per thread; None also for a kernel with recursion.
        constant: Constant memory, parameters included.
        spills: Bytes stored and loaded for lack of registers, from the linker's log; None without a log.
    """

    arch: str
    kind: Literal["sass", "ptx", "ltoir"]
    size: int
    registers: int | None = None
    shared: int | None = None
    dynamic: int | None = None
    local: int | None = None
    constant: int | None = None
    spills: int | None = None


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """An exported device function, a kernel for one signature, or a foreign function that was linked in.

    Attributes:
        name: The name for users.
        symbol: Its name in the images.
        kind: `kernel`; `function` for a device function or a foreign one.
        abi: The calling convention: `c`, `numba`; None for an image without a manifest.
        prototype: The prototype in C, or the C++ name of a mangled symbol; None if there is neither.
        signature: The signature as the front end writes it.
        origin: `mypkg._kernels:axpy`; the file of an image without a manifest.
        images: Its code in each image; empty for a foreign function, since the linker may remove it.
        fatbin: The file with its images if the module has several for its kernels.
        facts: Further keys of the manifest: a kernel's parameters and limits, the records of a function.
    """

    name: str
    symbol: str
    kind: Literal["function", "kernel"]
    abi: str | None
    prototype: str | None
    signature: str | None
    origin: str
    images: tuple[SymbolImage, ...]
    fatbin: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image as a whole.

    Attributes:
        arch: `sm_90`, `compute_75`.
        kind: `sass`, `ptx` or `ltoir`.
        size: Bytes before compression.
        packed: Bytes after compression.
        linker: The version of its linker, or of its toolkit.
        cuda: The version of its toolkit, on which the choice of an image and links depend.
        of: `kernels` or `functions`.
        fatbin: The file with the image if the module has several for its kernels.
    """

    arch: str
    kind: Literal["sass", "ptx", "ltoir"]
    size: int
    packed: int
    linker: str = ""
    cuda: str = ""
    of: Literal["kernels", "functions"] = "kernels"
    fatbin: str = ""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A packaged module, or an image without a manifest.

    Attributes:
        name: `mypkg.kernels`, or a file's name.
        where: Its folder, file or wheel.
        toolchain: The version of each component of the build.
        toolchains: The versions of each further toolkit, if the build used several.
        min_driver: The lowest driver that can load the images.
        settings: Front end, `load`, `fallback` and callbacks as texts for the table.
        images: All images; the images of kernels come first.
        symbols: The functions, then the kernels, then foreign functions.
        left_out: The kernels that its images for some targets lack.
        facts: The manifest's keys without an attribute here, and `recipe`: True if it has the inputs of the JIT
            fallback. Empty for an image without a manifest.
    """

    name: str
    where: str
    toolchain: dict[str, str]
    min_driver: str | None
    settings: dict[str, str]
    images: tuple[PackedImage, ...]
    symbols: tuple[Symbol, ...]
    toolchains: tuple[dict[str, str], ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report on all modules."""

    modules: tuple[Module, ...]

    def json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {"version": VERSION, "modules": [_module(module) for module in self.modules]}


def _module(module: Module) -> dict[str, object]:
    return {
        "name": module.name,
        "toolchain": module.toolchain,
        **({"toolchains": list(module.toolchains)} if module.toolchains else {}),
        "min_driver": module.min_driver,
        "settings": module.facts,
        "images": [_packed(image) for image in module.images],
        "symbols": [_symbol(symbol) for symbol in module.symbols],
        **({"left_out": [item._asdict() for item in module.left_out]} if module.left_out else {}),
    }


def _symbol(symbol: Symbol) -> dict[str, object]:
    return {
        "name": symbol.name,
        "symbol": symbol.symbol,
        "kind": symbol.kind,
        "abi": symbol.abi,
        "prototype": symbol.prototype,
        "signature": symbol.signature,
        "origin": symbol.origin,
        **({"fatbin": symbol.fatbin} if symbol.fatbin else {}),
        **symbol.facts,
        "images": [_image(image) for image in symbol.images],
    }


def _packed(image: PackedImage) -> dict[str, object]:
    return {
        "of": image.of,
        "arch": image.arch,
        "kind": image.kind,
        "bytes": image.size,
        "packed": image.packed,
        "cuda": image.cuda,
        **({"fatbin": image.fatbin} if image.fatbin else {}),
    }


def _image(image: SymbolImage) -> dict[str, object]:
    return {"bytes" if name == "size" else name: value for name, value in vars(image).items()}
