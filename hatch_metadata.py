"""Make the README and the links of aotcuda's metadata from the repository's address in pyproject.toml.

Package indexes show the README without the repository, so its links get the address and the tag of the version.
Without an address they stay relative, for builds from a checkout; `tools/release.py` refuses these files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = r"^```.*?^```|`[^`\n]*\]\([^`\n]*`"
"""Blocks of code, and code in a line that looks like a link, such as `kernel[grid](x)`."""
LINK = re.compile(rf"(?ms){CODE}|(!?)(\[[^][]*\]\()(?!\w+:|#)([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """The hook that hatchling calls for the fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the two fields."""
        repository = self.config.get("repository", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            source = Path(self.root, "aotcuda", "version.py").read_text(encoding="utf-8")
            (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
            text = absolute(text, repository, f"v{version}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(repository) if repository else {}


def urls(repository: str) -> dict[str, str]:
    """Return the links of the project that an index shows."""
    pages = {"Documentation": "tree/HEAD/docs", "Changes": "blob/HEAD/CHANGELOG.md", "Issues": "issues"}
    return {"Source": repository, **{name: f"{repository}/{path}" for name, path in pages.items()}}


def absolute(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose relative links have the address of the repository at a tag; pictures are files there."""

    def replaced(link: re.Match[str]) -> str:
        if link[2] is None:  # code
            return link[0]
        return f"{link[1]}{link[2]}{repository}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})"

    return LINK.sub(replaced, text)
