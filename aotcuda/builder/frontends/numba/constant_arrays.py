"""Merge equal constant arrays of kernels in an image, because all kernels of an image share 64 KiB.

Numba makes each array of `cuda.const.array_like`, and each global array, internal to the kernel. This module names
arrays by their content, with a linkage for which the linker merges arrays of one name. It does not merge the arrays of
linked machine code, so kernels with constant arrays are linked in one step.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFINED = re.compile(
    r'^@(?:"(?P<quoted>[^"]*)"|(?P<plain>[-\w.$]+)) = (?:internal|private) (?:(?:local_)?unnamed_addr )?'
    r"addrspace\(4\) (?:constant|global) (?P<content>\[(?P<bytes>\d+) x i8\] .*)\n",
    re.MULTILINE,
)
_NAMED = re.compile(r'@(?:"([^"]*)"|([-\w.$]+))')


def merge(texts: Sequence[str]) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    """Name the constant arrays of modules in LLVM IR by their content.

    Returns:
        The changed modules, and the new names of the arrays with their sizes in bytes.
    """
    sizes: dict[str, int] = {}
    return [_merge_text(text, sizes) for text in texts], tuple(sorted(sizes.items()))


def _merge_text(text: str, sizes: dict[str, int]) -> str:
    names: dict[str, str] = {}
    defined: set[str] = set()

    def define(match: re.Match[str]) -> str:
        name = f"aotcuda_constant_{hashlib.sha256(match['content'].encode()).hexdigest()[:32]}"
        is_new = name not in defined
        defined.add(name)
        names[match["quoted"] or match["plain"]] = name
        sizes[name] = int(match["bytes"])
        return f"@{name} = linkonce_odr addrspace(4) constant {match['content']}\n" if is_new else ""

    text = _DEFINED.sub(define, text)
    if not names:
        return text
    return _NAMED.sub(lambda match: f"@{names[name]}" if (name := match[1] or match[2]) in names else match[0], text)
