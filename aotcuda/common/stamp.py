"""Describe the inputs of a build by a stamp: questions about paths, with their answers at the time of the build.

Wheels, editable installs, dependency files and the JIT cache use it to find changed inputs. The answer to a question is
None if the path does not exist:

    file        SHA-256 of a file's content
    names       digest of the names in a folder
    modules     digest of the names of Python modules and of folders in a folder
    table       digest of the `[tool.aotcuda]` table of a pyproject.toml
    status      size and modification time of a file that each installation of a package writes

A stamp also has the SHA-256 of environment variables; `MYPKG_*` represents all variables with matching names.

The builder writes stamps, and the run time compares them at the first launch of an editable install. So this module
imports few other modules, and neither the builder nor the run time.
"""

from __future__ import annotations

import os
import time

from .. import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..manifest import Manifest

    _State = tuple[int, int, int, int]

CACHE_KEY = "AOTCUDA_CACHE_KEY"
"""The environment variable with which users add an input that no stamp has."""

TABLE = "#tool.aotcuda"
"""The end of the path of a source that is the `[tool.aotcuda]` table of a pyproject.toml, not the whole file."""

ALL_NAMES = "="
"""The key for the names of all variables that are set."""

_MODULES = (".py", ".so", ".pyd")
_MOMENT = 2_000_000_000
"""The least age, in nanoseconds, of a reliable file time: file systems count in steps of up to two seconds."""


class Stamp:
    """Questions with their answers.

    Attributes:
        reads: Answers by question and absolute path.
        variables: SHA-256 of environment variables; None for a variable that is not set.
    """

    __slots__ = ("_known", "reads", "variables")

    def __init__(
        self, reads: Mapping[tuple[str, str], str | None] = {}, variables: Mapping[str, str | None] = {}
    ) -> None:
        self.reads = dict(reads)
        self.variables = dict(variables)
        self._known: dict[object, object] = {}  # the states of unchanged paths, and the values of unchanged variables

    def __bool__(self) -> bool:
        return bool(self.reads or self.variables)

    def add_question(self, question: str, path: str) -> None:
        """Add a question with its current answer, unless the stamp has it."""
        if (question, path) not in self.reads:
            self.reads[question, path] = answer(question, path)

    def add_variable(self, name: str) -> None:
        """Add the current value of an environment variable, or of all variables that match a pattern."""
        if name not in self.variables:
            self.variables[name] = variable(name)

    def add(self, others: Iterable[Stamp | None]) -> Stamp:
        """Add the answers of other stamps, except to questions that this stamp has; return this stamp."""
        for other in others:
            if other is not None:
                self.reads = {**other.reads, **self.reads}
                self.variables = {**other.variables, **self.variables}
        return self

    def changed(self) -> str | None:
        """Return the first change since the stamp was made; None if nothing changed.

        This compares the status of a path, and reads the path only if its status has changed.
        """
        try:
            return self._changed()
        except (ValueError, OverflowError):  # a name with a NUL, or with half a surrogate pair
            return "the stamp names a file or a variable that cannot exist"

    def _changed(self) -> str | None:
        for (question, path), before in self.reads.items():
            state = _state(path)
            if state is None:
                if before is not None:
                    return f"{path} is gone"
            elif self._known.get((question, path)) != state:
                if answer(question, path) != before:
                    return _difference(question, path, before)
                # A second change within `_MOMENT` may not change the status.
                if time.time_ns() - max(state[:2]) > _MOMENT:
                    self._known[question, path] = state
        for name, before in self.variables.items():
            value = os.environ.get(name)
            if (name not in self._known or self._known[name] != value or is_pattern(name)) and variable(name) != before:
                return f"the environment variable {name} was changed"
            self._known[name] = value
        return None


def from_manifest(manifest: Manifest, root: str) -> Stamp:
    """Return the stamp in a manifest, whose paths are relative to `root`, the folder with the package."""
    stamp = Stamp(variables=manifest.get("variables", {}))
    for source in manifest["sources"]:
        question = "table" if source["path"].endswith(TABLE) else "file"
        path = os.path.normpath(os.path.join(root, source["path"].removesuffix(TABLE)))
        stamp.reads[question, path] = source["sha256"]
    for read in manifest.get("reads", ()):
        stamp.reads[read["ask"], os.path.normpath(os.path.join(root, read["path"]))] = read["answer"]
    return stamp


