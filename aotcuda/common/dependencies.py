"""What building a module asked of the machine, as questions that can be asked again.

A build notes them in the manifest, with the answers that it got: in that of an editable install, and in those of the
fallback's cache. The run time asks once more, and takes the images while the answers are the same.

    content     size and time of change (ns) of a file that was read
    stat        the same of a file whose size or times were asked for
    filled      the same, while there is something in it
    kind        what lies at a path: "file", "folder", "other"; None where there is nothing
    module      likewise, where an import looked for a module
    link        where a symbolic link points to
    names       a digest of the names in a folder
    access:4    whether os.access grants this
    distributions:numpy     a digest of the names of a distribution's metadata in a folder, or of all, if there are any
"""

from __future__ import annotations

import os
import stat

from aotcuda import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Answer = list[int] | str | bool | None

CACHE_KEY = "AOTCUDA_CACHE_KEY"
"""The environment variable by which users make a result depend on what nobody can see it depend on."""

TABLE = "#tool.aotcuda"
"""Ends the path of a source that is not a file but the `[tool.aotcuda]` table of a pyproject.toml."""


def table_digest(table: Mapping[str, object]) -> str:
    """The digest of a `[tool.aotcuda]` table: of its canonical JSON."""
    import json  # noqa: PLC0415 (wheels have none to compare)

    return manifests.digest(json.dumps(table, sort_keys=True, separators=(",", ":")).encode())


def answer(ask: str, path: str) -> Answer:
    """The answer to a question about `path`, None where there is none to be had."""
    try:
        if ask == "names":
            return names(path)
        if ask == "link":
            return os.readlink(path)
        name, _, mode = ask.partition(":")
        if name == "access":
            return os.access(path, int(mode))
        if name == "distributions":
            return distributions(path, mode)
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if ask in ("kind", "module"):
        return kind(status)
    return None if ask == "filled" and not status.st_size else [status.st_size, status.st_mtime_ns]


def kind(status: os.stat_result) -> str:
    """What a path's status says that it is."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    return "folder" if stat.S_ISDIR(status.st_mode) else "other"


def names(folder: str) -> str:
    """A digest of the names in a folder, and which of them are folders.

    Bytecode, what aotcuda generates and what editors leave while a file is open are not among them: they come and go
    with no change to the project.

    Raises:
        OSError: The folder cannot be read.
    """
    with os.scandir(folder) as entries:
        found = {entry.name: entry.is_dir() for entry in entries}
    suffix = manifests.FOLDER_SUFFIX
    generated = {name.removesuffix(suffix) for name in found if name.endswith(suffix) and not is_mark(folder, name)}
    listed = [
        f"{name}/" if is_folder else name
        for name, is_folder in sorted(found.items())
        if not (
            name == "__pycache__"
            or name.endswith((suffix, "~", ".swp", ".swx"))
            or name.startswith((".#", ".nfs"))
            or (name.endswith((".py", ".pyi")) and name.rpartition(".")[0] in generated)
        )
    ]
    return manifests.digest("\0".join(listed).encode(errors="surrogateescape"))


def distributions(folder: str, name: str) -> str | None:
    """A digest of the names in a folder that are of a distribution's metadata, of all if `name` is empty.

    Raises:
        OSError: The folder cannot be read.
    """
    found = [entry for entry in os.listdir(folder) if entry.lower().endswith((".dist-info", "egg-info"))]
    named = sorted(entry for entry in found if not name or plain(entry.rpartition(".")[0].partition("-")[0]) == name)
    return manifests.digest("\0".join(named).encode(errors="surrogateescape")) if named else None


def plain(distribution: str) -> str:
    """The one way to write a distribution's name."""
    return "_".join(filter(None, distribution.lower().replace("-", "_").replace(".", "_").split("_")))


def is_mark(folder: str, name: str) -> bool:
    """Whether a data folder lies beside a source that is packaged in place, and not beside a generated module."""
    return os.path.isfile(os.path.join(folder, name, manifests.IN_PLACE))


def variable(name: str) -> str | None:
    """The digest of an environment variable's value, None if it is not set."""
    value = os.environ.get(name)
    return None if value is None else manifests.digest(value.encode(errors="surrogateescape"))
