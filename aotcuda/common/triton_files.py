"""Name the formats of variants files and tuning files for Triton, and check the header of a file."""

from __future__ import annotations

from . import foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

VARIANTS, TUNING, VERSION = "aotcuda variants", "aotcuda tuning", 1


def tuning_name(name: str) -> str:
    """Return the name of the tuning file of a variants file."""
    return f"{name.removesuffix('.json').removesuffix('.variants')}.tuning.json"


def mismatch(content: Any, form: str, sources: Sequence[str]) -> str | None:
    """Return the reason that the content of a file cannot be used for a module, or None.

    Args:
        content: The content.
        form: `VARIANTS` or `TUNING`.
        sources: The modules that the file may be for.
    """
    if not isinstance(content, dict) or content.get("format") != form:
        return f"it is no file of {form}"
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        return f"its version is {foreign.escape(repr(version))}, and this aotcuda reads version {VERSION}"
    if content.get("source") not in sources:
        return f"it is for {foreign.escape(repr(content.get('source')))}, and not for {' or '.join(sources)}"
    return None