def answer(question: str, path: str) -> str | None:
    """Return the answer to a question about a path; None if the path does not exist."""
    try:
        if question == "table":
            return _table(path)
        if question in ("names", "modules"):
            return names(path, modules_only=question == "modules")
        if question == "status":
            status = os.stat(path)
            return f"{status.st_size} {status.st_mtime_ns}"
        return file_digest(path)
    except (OSError, ValueError):
        return None


def names(folder: str, *, modules_only: bool = False) -> str:
    """Return a digest of the names in a folder.

    Bytecode, files that aotcuda generates and temporary files of editors do not count, since they change without a
    change of the project.

    Raises:
        OSError: The folder cannot be read.
    """
    with os.scandir(folder) as entries:
        is_folders = {entry.name: entry.is_dir() for entry in entries}
    suffix = manifests.FOLDER_SUFFIX
    generated = {
        name.removesuffix(suffix) for name in is_folders if name.endswith(suffix) and not is_mark(folder, name)
    }
    listed = [
        f"{name}/" if is_folder else name
        for name, is_folder in sorted(is_folders.items())
        if not (
            name == "__pycache__"
            or name.endswith((suffix, "~", ".swp", ".swx"))
            or name.startswith((".#", ".nfs"))
            or (name.endswith((".py", ".pyi")) and name.rpartition(".")[0] in generated)
            or (modules_only and not (name.isidentifier() if is_folder else name.endswith(_MODULES)))
        )
    ]
    return manifests.digest("\0".join(listed).encode(errors="surrogateescape"))


def is_mark(folder: str, name: str) -> bool:
    """Return True if a data folder belongs to a source that is packaged in place, so no module was generated."""
    return os.path.isfile(os.path.join(folder, name, manifests.IN_PLACE))


def file_digest(path: str) -> str | None:
    """Return the digest of a file; None if it cannot be read, or is a pipe or a device."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            return manifests.digest(file.read())
    except OSError:
        return None


def table_digest(table: Mapping[str, object]) -> str:
    """Return the digest of a `[tool.aotcuda]` table in canonical JSON."""
    import json  # noqa: PLC0415 (stamps of wheels have no table)

    return manifests.digest(json.dumps(table, sort_keys=True, separators=(",", ":")).encode())


def is_pattern(name: str) -> bool:
    """Return True if the name of a variable represents several variables."""
    return name == ALL_NAMES or not {"*", "?", "["}.isdisjoint(name)


def variable(name: str) -> str | None:
    """Return the digest of a variable's value, or of all variables that match a pattern; None if it is not set."""
    if not is_pattern(name):
        value = os.environ.get(name)
        return None if value is None else manifests.digest(value.encode(errors="surrogateescape"))
    if name == ALL_NAMES:
        items = sorted(os.environ)
    else:
        from fnmatch import fnmatchcase  # noqa: PLC0415 (few stamps have a pattern)

        items = [f"{key}={value}" for key, value in sorted(os.environ.items()) if fnmatchcase(key, name)]
    return manifests.digest("\0".join(items).encode(errors="surrogateescape"))


def _state(path: str) -> _State | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # Programs that copy files may set an old modification time, but cannot set the status change time.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _difference(question: str, path: str, before: str | None) -> str:
    if question == "table":
        return f"[tool.aotcuda] in {path} was edited"
    if before is None:
        return f"{path} was added"
    return f"files in {path} were added or removed" if question in ("names", "modules") else f"{path} was edited"


def _table(path: str) -> str | None:
    """Return the digest of the `[tool.aotcuda]` table of a pyproject.toml; None if the file cannot be read."""
    from . import foreign, project_file  # noqa: PLC0415 (only source trees have the file)

    try:
        file = project_file.read(path)
    except foreign.UnreadableError:
        return None
    return None if file is None else table_digest(project_file.table(file[1], "tool", "aotcuda"))
