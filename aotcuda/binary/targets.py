"""Find the modules and images in a wheel, a module, a folder or a file that a user names.

Nothing is imported or run. The finders of the import system find the first part of an importable name. The other
parts are paths below it. If no data folder has such a path, as with editable installs of meson-python, the finders get
the other parts too.
"""

from __future__ import annotations

import itertools
import os
import pkgutil
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aotcuda import manifest
from aotcuda.binary import fatbin, files
from aotcuda.binary.limit import Limit, TooMuchError
from aotcuda.cache.entries import ENTRY
from aotcuda.common import foreign, uninstalled_hook
from aotcuda.common.foreign import UnreadableError, escape
from aotcuda.errors import ManifestError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec

    from aotcuda.runtime.images.parts import Parts

_ZIP_MAGIC = b"PK"
_GZIP_MAGIC = b"\x1f\x8b"
_ELF_MAGIC = b"\x7fELF"
_ENDING = f"{manifest.FOLDER_SUFFIX}/{manifest.FILE_NAME}"

_MOST_ENTRIES = 1_000_000
"""The limit of files in a folder to search. For a larger folder, such as `/`, an error requests a narrower one."""

_LARGEST_METADATA = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PackagedModule:
    """A packaged module.

    Attributes:
        where: The path of its data folder for messages, with escapes for characters that do not print.
        path: The data folder; None if it is in a wheel.
        manifest: Its manifest.
        files: The content of the files in the manifest, compared with it: `functions`, `header`, and by their path the
            fatbins of the kernels and the functions of other toolchains.
        limit: The limit of its unpacked images.
    """

    where: str
    path: Path | None
    manifest: manifest.Manifest
    files: dict[str, bytes] = field(repr=False)
    limit: Limit = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BareImage:
    """A fatbin or cubin without a manifest."""

    where: str
    data: bytes = field(repr=False)
    is_fatbin: bool


class _Finder(Protocol):
    """The part of the import system's meta path finders that this module uses."""

    def find_spec(self, name: str, path: Sequence[str] | None, /) -> ModuleSpec | None:
        """Return the module's spec."""


def find(target: str) -> Iterator[PackagedModule | BareImage]:
    """Yield the modules in `target` by name, or its image. Each is read on demand.

    Raises:
        TargetError: There is no such target, or it has no packaged module.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
    """
    if not target:
        message = "'' is no wheel, folder, module or fatbin; name one"
        raise TargetError(message)
    path = Path(target)
    mode = _mode(path)
    if mode is None or stat.S_ISDIR(mode):
        folders = [] if mode is None else _data_folders(path)
        # A project's folder with its sources may have the name of the installed package.
        if mode is None or (not folders and target.isidentifier() and _spec(target)):
            folders = _folders_of_name(target)
        _check_not_empty(folders, target, None if folders else _hint(target))
        yield from (_read_module(files.DiskFolder(folder)) for folder in folders)
        return
    try:
        yield from _read_target_file(path)
    except UnreadableError as error:
        message = f"{escape(str(path))} {error}"
        raise TargetError(message) from None


