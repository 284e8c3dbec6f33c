"""Whether what images were built from is still what it was: in editable installs, and of what the fallback compiled.

In an editable install the code that users edit and the images lie side by side, and nothing but this check tells that
they differ, at each launch. What a file or folder holds is looked at again only when its status has changed.
"""

from __future__ import annotations

import os
import time

from aotcuda import manifest as manifests
from aotcuda.common import dependencies, foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Manifest, Read

    _State = tuple[int, int, int, int]

_PRESENCE = ("kind", "module")
_LISTS = ("names", "distributions:")
_MOMENT = 2_000_000_000
"""How old (ns) a file's times must be to be relied on: file systems count in steps of up to two seconds."""


class Sources:
    """What one module was built from, as its manifest lists it."""

    __slots__ = ("_absent", "_reads", "_root", "_seen", "_sources", "_values", "_variables")

    def __init__(self, root: str, manifest: Manifest) -> None:
        self._root = root
        self._seen: dict[str, _State] = {}
        self._values: dict[str, str | None] = {}
        self._sources = [
            (self._path(item["path"].removesuffix(dependencies.TABLE)), item) for item in manifest["sources"]
        ]
        self._variables = manifest.get("variables", {})
        self._reads: list[tuple[str, Read]] = []
        self._absent: dict[str, list[str]] = {}  # by folder
        for read in manifest.get("reads", ()):
            path = self._path(read["path"])
            if read["ask"] in _PRESENCE and read["answer"] is None:
                folder, name = os.path.split(path)
                self._absent.setdefault(folder, []).append(name)
            else:
                self._reads.append((path, read))

    def changed(self) -> str | None:
        """Return what is wrong with the first thing that has changed since the build, None if nothing has."""
        try:
            return self._edited() or self._answered() or self._appeared() or self._set()
        except (ValueError, OverflowError):  # a name with a NUL, or with half a surrogate pair
            return "the manifest names a file or a variable that cannot exist"

    def _edited(self) -> str | None:
        for file, source in self._sources:
            path = source["path"]
            try:
                state = _state(file)
                if self._seen.get(path) == state:
                    continue
                digest = _table_digest(file) if path.endswith(dependencies.TABLE) else _digest(file)
            except OSError:
                return f"{file} is gone"
            if digest != source["sha256"]:
                what = f"[tool.aotcuda] in {file}" if path.endswith(dependencies.TABLE) else file
                return f"{what} was edited"
            self._remember(path, state)
        return None

    def _answered(self) -> str | None:
        """What the build asked about files and folders that were there."""
        for path, read in self._reads:
            ask = read["ask"]
            if ask.startswith(_LISTS):
                try:
                    state = _state(path)
                except OSError:
                    return f"{path} is gone"
                key = f"{ask} {path}"
                if self._seen.get(key) == state:
                    continue
                if dependencies.answer(ask, path) == read["answer"]:
                    self._remember(key, state)
                    continue
            elif dependencies.answer(ask, path) == read["answer"]:
                continue
            return _difference(read, path)
        return None

    def _appeared(self) -> str | None:
        """What the build looked for in vain, folder by folder: a folder in which nothing was made has the same time."""
        for folder, names in self._absent.items():
            try:
                state = _state(folder)
            except OSError:
                continue  # nothing can be in it
            key = f"{folder}/"
            if self._seen.get(key) == state:
                continue
            for name in names:
                path = os.path.join(folder, name)
                if dependencies.answer("kind", path) is not None:
                    return f"{path} was added"
            self._remember(key, state)
        return None

    def _set(self) -> str | None:
        for name, digest in self._variables.items():
            value = os.environ.get(name)
            if name in self._values and self._values[name] == value:
                continue
            if dependencies.variable(name) != digest:
                return f"the environment variable {name} was changed"
            self._values[name] = value
        return None

    def _path(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._root, path))

    def _remember(self, key: str, state: _State) -> None:
        """Look no more until the status changes; right after a change another one may leave it as it is."""
        if time.time_ns() - max(state[:2]) > _MOMENT:
            self._seen[key] = state


def _state(path: str) -> _State:
    status = os.stat(path)
    # Whoever copies a file over another one may set its time back, but not that of the change of its status.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _difference(read: Read, path: str) -> str:
    ask = read["ask"]
    if ask.startswith("access:"):
        return f"access to {path} was changed"
    if dependencies.answer("kind", path) is None and ask != "link":
        return f"{path} is gone"
    if ask.startswith("distributions:"):
        return f"what is installed in {path} was changed"
    if ask == "names":
        return f"files in {path} were added or removed"
    if ask == "link":
        return f"{path} leads elsewhere"
    return f"{path} was changed" if ask == "kind" else f"{path} was edited"


def _digest(file: str) -> str:
    if foreign.irregular(os.stat(file)):  # a pipe would be waited for, and some devices never end
        return ""
    with open(file, "rb") as stream:
        return manifests.digest(stream.read())


def _table_digest(file: str) -> str | None:
    """The digest of the `[tool.aotcuda]` table as canonical JSON, None if the file cannot be read."""
    from aotcuda.common import project_file  # noqa: PLC0415 (only editable installs come here)

    try:
        found = project_file.read(file)
    except foreign.UnreadableError:
        return None
    return None if found is None else dependencies.table_digest(project_file.table(found[1], "tool", "aotcuda"))
