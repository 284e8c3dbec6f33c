"""Read the files of a wheel, and write a wheel with its RECORD (PEP 376, PEP 427)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda.common.replacing import replacing
from aotcuda.errors import BuildError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DAMAGE = (OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """The content of a wheel.

    Attributes:
        path: Its path.
        files: The content of its files, by name.
        infos: Their ZIP entries, by name.
        metadata: The folder of its metadata, `mypkg-1.0.dist-info`.
    """

    path: Path
    files: dict[str, bytes]
    infos: dict[str, zipfile.ZipInfo]
    metadata: str


def read(path: Path) -> Wheel:
    """Read a wheel.

    Raises:
        TargetError: It is no wheel.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
            files = {name: archive.read(name) for name in infos}
    except _DAMAGE as error:
        message = f"{path} cannot be read as a wheel ({error}); name a .whl file"
        raise TargetError(message) from None
    record = next((name for name in files if name.count("/") == 1 and name.endswith(".dist-info/RECORD")), None)
    if record is None:
        message = f"{path} is no wheel: it has no RECORD; name a .whl file"
        raise TargetError(message)
    return Wheel(path=path, files=files, infos=infos, metadata=record.partition("/")[0])


def write(path: Path, files: Mapping[str, bytes], like: Wheel, metadata: str | None = None) -> None:
    """Write a wheel of these files with a RECORD in its metadata folder. After an error an old wheel is unchanged.

    Times and modes come from the wheel `like`. Files that `like` does not have get the time of its RECORD.

    Raises:
        BuildError: It cannot be written.
    """
    record, record_info = f"{metadata or like.metadata}/RECORD", like.infos[f"{like.metadata}/RECORD"]
    content = {**files, record: _record(files, record)}
    try:
        with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(content, key=lambda name: (name == record, ".dist-info/" in name, name)):
                old = like.infos.get(name, record_info)
                info = zipfile.ZipInfo(name, old.date_time)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, old.external_attr or 0o644 << 16
                archive.writestr(info, content[name])
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); check the space and the permissions of its folder"
        raise BuildError(message) from error


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={digest}", len(files[name])))
    writer.writerow((record, "", ""))
    return text.getvalue().encode()
