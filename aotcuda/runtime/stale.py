"""Editable installs: whether the sources that the images were built from are still what they were.

In an editable install the code that users edit and the images lie side by side, and nothing but this check tells that
they differ. It reads a file again only when its size or time of change has changed.
"""

from __future__ import annotations

import os

from aotcuda import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Source

_TABLE = "#tool.aotcuda"
"""Ends the path of the source that is not a file but the `[tool.aotcuda]` table of a pyproject.toml."""


class Sources:
    """The sources of one module."""

    __slots__ = ("_root", "_seen", "_sources")

    def __init__(self, root: str, sources: list[Source]) -> None:
        self._root = root
        self._sources = sources
        self._seen: dict[str, tuple[int, int]] = {}

    def changed(self) -> str | None:
        """What is wrong with the first source that is not as it was when the images were built, None if all are."""
        for source in self._sources:
            path = source["path"]
            file = os.path.normpath(os.path.join(self._root, path.removesuffix(_TABLE)))
            try:
                status = os.stat(file)
                state = (status.st_mtime_ns, status.st_size)
                if self._seen.get(path) == state:
                    continue
                digest = _table_digest(file) if path.endswith(_TABLE) else _digest(file)
            except OSError:
                return f"{file} is gone"
            if digest != source["sha256"]:
                what = f"[tool.aotcuda] in {file}" if path.endswith(_TABLE) else file
                return f"{what} was edited"
            self._seen[path] = state
        return None


def _digest(file: str) -> str:
    with open(file, "rb") as stream:
        return manifests.digest(stream.read())


def _table_digest(file: str) -> str | None:
    """The digest of the `[tool.aotcuda]` table as canonical JSON, None if the file cannot be parsed."""
    import json  # noqa: PLC0415 (only editable installs come here)
    import tomllib  # noqa: PLC0415

    with open(file, "rb") as stream:
        try:
            table = tomllib.load(stream).get("tool", {}).get("aotcuda", {})
        except ValueError:
            return None
    return manifests.digest(json.dumps(table, sort_keys=True, separators=(",", ":")).encode())
