"""Editable installs: whether the sources that the images were built from are still what they were.

In an editable install the code that users edit and the images lie side by side, and nothing but this check tells that
they differ. It reads a file again only when its size or time of change has changed.
"""

from __future__ import annotations

import os

from aotcuda import manifest as manifests
from aotcuda.errors import StaleBuildError
from aotcuda.runtime import driver as drivers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Source
    from aotcuda.runtime.module import Module
    from aotcuda.runtime.program import Program

_TABLE = "#tool.aotcuda"
"""Ends the path of the source that is not a file but the `[tool.aotcuda]` table of a pyproject.toml."""


class Editable:
    """What an editable install launches: its images, while the sources are those that they were built from.

    Attributes:
        packaged: Its images, while something else is launched in their place.
    """

    __slots__ = ("_late_sources", "_module", "_sources", "packaged")

    def __init__(self, module: Module) -> None:
        self._module = module
        self._sources: Sources | None = None
        self.packaged: Program | None = None
        self._late_sources: Sources | None = None  # of what stands in for the images now; None: they stand themselves

    def changed(self) -> str | None:
        """What was edited since the build, None if nothing was."""
        if self._sources is None:
            self._sources = Sources(self._module.package_root, self._module.manifest["sources"])
        return self._sources.changed()

    def program(self, current: Program) -> Program:
        """The images of the sources as they are now: the module's `current` ones, or what replaces them.

        Raises:
            StaleBuildError: The sources were edited, and the JIT fallback may not or cannot compile them.
        """
        module = self._module
        changed = self.changed()
        if changed is None:
            if self._late_sources is None:
                return current
            packaged = self.packaged or module.load_packaged()  # the edit was taken back
            module.fallback.forget()
            module.adopt(packaged, module.manifest["kernels"])
            self._late_sources = self.packaged = None
            return packaged
        if self._late_sources is not None and self._late_sources.changed() is None:
            return current
        if self._late_sources is None:
            self.packaged = current
        message = f"{module.name} was built before {changed}; build it again: pip install -e ."
        found = drivers.get()
        module.fallback.forget()
        program = module.fallback.replace(found.devices[found.current_device() or 0], StaleBuildError(message))
        self._late_sources = Sources(module.package_root, module.fallback.sources())
        return program


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
