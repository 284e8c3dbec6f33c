"""Read sections and functions of ELF files.

The System V ABI, "Object Files", defines the structures. pyelftools is not used: it drops the bits of `st_other` that
mark kernels, and raises errors of many classes for damaged files.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# e_type, e_machine, e_phoff, e_shoff, e_flags, e_phentsize, e_phnum, e_shnum, e_shstrndx
_HEADER = struct.Struct("<16xHH12xQQI2xHH2xHH")
_SECTION_HEADER = struct.Struct("<II16xQQI20x")  # sh_name, sh_type, sh_offset, sh_size, sh_link
_SYMBOL = struct.Struct("<IBBH16x")  # st_name, st_info, st_other, st_shndx
_NULL = 0  # SHT_NULL
# SHT_NOBITS, and its variants by nvlink: global, local and shared memory of relocatable cubins, and reserved memory.
_NO_BYTES = (8, 0x70000007, 0x70000009, 0x7000000A, 0x70000015)
_IN_FIRST_HEADER = 0xFFFF  # SHN_XINDEX
_FUNCTION = 2  # STT_FUNC
_VARIABLES = (1, 13)  # STT_OBJECT, and CUDA's type of variables
_GLOBAL = 1  # STB_GLOBAL
_LONGEST_NAME = 1 << 16
_MOST_SYMBOLS = 1_000_000


class NotElfError(Exception):
    """The data is no ELF file for the machine. The message names the missing part."""


class Section(NamedTuple):
    """A section's header."""

    name: int
    type: int
    offset: int
    size: int
    link: int

    @property
    def in_file(self) -> int:
        """Return the number of bytes in the file."""
        return 0 if self.type == _NULL or self.type in _NO_BYTES else self.size


class Symbol(NamedTuple):
    """A function or variable in the symbol table; `number` is its index there."""

    number: int
    name: str
    other: int
    is_global: bool
    is_defined: bool


class Elf:
    """A 64-bit little-endian ELF file, read from `data`, whose `e_machine` must be `machine`.

    Attributes:
        abi_version: Its ABI version.
        flags: Its `e_flags`.
        type: Its `e_type`.
        functions: The functions in its symbol table.
        variables: The variables in its symbol table.

    Raises:
        NotElfError: From the constructor: it is no such file.
        ValueError: From the constructor or a method: a part is outside the file. `struct.error` has the same cause.
    """

    def __init__(self, data: bytes, *, machine: int) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            message = "it is no 64-bit ELF file"
            raise NotElfError(message)
        self.type, machine_number, segments, table, self.flags, segment_size, segment_count, count, names = (
            _HEADER.unpack_from(data)
        )
        if machine_number != machine:
            message = f"it is for ELF machine {machine_number}, not {machine}"
            raise NotElfError(message)
        self.abi_version = data[8]
        self._data = data
        self._names_left = 2 * len(data)
        # Check the parts that are not read too, so that a truncated image is never accepted.
        self._check(segments, segment_size * segment_count)
        self._headers, names = self._read_headers(table, count, names)
        for header in self._headers:
            self._check(header.offset, header.in_file)
        # From sm_100 on, ptxas gives the same debug information to two sections. More overlap would multiply the work.
        sizes = [(header.offset, header.in_file) for header in self._headers]
        if sum(size for _, size in {*sizes}) > len(data) or sum(size for _, size in sizes) > 2 * len(data):
            message = "its sections overlap"  # no linker writes overlapping sections
            raise ValueError(message)
        self._sections = {self._string(names, header.name): header for header in self._headers}
        self.functions: list[Symbol] = []
        self.variables: list[Symbol] = []
        self._read_symbols()

    def content(self, section: str) -> bytes:
        """Return the bytes of a section; empty if there is no such section."""
        header = self._sections.get(section.encode())
        if header is None:
            return b""
        return self._data[header.offset : header.offset + header.in_file]

    @property
    def sections(self) -> Mapping[bytes, Section]:
        """Return the sections, by name."""
        return self._sections

    def size(self, section: str) -> int:
        """Return the size of a section in memory; 0 if there is no such section."""
        header = self._sections.get(section.encode())
        return 0 if header is None else header.size

    def _read_headers(self, table: int, count: int, names: int) -> tuple[list[Section], int]:
        """Return the section headers, and the index of the section with their names."""
        if table and (count == 0 or names == _IN_FIRST_HEADER):  # too many for the file's header
            first_header = Section(*_SECTION_HEADER.unpack_from(self._data, min(table, len(self._data))))
            count = count or first_header.size
            names = first_header.link if names == _IN_FIRST_HEADER else names
        size = count * _SECTION_HEADER.size
        self._check(table, size)
        rows = _SECTION_HEADER.iter_unpack(memoryview(self._data)[table : table + size])
        return [Section(*fields) for fields in rows], names

    def _read_symbols(self) -> None:
        header = self._sections.get(b".symtab")
        if header is None:
            return
        table = self.content(".symtab")
        if len(table) > _MOST_SYMBOLS * _SYMBOL.size:
            message = f"it has more than {_MOST_SYMBOLS:,} symbols"
            raise ValueError(message)
        names: dict[int, str] = {}
        for number, (name, info, other, section) in enumerate(_SYMBOL.iter_unpack(table)):
            if info & 0xF == _FUNCTION or info & 0xF in _VARIABLES:
                if name not in names:
                    names[name] = self._string(header.link, name).decode(errors="backslashreplace")
                symbol = Symbol(number, names[name], other, info >> 4 == _GLOBAL, section != 0)
                (self.functions if info & 0xF == _FUNCTION else self.variables).append(symbol)

    def _string(self, section: int, offset: int) -> bytes:
        if section >= len(self._headers):
            message = f"there is no section {section}"
            raise ValueError(message)
        table = self._headers[section]
        start = table.offset + offset
        stop = min(table.offset + table.in_file, start + _LONGEST_NAME)
        text = self._data[start : self._data.index(b"\0", start, stop)]
        self._names_left -= len(text)
        if self._names_left < 0:
            message = "its names overlap"  # linkers share the ends of names, which saves little
            raise ValueError(message)
        return text

    def _check(self, offset: int, size: int) -> None:
        if offset + size > len(self._data):
            message = f"{size} bytes at {offset} are more than there are"
            raise ValueError(message)
