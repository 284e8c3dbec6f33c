"""Read the parameters of kernels and functions from PTX (PTX ISA, "Kernel Function Parameters")."""

from __future__ import annotations

import re
from typing import NamedTuple

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)\s+(?:\.ptr\b(?:\s+\.\w+)*(?:\s+\d+)?\s+)?[\w$]+(?:\[(\d+)\])?"
)
_VARIADIC = "%VAParam"
"""The name of the array that the further arguments of a variadic function are in."""


class Field(NamedTuple):
    """A parameter's place in the parameter block, in bytes.

    Attributes:
        offset: The distance from the start of the block.
        size: Its size.
        alignment: The alignment that the text states; 1 if it states none, and the size is the alignment.
    """

    offset: int
    size: int
    alignment: int


def read(declarations: str) -> list[Field]:
    """Return the parameters in a list of PTX declarations, as the ABI places them, without variadic arguments.

    Numbers and addresses are aligned to their own size, structs and tensor maps as the text states.

    Raises:
        ValueError: The text of a declaration that is no number, address, or array of known size with an alignment.
    """
    fields: list[Field] = []
    end = 0
    for text in filter(None, map(str.strip, declarations.split(","))):
        if _VARIADIC in text:
            continue
        match = _PARAMETER.fullmatch(text)
        if match is None or (match[3] and not match[1]):
            raise ValueError(text)
        size = int(match[2]) // 8 * int(match[3] or 1)
        alignment = int(match[1] or size)
        offset = -(-end // alignment) * alignment
        fields.append(Field(offset, size, int(match[1] or 1)))
        end = offset + size
    return fields
