"""Pack an entry as one archive, in which it travels between machines; the archive has the digest of every byte."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.cache import entries
from aotcuda.cache.entries import ENTRY, entry_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    Packed = tuple[dict[str, Any], dict[str, bytes]]

VALUE = "value"
NAMES = frozenset([VALUE])
"""The files of an entry."""

LARGEST = entries.LARGEST_FILE + entries.LARGEST_RECORD
"""Bytes that an archive may have."""

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def pack(name: str, record: Mapping[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return an entry as one archive, not compressed; equal entries give equal bytes."""
    digests = {file: manifest.digest(data) for file, data in contents.items()}
    files = {ENTRY: entry_bytes({**record, "key": name, "files": digests}), **contents}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for file, data in files.items():
            archive.writestr(zipfile.ZipInfo(file, _FIXED_TIME), data)
    return stream.getvalue()


def unpack(data: bytes, name: str) -> Packed | None:
    """Return the entry in an archive; None if a byte of it is wrong, or it is not an entry of that name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            items = archive.infolist()
            is_uncompressed = all(
                item.compress_type == zipfile.ZIP_STORED for item in items
            )  # so nothing unpacks to more
            if len(data) > LARGEST or not is_uncompressed or sorted(item.filename for item in items) != [ENTRY, VALUE]:
                return None
            files = {item.filename: archive.read(item) for item in items}
        record = entries.parse_record(files.pop(ENTRY), name, NAMES, name)
        entries.check_contents(record, files, name)
    except Exception:  # noqa: BLE001 (zipfile raises a dozen classes for archives that are wrong)
        return None
    return {key: value for key, value in record.items() if key not in ("key", "files")}, files
