"""Targets: from what a user names (a wheel, a module, a folder, a file) to the modules and images in it.

Nothing of what is found gets imported or run. The first part of an importable name is looked up by the finders that an
import would ask; the rest are paths below it.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from aotcuda import forgotten, manifest
from aotcuda.errors import ManifestError, TargetError
from aotcuda.inspect import fatbin

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_ZIP_MAGIC = b"PK"
_ELF_MAGIC = b"\x7fELF"
_ENDING = f"{manifest.FOLDER_SUFFIX}/{manifest.FILE_NAME}"
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)
"""All that `zipfile` raises for damaged, encrypted or unknown content; NotImplementedError is a RuntimeError."""


@dataclass(frozen=True, kw_only=True)
class BuiltModule:
    """A module that aotcuda built.

    Attributes:
        where: The path of its data folder, for messages.
        manifest: Its manifest.
        files: The content of the files that the manifest names, checked against it: `kernels` and `functions`, which
            are fatbins, and `header`.
    """

    where: str
    manifest: manifest.Manifest
    files: dict[str, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BareImage:
    """A fatbin or cubin without a manifest."""

    where: str
    data: bytes = field(repr=False)
    is_fatbin: bool


_Folder: TypeAlias = Path | zipfile.Path
"""A module's data folder, on disk or in a wheel."""


class _Finder(Protocol):
    """The part of the import system's meta path finders that is used here."""

    def find_spec(self, name: str, path: None, /) -> ModuleSpec | None:
        """The module's whereabouts."""


def find(target: str) -> list[BuiltModule | BareImage]:
    """The modules in `target`, by name, or the one image that it is.

    Raises:
        TargetError: There is no such thing, or nothing in it that aotcuda built.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
    """
    path = Path(target)
    if path.is_file():
        return _in_file(path)
    folders = _data_folders(path) if path.is_dir() else _in_importable(target)
    return [_read_module(folder) for folder in _some(folders, target, None if folders else _hint(target))]


def find_module(name: str) -> BuiltModule:
    """The installed module called `name`.

    Raises:
        TargetError: There is no such module, or aotcuda did not build it.
        ManifestError: As for `find`.
    """
    for found in [_read_module(folder) for folder in _in_importable(name)]:
        if found.manifest["module"] == name:
            return found
    message = f"{name} is no module that aotcuda built"
    raise TargetError(message)


def headers(target: str) -> list[str]:
    """The C headers of the modules in `target`.

    Raises:
        TargetError: As for `find`; or it is an image, of which there is no header.
        ManifestError: As for `find`.
    """
    found = [item.files["header"].decode() for item in find(target) if isinstance(item, BuiltModule)]
    if not found:
        message = f"{target} is an image alone; headers come with modules"
        raise TargetError(message)
    return found


def _some(folders: list[_Folder], where: str, hint: str | None) -> list[_Folder]:
    if not folders:
        message = f"{where} holds no module that aotcuda built (no *{_ENDING}){f'; {hint}' if hint else ''}"
        raise TargetError(message)
    return folders


def _hint(target: str) -> str | None:
    """Why a folder or an importable name has no module that aotcuda built, where a forgotten hook would be why."""
    if Path(target).is_dir():
        return forgotten.above(str(Path(target).resolve()))
    top = target.partition(".")[0]
    spec = _spec(top)
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return next(filter(None, map(forgotten.above, locations)), None) or forgotten.installed(top)


def _wheel_hint(wheel: zipfile.ZipFile) -> str | None:
    names = [name for name in wheel.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
    try:
        return forgotten.in_metadata(wheel.read(names[0]).decode(errors="replace")) if names else None
    except _ZIP_ERRORS:
        return None


def _data_folders(folder: Path) -> list[_Folder]:
    if folder.suffix == manifest.FOLDER_SUFFIX:
        return [folder]
    return [path.parent for path in sorted(folder.rglob(f"*{_ENDING}"))]


def _in_file(path: Path) -> list[BuiltModule | BareImage]:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic.startswith(_ZIP_MAGIC) or path.suffix == ".whl":
            return _in_wheel(path)
        if magic in (fatbin.MAGIC, _ELF_MAGIC):
            return [BareImage(where=str(path), data=path.read_bytes(), is_fatbin=magic == fatbin.MAGIC)]
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror})"
        raise TargetError(message) from None
    message = f"{path} is neither a wheel nor a fatbin nor a cubin; it may have been truncated or altered"
    raise TargetError(message)


