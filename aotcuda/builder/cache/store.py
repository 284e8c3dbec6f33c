"""Store entries of the build cache in a folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aotcuda.builder.cache import archive, serialization
from aotcuda.builder.cache.archive import NAMES, VALUE
from aotcuda.builder.cache.settings import FORMAT
from aotcuda.cache import entries, folder
from aotcuda.cache.entries import VERSION, Files
from aotcuda.common import foreign
from aotcuda.errors import ManifestError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.builder.cache.archive import Packed
    from aotcuda.builder.cache.settings import Settings


class Store:
    """A cache's entries.

    An entry that cannot be read is missing, and one that cannot be written is not stored; `problems` has the reasons.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = Files(settings.folder, NAMES)
        self.problems: list[str] = []
        self._usable = True
        self._writes = settings.writes
        self._written = 0
        problem = folder.problem(settings.folder, os.path.join(settings.folder, VERSION))
        if problem is not None:
            self.problems.append(f"the build continues without the build cache: {problem}")
            self._usable = False

    def get(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the existing entries; `types` has the type of each value by its name."""
        values: dict[str, Any] = {}
        for name, shape in types.items():
            packed = self._read(name) if self._usable else None
            if packed is not None:
                self._take(values, name, shape, packed)
        return values

    def put(self, values: Mapping[str, object], kind: str, about: Mapping[str, str]) -> bool:
        """Store values under their names, if they can be encoded; `kind` and `about` are for lists of the cache.

        Returns False if a value could not be stored.
        """
        packed: dict[str, Packed] = {}
        for name, value in values.items():
            try:
                contents = {VALUE: serialization.encode(value)}
            except serialization.ForeignValueError:
                continue
            packed[name] = {"format": FORMAT, "kind": kind, "about": about[name]}, contents
        if self._settings.writes:
            for name, (record, contents) in packed.items():
                self._write(name, record, contents)
            self._record_size()
        return self._usable and self._writes and len(packed) == len(values)

    def receive(self, name: str, data: bytes) -> bool:
        """Store an entry that another machine has packed; return False if it is damaged or cannot be stored."""
        packed = archive.unpack(data, name)
        if packed is not None:
            self._write(name, *packed)
        return packed is not None and self._usable and self._writes

    def _read(self, name: str) -> Packed | None:
        for _ in range(2):  # a read while another build replaces the entry may mix two entries
            try:
                if folder.distrust_reason(self._files.path(name)) is not None:
                    break
                packed = entries.read(self._files, name)
            except FileNotFoundError:
                return None
            except (OSError, ManifestError):
                continue
            entries.mark_used(self._files, name)
            return packed
        self.report_damage()
        return None

    def _take(self, values: dict[str, Any], name: str, shape: Any, packed: Packed) -> None:
        """Add the value of an entry, if it has the type `shape`."""
        record, contents = packed
        with suppress(LookupError, TypeError, serialization.ForeignValueError):
            if record["format"] == FORMAT:
                values[name] = serialization.decode(contents[VALUE], shape)
                return
        self.report_damage()

    def report_damage(self) -> None:
        """Record once that an entry cannot be used; all processes of a build use the same text."""
        fact = "has entries that are damaged or of another version; their results are made again"
        problem = f"the build cache in {self._settings.folder} {fact}"
        if problem not in self.problems:
            self.problems.append(problem)

    def _write(self, name: str, record: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
        if not self._usable or not self._writes:
            return
        try:
            entries.write(self._files, name, record, contents, durable=False)
            self._written += sum(map(len, contents.values())) + _RECORD
        except OSError as error:
            self._writes = False  # existing entries are still used
            problem = f"{self._settings.folder} cannot be written ({error.strerror or error})"
            self.problems.append(f"the build stores nothing in its cache: {problem}")

    def _record_size(self) -> None:
        """Record the number of bytes that were written, for `trim`."""
        size, self._written = self._written, 0
        if size:
            with suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW
                with open(os.open(_tally_file(self._settings.folder), flags, 0o600), "wb") as file:
                    file.write(b"%d\n" % size)


_RECORD = 512
"""About how many bytes the record of an entry takes."""

_DAY = 86400.0


def _tally_file(folder: str) -> str:
    """Return the file with the time of the last count, the bytes of all entries then, and the bytes written since."""
    return os.path.join(folder, VERSION, "written")


def _may_be_full(folder: str, cap: int) -> bool:
    """Return True if the entries may take more bytes than `cap`, or were not measured for a day."""
    try:
        looked, *sizes = map(int, foreign.read(_tally_file(folder), follow=False).split())
    except (TargetError, ValueError):
        return True
    return not 0 <= time.time() - looked < _DAY or sum(sizes) > cap


def trim(settings: Settings) -> None:
    """Remove the entries that were not used for longest, if the cache on this machine has grown beyond its cap.

    Measuring tens of thousands of entries takes a second. It is done once a day, and when the bytes written since the
    last time may have filled the cache.
    """
    base = settings.folder
    if settings.writes and os.path.isdir(base) and folder.problem(base, os.path.join(base, VERSION)) is None:
        cap = entries.size_cap()
        files = Files(base)
        if _may_be_full(base, cap):
            size = entries.trim(files, cap)
            with suppress(OSError):
                with open(entries.temporary_path(files), "xb") as file:
                    file.write(b"%d\n%d\n" % (time.time(), size))
                os.replace(file.name, _tally_file(base))
        else:
            entries.sweep(files)
