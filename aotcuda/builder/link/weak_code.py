"""Compare inline functions and templates that files of one link define under one name.

C++ demands equal definitions (the one-definition rule). The linker keeps one of them, without a check, so a kernel may
run the helper of another file. PTX with debug information has every function that is not inlined, with its code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINKING = r"(?:\.(visible|weak|extern|common)\s+)?"
_FUNCTION = re.compile(
    rf"^{_LINKING}\.func\b\s*(?:\.noreturn\s*)?(?:\([^)]*\)\s*)?([\w$]+)[^{{;]*\{{.*?^\}}", re.MULTILINE | re.DOTALL
)
_VARIABLE = re.compile(rf"^{_LINKING}\.(?:global|const)\b[^;={{]*?([\w$]+)(?:\[\d*\])*\s*(?:=[^;]*)?;", re.MULTILINE)
_NUMBERED = ("$", "prototype_", "__unnamed_", "__local_depot")
"""Beginnings of names that have a number of the file."""
_WITH_NUMBER = re.compile(r"\$\d+$")
"""The end of a name with a number of the file: of local variables of inline functions and templates, such as CUB's."""
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")


def digests(ptx: bytes) -> dict[str, str]:
    """Return a digest of each function and variable that other files may define too, by symbol.

    Names and numbers that depend on other parts of the file do not matter: labels, lines and names of static functions
    and variables, whose own definitions count instead.
    """
    text = re.sub(r"//[^\n]*|^\s*\.(?:loc|file)\b[^\n]*", "", ptx.decode(errors="replace"), flags=re.MULTILINE)
    weak: dict[str, str] = {}
    local: dict[str, str] = {}
    for pattern in (_FUNCTION, _VARIABLE):
        for match in pattern.finditer(text):
            linking, name = match.groups()
            has_number = _WITH_NUMBER.search(name) is not None
            if linking == "weak" and not has_number:
                weak[name] = match[0]
            elif has_number or not linking:
                local[name] = match[0]
    inner = {name: manifest.digest(_normal(code, name, {}).encode()) for name, code in local.items()}
    return {name: manifest.digest(_normal(code, name, inner).encode()) for name, code in weak.items()}


def _normal(code: str, own: str, local: Mapping[str, str]) -> str:
    """Return the code of a function or variable without names that depend on the file."""
    numbers: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        name = match[0]
        if name in local:
            return f"<{local[name]}>"
        if own in name or "_INTERNAL_" in name or name.startswith(_NUMBERED):
            return numbers.setdefault(name, f"<{len(numbers)}>")
        return name

    return " ".join(_NAME.sub(replaced, code).split())