def _mode(path: Path) -> int | None:
    """Return the file mode at `path`; None if nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null character
        return None
    except OSError as error:  # the path is too long, or a folder may not be entered
        message = f"{escape(str(path)[:200])} cannot be read ({error.strerror})"
        raise TargetError(message) from None


def find_module(name: str) -> PackagedModule:
    """Return the installed module called `name`.

    Raises:
        TargetError: There is no such module, or it is not packaged.
        ManifestError: As for `find`.
    """
    for module in [_read_module(files.DiskFolder(folder)) for folder in _folders_of_name(name)]:
        if module.manifest["module"] == name:
            return module
    message = f"{name} is no module that aotcuda built"
    raise TargetError(message)


def headers(target: str) -> list[str]:
    """Return the C headers of the modules in `target`.

    Raises:
        TargetError: As for `find`; or it is an image, which has no header.
        ManifestError: As for `find`.
    """
    texts = [_header(item) for item in find(target) if isinstance(item, PackagedModule)]
    if not texts:
        message = f"{escape(target)} is an image without a manifest; only modules have headers"
        raise TargetError(message)
    return texts


def _header(module: PackagedModule) -> str:
    data = module.files.get("header")
    try:
        text = None if data is None else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or not text.replace("\n", "").replace("\t", "").isprintable():
        problem = "has no header" if data is None else "has a header that is no text"
        message = f"{module.where} {problem}; it was altered, install the package again"
        raise ManifestError(message)
    return text


def _check_not_empty(folders: object, where: str, hint: str | None) -> None:
    if not folders:
        because = f"; {hint}" if hint else ""
        message = f"{escape(where)} holds no module that aotcuda built (no *{_ENDING}){because}"
        raise TargetError(message)


def _hint(target: str) -> str | None:
    """Return the likely reason that a folder or name has no packaged module: it has wheels, or the hook is missing."""
    if Path(target).is_dir():
        wheels = [escape(str(path)) for path in sorted(Path(target).glob("*.whl"))]
        if wheels:
            suffix = f" ({len(wheels) - 1} more in its folder)" if len(wheels) > 1 else ""
            return f"name the wheel itself: {wheels[0]}{suffix}"
        return uninstalled_hook.find_project_fault(str(Path(target).resolve()))
    top = target.partition(".")[0]
    spec = _spec(top)
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return next(
        filter(None, map(uninstalled_hook.find_project_fault, locations)), None
    ) or uninstalled_hook.distribution_fault(top)


def _wheel_hint(wheel: files.Wheel) -> str | None:
    names = [name for name in wheel.names if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
    return (
        uninstalled_hook.metadata_fault(wheel.read(names[0], _LARGEST_METADATA).decode(errors="replace"))
        if names
        else None
    )


def _data_folders(folder: Path) -> list[Path]:
    if folder.suffix == manifest.FOLDER_SUFFIX:
        return [folder]
    data_folders, count = [], 0
    for directory, folders, names in os.walk(folder):  # it follows no links, which may form circles
        count += len(folders) + len(names)
        if count > _MOST_ENTRIES:
            message = f"{escape(str(folder))} holds more than {_MOST_ENTRIES:,} files; name a folder further down"
            raise TargetError(message)
        if directory.endswith(manifest.FOLDER_SUFFIX) and manifest.FILE_NAME in names:
            data_folders.append(Path(directory))
    return sorted(data_folders)


def _read_target_file(path: Path) -> Iterator[PackagedModule | BareImage]:
    with files.open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            magic = file.read(4)
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
            raise UnreadableError(problem) from None
    if magic.startswith(_ZIP_MAGIC) or path.suffix == ".whl":
        yield from (module for _, module in _read_wheel(path, Limit(size)))
    elif magic in (fatbin.MAGIC, _ELF_MAGIC):
        data = foreign.content(path, files.LARGEST)
        yield BareImage(where=escape(str(path)), data=data, is_fatbin=magic == fatbin.MAGIC)
    elif magic.startswith(_GZIP_MAGIC) and path.name.endswith(".tar.gz"):
        problem = "is an sdist, in which nothing is compiled yet; build a wheel of it, and inspect that"
        raise UnreadableError(problem)
    else:
        problem = "is neither a wheel nor a fatbin nor a cubin; it may have been truncated or altered"
        raise UnreadableError(problem)


def wheel_modules(path: Path) -> Iterator[tuple[str, PackagedModule]]:
    """Yield the data folder of each module in a wheel, as a name in the wheel, and the module.

    Raises:
        TargetError: The file is no wheel, or has no packaged module.
        ManifestError: As for `find`.
    """
    try:
        yield from _read_wheel(path, Limit(path.stat().st_size))
    except UnreadableError as error:
        message = f"{escape(str(path))} {error}"
        raise TargetError(message) from None


def _read_wheel(path: Path, limit: Limit) -> Iterator[tuple[str, PackagedModule]]:
    with files.open_wheel(path, limit) as wheel:
        names = sorted(name for name in wheel.names if name.endswith(_ENDING))
        _check_not_empty(names, str(path), None if names else _wheel_hint(wheel))
        for name in names:
            if any(part in {"", ".", ".."} for part in name.split("/")):
                problem = f"has a file whose name leads out of it: {escape(name)}"
                raise UnreadableError(problem)
            folder = name.removesuffix(f"/{manifest.FILE_NAME}")
            yield folder, _read_module(files.WheelFolder(wheel, folder))


def _folders_of_name(name: str) -> list[Path]:
    """Return the data folders of the module called `name`, or of the package and its modules."""
    top, *parts = name.split(".")
    spec = _spec(top) if all(part.isidentifier() for part in (top, *parts)) else None
    if spec is None:
        message = f"there is no file, folder or importable module {escape(name)}"
        raise TargetError(message)
    # A namespace package has several folders, and some are on the path twice.
    locations = list(dict.fromkeys(Path(location) for location in spec.submodule_search_locations or ()))
    if not locations:  # a module, not a package
        locations = [Path(spec.origin or top).with_suffix("")]
    bases = [location.joinpath(*parts) for location in locations]
    folders = [folder for base in bases for folder in _folders_at(base)] or _folders_by_finders(name)
    if parts and not folders and not any(base.is_dir() or any(base.parent.glob(f"{base.name}.*")) for base in bases):
        hint = _hint(name)
        message = f"the package {top} has no module {'.'.join(parts)}{f'; {hint}' if hint else ''}"
        raise TargetError(message)
    return folders


def _folders_at(base: Path) -> list[Path]:
    """Return the data folders of the module or package at `base`, a path without a suffix."""
    folder = base.with_name(f"{base.name}{manifest.FOLDER_SUFFIX}")
    return [folder] if folder.is_dir() else _data_folders(base)


def _folders_by_finders(name: str) -> list[Path]:
    """Return the data folders of the module called `name`, or of the modules of the package."""
    spec, prefix = None, ""
    for part in name.split("."):
        prefix = f"{prefix}.{part}" if prefix else part
        spec = _spec(prefix, spec.submodule_search_locations if spec else None)
        if spec is None or (prefix != name and not spec.submodule_search_locations):
            return []
    return list(dict.fromkeys(_folders_of(spec))) if spec else []


def _folders_of(spec: ModuleSpec) -> Iterator[Path]:
    if spec.submodule_search_locations is None:
        folder = Path(spec.origin or spec.name).with_suffix(manifest.FOLDER_SUFFIX)
        if folder.is_dir():
            yield folder
        return
    for module in pkgutil.iter_modules(spec.submodule_search_locations, f"{spec.name}."):
        child = _spec(module.name, spec.submodule_search_locations)
        if child is not None:
            yield from _folders_of(child)


def _spec(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Find the spec of a module or package: a top-level one, or one of a package with this `path`.

    Raises:
        TargetError: A finder failed, perhaps because it builds the module before an import.
    """
    finders: list[_Finder] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    specs = (finder.find_spec(name, path) for finder in finders)
    # A spec without origin is a module that a program made, such as a build's placeholder. A later finder may have the
    # module's files.
    try:
        return next((spec for spec in specs if spec and (spec.origin or spec.submodule_search_locations)), None)
    except ImportError as error:
        message = f"{name} cannot be looked for: {escape(str(error))}"
        raise TargetError(message) from None


