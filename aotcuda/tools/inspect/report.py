"""The report on a wheel, a package or a fatbin, as plain values.

`json` gives the object that `aotcuda inspect --json` prints. Its `version` grows when a key is removed or changes its
meaning; new keys may come at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
        registers: Registers a thread. None, like all that follow, for PTX and LTOIR, which have yet to be compiled.
        shared: Static shared memory a block.
        dynamic: Dynamic shared memory a block, where the kernel decides it and not its launches; also for PTX.
        local: Local memory a thread; None also where it cannot be known, as for a kernel that recurses.
        constant: Constant memory, parameters included.
        spills: Bytes that its code stores and loads because registers ran out, from the linker's log; None without one:
            the image was made by another tool, or by an aotcuda that did not read the log.
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
        name: What users call it.
        symbol: Its name in the images.
        kind: `kernel`; `function` for a device function or a foreign one.
        abi: How its arguments are passed: `c`, `numba`; None where only an image was there to read.
        prototype: In C; for a mangled name, demangled to C++; None if it has neither.
        signature: As the front end writes it.
        origin: `mypkg._kernels:axpy`; for a bare image its file.
        images: Its code in each image; empty for a foreign function, since the linker may remove it.
    """

    name: str
    symbol: str
    kind: Literal["function", "kernel"]
    abi: str | None
    prototype: str | None
    signature: str | None
    origin: str
    images: tuple[SymbolImage, ...]


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image as a whole; `size` before compression, `packed` after it, in bytes; `cuda` is the toolkit's version."""

    arch: str
    kind: Literal["sass", "ptx", "ltoir"]
    size: int
    packed: int
    cuda: str = ""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module that aotcuda built, or a bare fatbin or cubin, of which everything but the images is unknown.

    Attributes:
        name: `mypkg.kernels`, or a file's name.
        where: The folder, file or wheel that it was found in.
        toolchain: Version of each component that took part.
        toolchains: The versions of each further toolkit, if the build used several.
        min_driver: The lowest driver that can load the images.
        settings: Front end, `load`, `fallback` and callbacks, as the manifest has them.
        images: All of them, those of the kernels first.
        symbols: The functions, then the kernels, then foreign functions.
        left_out: The kernels that its images for some targets lack.
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report on all modules."""

    modules: tuple[Module, ...]

    def json(self) -> dict[str, object]:
        """Return the object that `--json` prints. It has no whole images and no settings."""
        return {"version": VERSION, "modules": [_module(module) for module in self.modules]}


def _module(module: Module) -> dict[str, object]:
    return {
        "name": module.name,
        "toolchain": module.toolchain,
        **({"toolchains": list(module.toolchains)} if module.toolchains else {}),
        "min_driver": module.min_driver,
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
        "images": [_image(image) for image in symbol.images],
    }


def _image(image: SymbolImage) -> dict[str, object]:
    return {
        "arch": image.arch,
        "kind": image.kind,
        "bytes": image.size,
        "registers": image.registers,
        "shared": image.shared,
        "dynamic": image.dynamic,
        "local": image.local,
        "constant": image.constant,
        "spills": image.spills,
    }
