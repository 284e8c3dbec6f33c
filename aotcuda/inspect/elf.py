"""ELF files, as far as cubins need them: sections by name and the functions in the symbol table.

The structures are those of the System V ABI, "Object Files". pyelftools is not used because it drops the bits of
`st_other` that mark kernels, and because any damage must end in one of two kinds of error.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# e_machine, e_phoff, e_shoff, e_flags, e_phentsize, e_phnum, e_shnum, e_shstrndx
_HEADER = struct.Struct("<18xH12xQQI2xHH2xHH")
_SECTION_HEADER = struct.Struct("<II16xQQI20x")  # sh_name, sh_type, sh_offset, sh_size, sh_link
_SYMBOL = struct.Struct("<IBB18x")  # st_name, st_info, st_other
_NO_BYTES = 8  # SHT_NOBITS
_FUNCTION = 2  # STT_FUNC
_GLOBAL = 1  # STB_GLOBAL


class NotElfError(Exception):
    """The data is something else; the message says what it lacks."""


class Section(NamedTuple):
    """A section's header."""

    name: int
    type: int
    offset: int
    size: int
    link: int


class Function(NamedTuple):
    """A symbol of type FUNC; `number` is its place in the symbol table."""

    number: int
    name: str
    other: int
    is_global: bool


class Elf:
    """A 64-bit little-endian ELF file, read from `data`, whose `e_machine` must be `machine`.

    Attributes:
        abi_version: Its ABI version.
        flags: Its `e_flags`.
        functions: The functions in its symbol table.

    Raises:
        NotElfError: From the constructor: it is not such a file.
        ValueError: From the constructor or a method: something lies outside the file, or `struct.error` likewise.
    """

    def __init__(self, data: bytes, *, machine: int) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            message = "it is no 64-bit ELF file"
            raise NotElfError(message)
        found, segments, table, self.flags, segment_size, segment_count, count, names = _HEADER.unpack_from(data)
        if found != machine:
            message = f"it is for ELF machine {found}, not {machine}"
            raise NotElfError(message)
        self.abi_version = data[8]
        self._data = data
        self._headers = [
            Section(*fields) for fields in _SECTION_HEADER.iter_unpack(self._slice(table, count * _SECTION_HEADER.size))
        ]
        # All of the file must be there, also what nobody reads: a truncated image is never taken for a whole one.
        self._slice(segments, segment_size * segment_count)
        for header in self._headers:
            if header.type != _NO_BYTES:
                self._slice(header.offset, header.size)
        self._sections = {self._string(names, header.name): header for header in self._headers}
        self.functions = list(self._read_functions())

    def content(self, section: str) -> bytes:
        """The bytes of a section; none if there is no such section."""
        header = self._sections.get(section)
        if header is None or header.type == _NO_BYTES:
            return b""
        return self._slice(header.offset, header.size)

    def size(self, section: str) -> int:
        """The size of a section in memory; 0 if there is no such section."""
        header = self._sections.get(section)
        return 0 if header is None else header.size

    def _read_functions(self) -> Iterator[Function]:
        table = self.content(".symtab")
        for number, (name, info, other) in enumerate(_SYMBOL.iter_unpack(table)):
            if info & 0xF == _FUNCTION:
                strings = self._sections[".symtab"].link
                yield Function(number, self._string(strings, name), other, info >> 4 == _GLOBAL)

    def _string(self, section: int, offset: int) -> str:
        if section >= len(self._headers):
            message = f"there is no section {section}"
            raise ValueError(message)
        table = self._headers[section]
        start = table.offset + offset
        end = self._data.index(b"\0", start, table.offset + table.size)
        return self._data[start:end].decode(errors="backslashreplace")

    def _slice(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._data):
            message = f"{size} bytes at {offset} are more than there are"
            raise ValueError(message)
        return self._data[offset : offset + size]