def _in_wheel(path: Path) -> list[BuiltModule | BareImage]:
    try:
        wheel = zipfile.ZipFile(path)
    except _ZIP_ERRORS:
        message = f"{path} is no readable wheel; it was truncated or altered"
        raise TargetError(message) from None
    with wheel:
        names = sorted(name for name in wheel.namelist() if name.endswith(_ENDING))
        folders: list[_Folder] = [zipfile.Path(wheel, name.removesuffix(manifest.FILE_NAME)) for name in names]
        return [_read_module(folder) for folder in _some(folders, str(path), None if folders else _wheel_hint(wheel))]


def _in_importable(name: str) -> list[_Folder]:
    """The data folders of the module called `name`, or of the package and those in it; none if it has none."""
    top, *rest = name.split(".")
    spec = _spec(top) if all(part.isidentifier() for part in (top, *rest)) else None
    if spec is None:
        message = f"there is no file, folder or importable module {name}"
        raise TargetError(message)
    # A namespace package has every folder of the path that holds it, and some are on the path twice.
    locations = list(dict.fromkeys(Path(location) for location in spec.submodule_search_locations or ()))
    if not locations:  # a module, not a package
        locations = [Path(spec.origin or top).with_suffix("")]
    bases = [location.joinpath(*rest) for location in locations]
    if rest and not any(base.is_dir() or any(base.parent.glob(f"{base.name}.*")) for base in bases):
        hint = _hint(name)
        message = f"the package {top} has no module {'.'.join(rest)}{f'; {hint}' if hint else ''}"
        raise TargetError(message)
    return [folder for base in bases for folder in _of_module(base)]


def _of_module(base: Path) -> list[_Folder]:
    """The data folders of the module or package that lies at `base`, a path without a suffix."""
    beside = base.with_name(f"{base.name}{manifest.FOLDER_SUFFIX}")
    return [beside] if beside.is_dir() else _data_folders(base)


def _spec(name: str) -> ModuleSpec | None:
    """Where the top-level module or package `name` would be imported from."""
    finders: list[_Finder] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    found = (finder.find_spec(name, None) for finder in finders)
    # One that lies nowhere is a module made by a program, as a build's placeholders are; a later finder may have files.
    return next((spec for spec in found if spec and (spec.origin or spec.submodule_search_locations)), None)


def _read_module(folder: _Folder) -> BuiltModule:
    where = str(folder).rstrip("/")
    data = _read(folder, manifest.FILE_NAME)
    parsed = manifest.parse(data, f"{where}/{manifest.FILE_NAME}")
    _check_digest(folder, data, where)
    files = {}
    try:
        for key in ("kernels", "functions", "header"):
            if file := parsed["files"].get(key):
                data = files[key] = _read(folder, _plain_name(file["path"]))
                manifest.check_file(data, file, f"{where}/{file['path']}")
    except (LookupError, TypeError, AttributeError, ValueError):
        message = f"{where}/{manifest.FILE_NAME} was altered: its `files` cannot be read; install the package again"
        raise ManifestError(message) from None
    return BuiltModule(where=where, manifest=parsed, files=files)


def _read(folder: _Folder, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (KeyError, *_ZIP_ERRORS):
        message = f"{folder / name} cannot be read; it is missing or was altered. Install the package again."
        raise ManifestError(message) from None


def _check_digest(folder: _Folder, data: bytes, where: str) -> None:
    """Hold the manifest against the digest in the generated module beside it, if one is there."""
    parent = cast("_Folder", folder.parent)
    generated = f"{Path(where).stem}.py"
    if (parent / generated).exists() and manifest.digest(data).encode() not in _read(parent, generated):
        message = (
            f"{where}/{manifest.FILE_NAME} was altered: it is not the one that {generated} was generated with; "
            "install the package again"
        )
        raise ManifestError(message)


def _plain_name(name: str) -> str:
    """The name, if it is that of a file in the folder itself."""
    if Path(name).name != name:
        raise ValueError(name)
    return name