def _read_module(folder: files.Folder) -> PackagedModule:
    where = folder.where
    data = _read(folder, manifest.FILE_NAME, manifest.LARGEST)
    parsed = manifest.parse(data, f"{where}/{manifest.FILE_NAME}")
    if folder.path is not None and (folder.path / ENTRY).is_file():  # in the JIT cache
        _check_named(folder, ENTRY, f'"{manifest.digest(data)}"')
    elif parsed.get("in_place", False):
        _check_named(folder, manifest.IN_PLACE, f" {manifest.digest(data)}\n")
    elif (generated := _generated_module(folder)) is not None:
        _check_digest(folder, manifest.FILE_NAME, data, generated)
    parts = _parts(folder, parsed)
    contents: dict[str, bytes] = {}
    listed = [item["file"] for item in parsed["fatbins"]]
    if parts is not None:
        for index, fatbin in enumerate(listed):
            if folder.path is not None:  # provider packages may have some images
                contents[fatbin["path"]] = parts.fatbin(parsed, index)
        listed = parts.files if folder.path is None else []
    toolchains = parsed.get("toolchains", [])
    named = [(item["path"], item) for item in listed]
    named += [(key, item) for key in ("functions", "header") if (item := parsed["files"].get(key))]
    named += [(item["path"], item) for toolchain in toolchains if (item := toolchain.get("functions"))]
    for name, file in named:
        _check_plain(file["path"], where)
        data = contents[name] = _read(folder, file["path"], files.LARGEST)
        manifest.check_file(data, file, f"{where}/{escape(file['path'])}")
    for file in itertools.chain(parsed["function_links"], *(toolchain["function_links"] for toolchain in toolchains)):
        _check_plain(file["path"], where)
    _check_sources(folder, parsed)
    limit = folder.total or Limit(sum(map(len, contents.values())))
    return PackagedModule(where=where, path=folder.path, manifest=parsed, files=contents, limit=limit)


