"""Read and check the files of a wheel, and write a wheel with its RECORD (PEP 376, PEP 427).

A wheel comes from elsewhere. Everything in it that decides where a file is written, or what is promised about it, is
checked before a command uses it: names of files, name and version of the distribution, sizes, and RECORD.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import unicodedata
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import TYPE_CHECKING, NoReturn

from aotcuda.binary import files as binary_files
from aotcuda.binary.limit import Limit, TooMuchError
from aotcuda.common.foreign import UnreadableError, escape
from aotcuda.common.replacing import replacing
from aotcuda.errors import BuildError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from email.message import Message
    from pathlib import Path

_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
"""Signatures of RECORD, which RECORD does not list (PEP 427)."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_FILE_NAME = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?(-[^-]+){3}(-[^-]+)?\.whl")
"""The names of a distribution (PEP 508), of a version, and of a wheel (PEP 427), also of a variant (PEP 825)."""

_ANOTHER = "name a .whl file as a build wrote it"


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """The content of a wheel, compared with its RECORD.

    Attributes:
        path: Its path.
        files: The content of its files, by name.
        infos: Their ZIP entries, by name.
        metadata: The folder of its metadata, `mypkg-1.0.dist-info`.
        name, version: The name and the version of the distribution, as METADATA has them.
        about: The core metadata.
    """

    path: Path
    files: dict[str, bytes]
    infos: dict[str, zipfile.ZipInfo]
    metadata: str
    name: str
    version: str
    about: Message


