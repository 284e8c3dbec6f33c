"""Records of launched functions, and the file in which several runs accumulate."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign
from aotcuda.common.replacing import replacing
from aotcuda.errors import ConfigError
from aotcuda.tools.record import sizes
from aotcuda.tools.record.sizes import Integers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FILE_NAME = ".aotcuda-record.json"
_GIT = ".gitignore"
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
        signature: Its argument types and result; None for a device function that was inlined before it had types.
        options: The options of `@cuda.jit` that change the code.
        file: The source file; relative to the project's folder for a file in the project.
        line: The first line.
        path: The name that leads to it in its module, if there is one.
        behind: The type of an object, made by a decorator, that has the function's name and no reference to it.
        site: `file:line` of its first launch.
        refused: The reason for which no wheel can hold it.
        types_refused: The types that no packaged kernel accepts.
        declared: True if the signature is in the source.
        launches: The number of launches on each GPU, by its name.
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
    behind: str | None = None
    site: str | None = None
    refused: str | None = None
    types_refused: str | None = None
    declared: bool = False
    launches: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """Return a key that is equal for records of the same kernel, signature and options.

        Triton makes several kernels of one function; the path distinguishes them.
        """
        options = json.dumps(self.options, sort_keys=True)
        path = (self.path if self.frontend == "triton" else None) or ""
        return (self.module, self.function, self.frontend, self.kind, path, self.signature or "", options)

    @property
    def count(self) -> int:
        """Return the number of launches."""
        return sum(self.launches.values())

    @property
    def place(self) -> str:
        """Return `file:line` of its definition."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A config that an autotuner chose for one of its keys.

    Attributes:
        module, function, path: As in `Record`.
        keys: The names of the arguments that the autotuner's key begins with.
        key: The key that Triton's autotuner computes: values of `keys`, then dtypes of arguments.
        config: `kwargs`, and options by name.
        launches: The number of launches with the config on each GPU: `NVIDIA H100 80GB HBM3, compute capability 9.0`.
        timings: By GPU, the pruned configs in the autotuner's order, each with the times that Triton measured.
    """

    module: str
    function: str
    path: str | None = None
    keys: list[str]
    key: list[Any]
    config: dict[str, Any]
    launches: dict[str, int] = field(default_factory=dict)
    timings: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def order(self) -> tuple[str, ...]:
        """Return a key that is equal for equal choices of a kernel."""
        whole = json.dumps([self.keys, self.key, self.config], sort_keys=True)
        return (self.module, self.function, self.path or "", whole)


def merged_choices(choices: Iterable[Choice]) -> list[Choice]:
    """Return the distinct choices in order, with the sums of their launches."""
    found: dict[tuple[str, ...], Choice] = {}
    for choice in choices:
        before = found.get(choice.order)
        launches = Counter(before.launches if before is not None else {})
        launches.update(choice.launches)
        timings = (before.timings if before is not None else {}) | choice.timings
        found[choice.order] = replace(choice, launches=dict(sorted(launches.items())), timings=timings)
    return [found[order] for order in sorted(found)]


def merge(records: Iterable[Record]) -> list[Record]:
    """Return one record for each key in order, with the sum of its launches and other values of the last record."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The content of a file of records; empty if there is no file.

    Attributes:
        records: The records.
        choices: The choices of autotuners.
        integers: The integers of launches of Triton's kernels.
        runs: The number of runs that were added up.
    """

    records: list[Record] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    integers: list[Integers] = field(default_factory=list)
    runs: int = 0

    def plus(
        self,
        records: Iterable[Record],
        choices: Iterable[Choice],
        integers: Iterable[Integers] = (),
        runs: int = 1,
    ) -> Recorded:
        """Return the content with more records, choices, integers and runs."""
        return Recorded(
            records=merge([*self.records, *records]),
            choices=merged_choices([*self.choices, *choices]),
            integers=sizes.merged([*self.integers, *integers]),
            runs=self.runs + runs,
        )


def load(path: Path) -> Recorded:
    """Return the content of a file.

    Raises:
        ConfigError: The file is no file of records.
    """
    try:
        if not os.path.lexists(path):
            return Recorded()
        data = json.loads(foreign.read(path, _LARGEST, remedy=_REMEDY, error=ConfigError))
        if data["version"] != _VERSION:
            message = f"{path} is of version {data['version']}, which this aotcuda cannot read; update aotcuda"
            raise ConfigError(message)
        return Recorded(
            records=[Record(**_known(item, Record)) for item in data["functions"]],
            choices=[Choice(**_known(item, Choice)) for item in data.get("choices", ())],
            integers=[Integers(**_known(item, Integers)) for item in data.get("integers", ())],
            runs=int(data["runs"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"{path} cannot be read as a record ({error}); {_REMEDY}"
        raise ConfigError(message) from None


def load_given(path: Path) -> Recorded:
    """Return the content of an existing file.

    Raises:
        ConfigError: There is no such file, or it is no file of records.
    """
    if not path.exists():
        message = f"{path}: there is no such file"
        raise ConfigError(message)
    return load(path)


def check(path: Path) -> None:
    """Check that `add` can read and write a file.

    Raises:
        ConfigError: The file or its folder cannot be read or written.
    """
    load(path)
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        what = "cannot be written in" if folder.exists() else "does not exist"
        message = f"{path} cannot be written: the folder {folder} {what}; name another file with --out"
        raise ConfigError(message)


def ignore(root: Path) -> Path | None:
    """Let git ignore the file of records, so that build systems exclude it from sdists.

    The nearest `.gitignore` of the project or of its repository gets a line, unless a pattern of the file matches. No
    second `.gitignore` is made, since hatchling would then ignore the repository's one.

    Returns:
        The changed file, or None.
    """
    repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    folders = [folder for folder in (root, *root.parents) if folder.is_relative_to(repository)]
    path = next((folder / _GIT for folder in folders if (folder / _GIT).is_file()), root / _GIT)
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if any(fnmatch.fnmatchcase(FILE_NAME, line.strip().lstrip("/")) for line in text.splitlines()):
            return None
        path.write_text(text + "\n" * (text[-1:] not in ("", "\n")) + FILE_NAME + "\n", encoding="utf-8")
    except (OSError, ValueError):  # a file that cannot be written or is not UTF-8 stays as it is
        return None
    return path


def add(path: Path, more: Recorded) -> Recorded:
    """Add the records of runs to a file, and return its new content.

    Raises:
        ConfigError: The file is no file of records, or cannot be written; it is unchanged.
    """
    with _locked(path):
        found = load(path).plus(more.records, more.choices, more.integers, more.runs)
        data = {"version": _VERSION, "runs": found.runs, "functions": [asdict(record) for record in found.records]}
        if found.choices:
            data["choices"] = [asdict(choice) for choice in found.choices]
        if found.integers:
            data["integers"] = [asdict(item) for item in found.integers]
        try:
            with replacing(path) as partial:
                partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            message = f"{path} cannot be written ({error.strerror}); name another file with --out"
            raise ConfigError(message) from error
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the folder, so that two runs that end at the same time add up. There is no lock file."""
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


def _known(item: dict[str, Any], kind: type[Record | Choice | Integers]) -> dict[str, Any]:
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in item.items() if name in names}
