"""Whether a kernel's modules in LLVM IR are all that there is to it.

The two compilers make what a kernel has for itself internal (constants, string literals), or name it after the kernel
(shared arrays). Data under any other name may be another kernel's as well: an error code, or what a toolkit's code
generator puts there. What the driver defines (`vprintf`, `malloc`) lies outside too: what becomes of such calls in two
links was not looked into.
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


_CALLED = re.compile(r'^(declare|define)\b[^@\n]*@"?([-\w.$]+)', re.MULTILINE)

_BUILT_IN = re.compile(r"llvm\.|__nv_")
"""What libNVVM makes instructions of, or finds in libdevice."""


def is_self_contained(texts: Sequence[str]) -> bool:
    """Whether the modules call nothing else, and define no data that others could name and that they use themselves."""
    functions = [match.groups() for text in texts for match in _CALLED.finditer(text)]
    defined = {name for word, name in functions if word == "define"}
    if any(name not in defined and not _BUILT_IN.match(name) for _, name in functions):
        return False
    found = (match for text in texts for match in _DATA.finditer(text))
    return all(_OWN.search(match["words"]) or not _is_used(match["name"], texts) for match in found)


def _is_used(name: str, texts: Sequence[str]) -> bool:
    """Whether data is named anywhere but where it is defined."""
    whole = re.compile(re.escape(name) + r"(?![-\w.$])")
    return any(len(whole.findall(text)) > 1 for text in texts)
