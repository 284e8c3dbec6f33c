"""Name the formats of Triton's variants and tuning files, and check the beginning of a file."""

from __future__ import annotations

from aotcuda.common import foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

VARIANTS, TUNING, VERSION = "aotcuda variants", "aotcuda tuning", 1


def mismatch(whole: Any, form: str, sources: Sequence[str]) -> str | None:
    """Return the reason why the content of a file cannot be used for a module, or None.

    Args:
        whole: The content.
        form: `VARIANTS` or `TUNING`.
        sources: The modules that the file may be for.
    """
    if not isinstance(whole, dict) or whole.get("format") != form:
        return f"it is no file of {form}"
    version = whole.get("version")
    if version != VERSION or isinstance(version, bool):
        return f"its version is {foreign.escape(repr(version))}, and this aotcuda reads version {VERSION}"
    if whole.get("source") not in sources:
        return f"it is for {foreign.escape(repr(whole.get('source')))}, and not for {' or '.join(sources)}"
    return None
