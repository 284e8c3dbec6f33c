"""Find kernels that synchronize the whole grid in linked images.

The cooperative groups of CUDA find the barrier of a grid at an address that only cooperative launches set. PTX reads
the address from `%envreg1` and `%envreg2`, and machine code from two words of constant bank 0. Nothing else in an image
shows that a kernel needs the launch attribute. The offsets of the two words and the encodings of the instructions were
observed with nvdisasm, for compute capabilities 7.5 to 12.1. `tests/unit/test_grid_sync.py` checks them.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from aotcuda.binary.elf import Elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MACHINE_CUDA = 190
_KERNEL = 0x10  # in `st_other`: STO_CUDA_ENTRY
_INSTRUCTION = struct.Struct("<Q8x")  # the words of an operand in constant memory are in the lower half
_WORDS = {7: (0x8C, 0x90), 8: (0x8C, 0x90), 9: (0x44, 0x48)}
"""The two offsets of the address in constant bank 0 by major compute capability; later ones have `_LATER`."""
_LATER = (0x254, 0x258)
_FIRST_LATER = 10
_CONSTANT_FORMS = (3, 5)
"""Bits 9 to 11 of instructions with an operand in constant memory, up to 9.0."""
_LDC, _LDCU = 0xB82, 0x7AC
"""From 10.0 on only these instructions read constant memory."""


def in_cubin(data: bytes, major: int) -> frozenset[str]:
    """Return the kernels of a linked cubin for a major compute capability that synchronize the whole grid.

    The linker's call graph gives the kernels that call functions with the barrier.
    """
    elf = Elf(data, machine=_MACHINE_CUDA)
    names = {function.number: function.name for function in elf.functions}
    kernels = {function.name for function in elf.functions if function.other & _KERNEL}
    code = {name: elf.content(f".text.{name}") for name in names.values()}
    reading = {name for name, content in code.items() if content and _reads_barrier_address(content, major)}
    calls: dict[str, set[str]] = {}
    for caller, callee in struct.iter_unpack("<II", elf.content(".nv.callgraph")):
        if caller in names and callee in names:
            calls.setdefault(names[caller], set()).add(names[callee])
    return frozenset(kernels & _with_callers(reading, calls))


def _reads_barrier_address(code: bytes, major: int) -> bool:
    """Return True if an instruction reads one of the two words."""
    instructions = code[: len(code) // _INSTRUCTION.size * _INSTRUCTION.size]
    if major >= _FIRST_LATER:
        return any(
            (word & 0xFFF == _LDC and word >> 38 & 0xFFFF in _LATER)
            or (word & 0xFFF == _LDCU and word >> 37 & 0xFFFF in _LATER)
            for (word,) in _INSTRUCTION.iter_unpack(instructions)
        )
    fields = {offset >> 2 for offset in _WORDS.get(major, ())}  # a bank in bits 54 to 58, and the word in 40 to 53
    return any(
        word >> 40 & 0x7FFFF in fields and word >> 9 & 7 in _CONSTANT_FORMS
        for (word,) in _INSTRUCTION.iter_unpack(instructions)
    )


_FUNCTION = re.compile(r"^[ \t]*(?:\.\w+ )*\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)


def in_ptx(text: str) -> frozenset[str]:
    """Return the kernels in a PTX text that synchronize the whole grid, also through functions that they name."""
    text = re.sub(r"//.*", "", text)
    bodies = dict(_bodies(text))
    kernels = {name for kind, name in _FUNCTION.findall(text) if kind == "entry"}
    reading = {name for name, body in bodies.items() if re.search(r"%envreg[12]\b", body)}
    calls = {name: set(re.findall(r"[\w$]+", body)) & bodies.keys() for name, body in bodies.items()} if reading else {}
    return frozenset(kernels & _with_callers(reading, calls))


def _bodies(text: str) -> Iterator[tuple[str, str]]:
    matches = list(_FUNCTION.finditer(text))
    ends = [later.start() for later in matches[1:]] + [len(text)]
    for match, end in zip(matches, ends, strict=True):
        body = text[match.end() : end]
        if "{" in body.partition(";")[0]:  # a declaration has no body
            yield match[2], body


def _with_callers(functions: Iterable[str], calls: Mapping[str, set[str]]) -> set[str]:
    """Return `functions` with all functions that call them, directly or indirectly."""
    reached = set(functions)
    while callers := {caller for caller, callees in calls.items() if callees & reached} - reached:
        reached |= callers
    return reached