def _check_sources(folder: files.Folder, parsed: manifest.Manifest) -> None:
    """Compare the files that the JIT fallback compiles with the manifest; an editable install has none of its own."""
    if "rebuild" not in parsed or "reads" in parsed:
        return
    for file in parsed["rebuild"]["files"]:
        for part in file["path"].split("/"):
            _check_plain(part, folder.where)
        name = f"{manifest.SOURCES}/{file['path']}"
        manifest.check_file(_read(folder, name, files.LARGEST), file, f"{folder.where}/{escape(name)}")


def _parts(folder: files.Folder, parsed: manifest.Manifest) -> Parts | None:
    """Return the parts of a module whose wheel was split; None for any other."""
    if not folder.has(manifest.PARTS):
        return None
    from aotcuda.runtime.images import parts  # noqa: PLC0415 (few wheels were split)

    data = _read(folder, manifest.PARTS, parts.LARGEST)
    if folder.path is None:
        return parts.Parts(data, folder.where, parsed, None)
    above = folder.path.absolute().parents
    return parts.Parts(data, str(folder.path), parsed, str(above[parsed["module"].count(".")]))


def _read(folder: files.Folder, name: str, most: int) -> bytes:
    try:
        return folder.read(name, most)
    except (UnreadableError, TooMuchError) as error:
        message = f"{folder.where}/{escape(name)} {error}; install the package again"
        raise ManifestError(message) from None


def _generated_module(folder: files.Folder) -> bytes | None:
    """Return the generated module of a data folder, or None."""
    name = f"{folder.stem}.py"
    try:
        return folder.read_sibling(name, manifest.LARGEST)
    except (UnreadableError, TooMuchError) as error:
        message = f"{escape(name)} next to {folder.where} {error}; install the package again"
        raise ManifestError(message) from None


def _check_digest(folder: files.Folder, name: str, data: bytes, generated: bytes) -> None:
    """Check the manifest against the digest in the generated module."""
    if manifest.digest(data).encode() not in generated:
        message = (
            f"{folder.where}/{name} was altered: it is not the one that {escape(f'{folder.stem}.py')} was generated "
            "with; install the package again"
        )
        raise ManifestError(message)


def _check_named(folder: files.Folder, name: str, text: str) -> None:
    """Compare the manifest with the digest in another file of its folder."""
    if text.encode() not in _read(folder, name, manifest.LARGEST):
        message = (
            f"{folder.where}/{manifest.FILE_NAME} was altered: its digest differs from the one in {name}; install "
            "the package again"
        )
        raise ManifestError(message)


def _check_plain(name: str, where: str) -> None:
    """Refuse a name that is no plain file name, such as a path out of the folder."""
    if Path(name).name != name or name in {"", ".", ".."} or "\0" in name:
        message = (
            f"{where}/{manifest.FILE_NAME} was altered: its `files` cannot be read, because {escape(name[:200])!r} "
            "is no file name; install the package again"
        )
        raise ManifestError(message)
