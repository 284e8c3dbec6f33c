"""Replace kernels of a PTX text by kernels of a second text, which was generated with other options.

nvJitLink takes options for a link. If one kernel has its own option, the module is linked twice. The kernel and
the functions that it calls come from the second text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Collection

_FUNCTION = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|extern) )*\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE
)
_SUFFIX = "__own_options"


def swap_kernels(text: str, other: str, names: Collection[str]) -> str:
    """Return `text` with the kernels `names` from `other`, and the functions that they call.

    Raises:
        LinkError: The texts define different variables.
    """
    head, parts = _split(text)
    other_head, other_parts = _split(other)
    if _variables(head) != _variables(other_head):
        message = "kernels with their own fma define other variables than the rest; write fma = false for the module"
        raise LinkError(message)
    functions = {name for kind, name, body in other_parts if kind == "func" and "{" in body}
    words = re.compile(rf"(?<![\w$.%])({'|'.join(map(re.escape, sorted(functions, key=len, reverse=True)))})(?![\w$])")

    def own(body: str) -> str:
        return words.sub(rf"\1{_SUFFIX}", body) if functions else body

    kernels = {name: own(body) for kind, name, body in other_parts if kind == "entry" and name in names}
    callees = [own(body) for kind, name, body in other_parts if kind == "func" and name in functions]
    bodies = [kernels.get(name, body) if kind == "entry" else body for kind, name, body in parts]
    return "".join([head, *callees, *bodies])


def _split(text: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the text before the first function, and kind, name and text of each function or declaration."""
    matches = list(_FUNCTION.finditer(text))
    ends = [later.start() for later in matches[1:]] + [len(text)]
    parts = [(match[1], match[2], text[match.start() : end]) for match, end in zip(matches, ends, strict=True)]
    return text[: matches[0].start()], parts


def _variables(head: str) -> list[str]:
    """Return the definitions of variables in a head."""
    return re.findall(r"^(?:\.(?:visible|weak|extern|common) )?\.(?:global|const|shared)\b[^;]*;", head, re.MULTILINE)
