"""Records of launched functions, and the file in which several runs accumulate."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FILE_NAME = ".aotcuda-record.json"
_VERSION = 1
_LARGEST = 256 << 20
_REMEDY = "remove it, or name another file with --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A kernel or device function with one signature.

    Attributes:
        frontend: `numba-cuda`, `numba-cuda-mlir` or `triton`.
        kind: `kernel` or `device`.
        module: The module that defines it.
        function: Its qualified name.
        signature: What it was compiled for; None for a device function that was inlined before it had types.
        options: The options of `@cuda.jit` that change the code.
        file: The source file, relative to the project where it lies in it.
        line: The first line.
        path: The name that leads to it in its module, if there is one.
        site: `file:line` of its first launch.
        refused: Why no wheel can hold it.
        types_refused: Which of its types no packaged kernel takes.
        declared: The signature stands in the source.
        launches: How often it was launched, by GPU.
    """

    frontend: str
    kind: str
    module: str
    function: str
    signature: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    file: str
    line: int
    path: str | None = None
    site: str | None = None
    refused: str | None = None
    types_refused: str | None = None
    declared: bool = False
    launches: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """Return a key that is equal for records of the same function, signature and options."""
        options = json.dumps(self.options, sort_keys=True)
        return (self.module, self.function, self.frontend, self.kind, self.signature or "", options)

    @property
    def count(self) -> int:
        """Return the number of launches."""
        return sum(self.launches.values())

    @property
    def place(self) -> str:
        """Return `file:line` of its definition."""
        return f"{self.file}:{self.line}"


def merge(records: Iterable[Record]) -> list[Record]:
    """Merge records with the same key: add up launches, take other values from the last record; sorted."""
    found: dict[tuple[str, ...], Record] = {}
    for record in records:
        before = found.get(record.key)
        if before is not None:
            launches = Counter(before.launches)
            launches.update(record.launches)
            record = replace(  # noqa: PLW2901
                record,
                path=record.path or before.path,
                site=record.site or before.site,
                declared=record.declared or before.declared,
                launches=dict(sorted(launches.items())),
            )
        found[record.key] = record
    return [found[key] for key in sorted(found)]


def load(path: Path) -> tuple[list[Record], int]:
    """Return the records in a file and the number of its runs; none if there is no file.

    Raises:
        ConfigError: It is not one that `aotcuda record` wrote.
    """
    try:
        if not os.path.lexists(path):
            return [], 0
        data = json.loads(foreign.read(path, _LARGEST, remedy=_REMEDY, error=ConfigError))
        if data["version"] != _VERSION:
            message = f"{path} is of version {data['version']}, which this aotcuda does not read; update aotcuda"
            raise ConfigError(message)
        return [Record(**_known(item)) for item in data["functions"]], int(data["runs"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"{path} cannot be read as a record ({error}); {_REMEDY}"
        raise ConfigError(message) from None


def check(path: Path) -> None:
    """Refuse a file that `add` could not add to.

    Raises:
        ConfigError: It is such a file.
    """
    load(path)
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        what = "cannot be written in" if folder.exists() else "does not exist"
        message = f"{path} cannot be written: the folder {folder} {what}; name another file with --out"
        raise ConfigError(message)


def add(path: Path, records: Iterable[Record]) -> tuple[list[Record], int]:
    """Add the records of a run to those in a file; returns all of them and the number of runs.

    Raises:
        ConfigError: The file is none of ours, or cannot be written; it is as it was before.
    """
    with _locked(path):
        before, runs = load(path)
        merged = merge([*before, *records])
        data = {"version": _VERSION, "runs": runs + 1, "functions": [asdict(record) for record in merged]}
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            message = f"{path} cannot be written ({error.strerror}); name another file with --out"
            raise ConfigError(message) from error
        finally:
            partial.unlink(missing_ok=True)
    return merged, runs + 1


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the folder, so that two runs that end at once add up; there is no lock file."""
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); name another file with --out"
        raise ConfigError(message) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _known(item: dict[str, Any]) -> dict[str, Any]:
    names = {entry.name for entry in fields(Record)}
    return {name: value for name, value in item.items() if name in names}