def read(path: Path) -> Wheel:
    """Read a wheel, and check it.

    Raises:
        TargetError: It is no wheel, a file differs from RECORD, or a name leads out of the wheel.
    """
    try:
        with binary_files.open_wheel(path, Limit(path.stat().st_size)) as wheel:
            infos = wheel.members
            for name in wheel.names:
                _check_name(name, path)
            _check_case(infos, path)
            files = {name: _content(wheel, name) for name in infos}
    except OSError as error:
        _refuse(path, f"cannot be read ({error.strerror})")
    except (UnreadableError, TooMuchError) as error:
        _refuse(path, str(error))
    folders = {name.partition("/")[0] for name in files if name.partition("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        _refuse(path, f"is no wheel: it has {len(folders)} folders of metadata (.dist-info), and a wheel has one")
    (metadata,) = folders
    for name in ("RECORD", "METADATA", "WHEEL"):
        if f"{metadata}/{name}" not in files:
            _refuse(path, f"is no wheel: it has no {name}")
    _check_record(path, files, f"{metadata}/RECORD")
    about = _about(path, files[f"{metadata}/METADATA"])
    name, version = (_field(path, about, key, pattern) for key, pattern in (("Name", _NAME), ("Version", _VERSION)))
    parts = _FILE_NAME.fullmatch(path.name)
    named = _normalised(name, version)
    if parts is None or _normalised(parts["name"], parts["version"]) != named:
        _refuse(path, f"is not called like a wheel of {name} {version}", "give it the name that the build gave it")
    if _normalised(*metadata.removesuffix(".dist-info").rpartition("-")[::2]) != named:
        _refuse(path, f"has the metadata of {name} {version} in {escape(metadata)}")
    return Wheel(path=path, files=files, infos=infos, metadata=metadata, name=name, version=version, about=about)


def write(path: Path, files: Mapping[str, bytes], like: Wheel, metadata: str | None = None) -> None:
    """Write a wheel of these files with a RECORD in its metadata folder. After an error an old wheel is unchanged.

    Times and modes come from the wheel `like`. Files that `like` does not have get the time of its RECORD. Signatures
    of the old RECORD are left out.

    Raises:
        BuildError: It cannot be written.
    """
    folder = metadata or like.metadata
    record, record_info = f"{folder}/RECORD", like.infos[f"{like.metadata}/RECORD"]
    listed = {name: data for name, data in files.items() if name not in {f"{folder}/{each}" for each in _SIGNATURES}}
    content = {**listed, record: _record(listed, record)}
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


def _refuse(path: Path, problem: str, remedy: str = _ANOTHER) -> NoReturn:
    message = f"{escape(str(path))} {problem}; {remedy}"
    raise TargetError(message) from None


def _check_name(name: str, path: Path) -> None:
    """Refuse a name that some system reads as a path out of the wheel, or that no terminal prints."""
    parts = name.removesuffix("/").split("/")
    if {"", ".", ".."} & {*parts} or "\\" in name or ":" in parts[0] or not name.isprintable():
        _refuse(path, f"has a file whose name is no path inside it: {escape(name)!r}")


def _check_case(names: Iterable[str], path: Path) -> None:
    """Refuse files and folders whose names are equal for file systems that ignore case and Unicode's forms."""
    found: dict[str, str] = {}
    for name in names:
        for known in (name, *(name[: match.start()] for match in re.finditer("/", name))):
            key = unicodedata.normalize("NFD", unicodedata.normalize("NFD", known).casefold())
            if (other := found.setdefault(key, known)) != known:
                both = f"{escape(other)} and {escape(known)}"
                _refuse(path, f"has {both}, whose names differ in case or in Unicode's form alone")


def _content(wheel: binary_files.Wheel, name: str) -> bytes:
    try:
        return wheel.read(name, binary_files.LARGEST)
    except UnreadableError as error:
        problem = f"has a file that cannot be read: {escape(name)} {error}"
        raise UnreadableError(problem) from None


def _check_record(path: Path, files: Mapping[str, bytes], record: str) -> None:
    """Compare the files with RECORD, in both directions."""
    folder = record.removesuffix("RECORD")
    try:
        rows = list(csv.reader(io.StringIO(files[record].decode(), newline=""), strict=True))
        listed = {name: (digest, size) for name, digest, size in filter(None, rows)}
    except (ValueError, csv.Error):
        _refuse(path, "has a RECORD that is no list of names, digests and sizes")
    free = {record, *(f"{folder}{name}" for name in _SIGNATURES)}
    for name in sorted((files.keys() ^ listed.keys()) - free):
        _refuse(path, f"{'lacks' if name in listed else 'holds'} {escape(name)}, {_listing(name in listed)}")
    if len(listed) != len([*filter(None, rows)]):
        _refuse(path, "has a RECORD that lists a file twice")
    for name in files.keys() - free:
        digest, size = listed[name]
        algorithm, _, expected = digest.partition("=")
        if algorithm not in {"sha256", "sha384", "sha512"}:  # PEP 427: sha256 or better
            _refuse(path, f"has a RECORD without a SHA-256 of {escape(name)}")
        actual = base64.urlsafe_b64encode(hashlib.new(algorithm, files[name]).digest()).rstrip(b"=").decode()
        if actual != expected.rstrip("=") or size not in {"", str(len(files[name]))}:
            _refuse(path, f"was altered: {escape(name)} is not the file that its RECORD lists")


def _listing(in_record: bool) -> str:
    return "which its RECORD lists" if in_record else "which its RECORD does not list"


def _about(path: Path, data: bytes) -> Message:
    """Return the core metadata, which are UTF-8 with any line ends."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        _refuse(path, "has a METADATA that is not UTF-8")
    return HeaderParser().parsestr(text.replace("\r\n", "\n"))


def _field(path: Path, about: Message, key: str, pattern: re.Pattern[str]) -> str:
    values = about.get_all(key) or []
    if len(values) != 1 or not pattern.fullmatch(values[0].strip()):
        found = " and ".join(escape(repr(value[:80])) for value in values) or "nothing"
        _refuse(path, f"has a METADATA whose {key} is {found}")
    return str(values[0].strip())


def _normalised(name: str, version: str) -> tuple[str, str]:
    """Return a name and a version as equal texts wherever file names and metadata write them differently."""
    return re.sub(r"[-_.]+", "-", name).lower(), re.sub(r"[-_.]+", "-", version).lower()


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={digest}", len(files[name])))
    writer.writerow((record, "", ""))
    return text.getvalue().encode()
