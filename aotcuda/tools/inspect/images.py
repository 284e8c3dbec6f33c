"""Read the symbols of each image in a fatbin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.binary import cubin, ptx
from aotcuda.tools.inspect.report import PackedImage, SymbolImage

if TYPE_CHECKING:
    from aotcuda.binary.fatbin import Entry


@dataclass(frozen=True, kw_only=True)
class Image:
    """An entry of a fatbin with its symbols.

    Attributes:
        entry: The entry, without its content.
        kernels: The facts on each kernel by its symbol; none for LTOIR, which cannot be read.
        functions: The names of the device functions that other code can link; none for PTX and LTOIR.
    """

    entry: Entry
    kernels: dict[str, SymbolImage]
    functions: tuple[str, ...]

    @property
    def packed(self) -> PackedImage:
        """Return the facts on the whole image."""
        entry = self.entry
        return PackedImage(arch=entry.arch, kind=entry.kind, size=entry.size, packed=entry.packed)

    @property
    def whole(self) -> SymbolImage:
        """Return the facts on a symbol whose share of the image is unknown."""
        return _whole(self.entry)


def read(entry: Entry, where: str) -> Image:
    """Read the symbols of an entry of a fatbin; errors begin with `where`.

    Raises:
        ImageError: The entry is a cubin that cannot be read.
    """
    label, bare = f"{where}: the image for {entry.arch}", replace(entry, content=b"")
    if entry.kind == "sass":
        code = cubin.read(entry.content, label)
        return Image(entry=bare, kernels=_kernels(entry.arch, code), functions=code.functions)
    names = ptx.kernels(entry.content)
    return Image(entry=bare, kernels=dict.fromkeys(names, _whole(entry)), functions=())


def _whole(entry: Entry) -> SymbolImage:
    return SymbolImage(arch=entry.arch, kind=entry.kind, size=entry.size)


def _kernels(arch: str, code: cubin.Cubin) -> dict[str, SymbolImage]:
    return {
        kernel.name: SymbolImage(
            arch=arch,
            kind="sass",
            size=kernel.code,
            registers=kernel.registers,
            shared=kernel.shared,
            local=kernel.local,
            constant=kernel.constant,
        )
        for kernel in code.kernels
    }
