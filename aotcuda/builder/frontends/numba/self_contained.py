"""Whether a kernel's modules in LLVM IR are all that there is to it.

The two compilers make what a kernel has for itself internal (constants, string literals), or name it after the kernel
(shared arrays). Data under any other name may be another kernel's as well: an error code, or what a toolkit's code
generator puts there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATA = re.compile(r'^(?P<name>@(?:"[^"]*"|[-\w.$]+)) = (?P<words>[^@\n]*?)\b(?:global|constant)\b', re.MULTILINE)

_OWN = re.compile(r"\b(?:internal|private|appending)\b|^(?!.*\bexternal\b).*\baddrspace\(3\)")
"""Words of what nobody else can name; lists for the compiler (`llvm.used`); and shared arrays, whose names patches make
the kernel's own. Dynamic shared memory is `external`: it is the launch's."""


def is_self_contained(texts: Sequence[str]) -> bool:
    """Whether the modules define no data that others could name, but for what they do not use themselves."""
    found = (match for text in texts for match in _DATA.finditer(text))
    return all(_OWN.search(match["words"]) or not _is_used(match["name"], texts) for match in found)


def _is_used(name: str, texts: Sequence[str]) -> bool:
    """Whether data is named anywhere but where it is defined."""
    whole = re.compile(re.escape(name) + r"(?![-\w.$])")
    return any(len(whole.findall(text)) > 1 for text in texts)
