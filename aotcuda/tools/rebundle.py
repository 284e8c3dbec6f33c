"""`aotcuda rebundle`: replace the run time that a wheel holds by that of this aotcuda.

A wheel with `runtime = "bundled"` gets no update by an upgrade of aotcuda. This gives it one without a build: the
private copy, RECORD (PEP 376) and the bill of materials are written again, everything else stays as it is.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import zipfile
from typing import TYPE_CHECKING

from aotcuda.builder import bundle, sbom
from aotcuda.errors import BuildError, TargetError
from aotcuda.version import __version__, is_older

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def run(wheel: Path) -> list[str]:
    """Replace the run times in a wheel; return a line for each.

    Raises:
        TargetError: It is no wheel, or holds no run time, or one of a later version.
        BuildError: It cannot be written; it is as it was.
    """
    files, infos = _content(wheel)
    packages = sorted(name.partition("/")[0] for name in files if _is_version(name))
    if not packages:
        message = f'{wheel} holds no run time of aotcuda; build it with runtime = "bundled" first'
        raise TargetError(message)
    lines = []
    for package in packages:
        before = files[f"{package}/{bundle.NAME}/{bundle.VERSION}"].decode(errors="replace").strip()
        if is_older(__version__, before):
            message = f"{wheel}: {package} holds aotcuda {before}, and this is {__version__}; update aotcuda first"
            raise TargetError(message)
        files = {name: data for name, data in files.items() if not name.startswith(f"{package}/{bundle.NAME}/")}
        files |= bundle.files(package)
        lines.append(f"{package}/{bundle.NAME}: aotcuda {before} -> {__version__}")
    for name in files:
        if name.endswith(f"/sboms/{sbom.FILE_NAME}"):
            files[name] = sbom.with_run_time(files[name])
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    files[record] = _record(files, record)
    _write(wheel, files, record, infos)
    return lines


def _is_version(name: str) -> bool:
    return name.count("/") == 2 and name.endswith(f"/{bundle.NAME}/{bundle.VERSION}")


def _content(wheel: Path) -> tuple[dict[str, bytes], dict[str, zipfile.ZipInfo]]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
            files = {name: archive.read(name) for name in infos}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        message = f"{wheel} cannot be read as a wheel ({error}); name a .whl file"
        raise TargetError(message) from None
    if not any(name.endswith(".dist-info/RECORD") for name in files):
        message = f"{wheel} is no wheel: it has no RECORD; name a .whl file"
        raise TargetError(message)
    return files, infos


def _record(files: dict[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={digest}", len(files[name])))
    writer.writerow((record, "", ""))
    return text.getvalue().encode()


def _write(wheel: Path, files: dict[str, bytes], record: str, infos: dict[str, zipfile.ZipInfo]) -> None:
    partial = wheel.with_name(f".{wheel.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in _ordered(files, record):
                info = infos.get(name) or zipfile.ZipInfo(name, infos[record].date_time)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, info.external_attr or 0o644 << 16
                archive.writestr(info, files[name])
        partial.replace(wheel)
    except OSError as error:
        message = f"{wheel} cannot be written ({error.strerror}); it is as it was"
        raise BuildError(message) from error
    finally:
        partial.unlink(missing_ok=True)


def _ordered(files: Iterable[str], record: str) -> list[str]:
    """Return the files in the order of a wheel: metadata last, and RECORD last of all (PEP 427)."""
    return sorted(files, key=lambda name: (name == record, ".dist-info/" in name, name))
