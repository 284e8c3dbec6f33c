"""Read the members of a wheel, and write a wheel with its RECORD (PEP 376, PEP 427)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import zipfile
import zlib
from typing import TYPE_CHECKING

from aotcuda.errors import BuildError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_DAMAGE = (OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


def read(wheel: Path) -> tuple[dict[str, bytes], dict[str, zipfile.ZipInfo]]:
    """Return the files of a wheel and their ZIP entries, by name.

    Raises:
        TargetError: It is no wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
            files = {name: archive.read(name) for name in infos}
    except _DAMAGE as error:
        message = f"{wheel} cannot be read as a wheel ({error}); name a .whl file"
        raise TargetError(message) from None
    if metadata_folder(files) is None:
        message = f"{wheel} is no wheel: it has no RECORD; name a .whl file"
        raise TargetError(message)
    return files, infos


def metadata_folder(files: Iterable[str]) -> str | None:
    """Return the folder of RECORD, `mypkg-1.0.dist-info`; None without one."""
    found = (name.rpartition("/") for name in files if name.count("/") == 1)
    return next((folder for folder, _, name in found if folder.endswith(".dist-info") and name == "RECORD"), None)


def write(wheel: Path, files: Mapping[str, bytes], infos: Mapping[str, zipfile.ZipInfo], folder: str) -> None:
    """Write a wheel of these files, and RECORD in `folder`; it is complete or as it was.

    Files that have no entry in `infos` get the time of RECORD's entry.

    Raises:
        BuildError: It cannot be written.
    """
    record = f"{folder}/RECORD"
    partial = wheel.with_name(f".{wheel.name}.{os.getpid()}")
    content = {**files, record: _record(files, record)}
    time = infos[record].date_time if record in infos else (1980, 1, 1, 0, 0, 0)
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(content, key=lambda name: (name == record, ".dist-info/" in name, name)):
                known = infos.get(name)
                info = zipfile.ZipInfo(name, known.date_time if known else time)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (known.external_attr if known else 0) or 0o644 << 16
                archive.writestr(info, content[name])
        partial.replace(wheel)
    except OSError as error:
        message = f"{wheel} cannot be written ({error.strerror}); it is as it was"
        raise BuildError(message) from error
    finally:
        partial.unlink(missing_ok=True)


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={digest}", len(files[name])))
    writer.writerow((record, "", ""))
    return text.getvalue().encode()
