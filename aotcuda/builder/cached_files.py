"""Accept from the build cache the files that a build would write, and no others.

An entry of the cache is not trusted: it may name any path, and have any text. The plan decides which paths are allowed.
Files that aotcuda generates from a manifest, such as Python modules, are generated again and compared. Copies of the
project's files are compared with the project. Only the manifest (in its declared shape), machine code and the C header
come from the entry.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.emit import in_place, packs, wheel_files
from aotcuda.builder.emit.c_header import header
from aotcuda.common import foreign
from aotcuda.errors import ManifestError, TargetError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aotcuda.builder.plan.plan import ModulePlan
    from aotcuda.manifest import File, Manifest

_SUFFIXES = "|".join(re.escape(suffix) for suffix in sorted({".fatbin", *linkable.SUFFIXES.values()}))
_LINK = re.compile(rf"link\d+_\w+(?:_cu\d+)?(?:{_SUFFIXES})")
_FUNCTIONS = re.compile(r"functions(?:_cu\d+)?\.fatbin")
_MARK = f"{manifest.FOLDER_SUFFIX}/{manifest.IN_PLACE}"


def check(
    files: Mapping[str, bytes],
    plans: Sequence[ModulePlan],
    folders: Sequence[Path],
    package_root: Path,
    *,
    editable: bool,
) -> None:
    """Check the files of a cached build.

    `folders` are the project's folder and the folders of its packages, which contain the carried files.

    Raises:
        ManifestError: The build would not write these files.
    """
    expected: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    for item in (plan for plan in plans if plan.units):
        name = item.config.name
        folder = f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}"
        path = f"{folder}/{manifest.FILE_NAME}"
        data = _content_of(files, path)
        document = manifest.parse(data, path)
        facts = document["module"], document.get("in_place", False), manifest.dump(document)
        if facts != (name, item.in_place, data):
            message = f"{path} is not the manifest of {name}"
            raise ManifestError(message)
        expected[path] = data
        for file in _listed_files(document, name):
            content = expected[f"{folder}/{file['path']}"] = _content_of(files, f"{folder}/{file['path']}")
            manifest.check_file(content, file, file["path"])
        expected |= {f"{folder}/{manifest.SOURCES}/{file}": content for file, content in _sources(document, folders)}
        if item.in_place:
            digests[name] = manifest.digest(data)
        else:
            expected |= wheel_files.generated(document, data, editable=editable)
    expected |= packs.files((item.config for item in plans if item.units), expected)
    names = {item.config.name.replace(".", "/") for item in plans if item.config.pack}
    for path in files.keys() - expected.keys():
        if path.removesuffix(_MARK) in names:
            name = path.removesuffix(_MARK).replace("/", ".")
            expected[path] = in_place.content({name: digests[name]}, editable=editable)
        elif digests and path.endswith(_MARK) and _is_mark(path, files[path], digests, package_root, editable=editable):
            expected[path] = files[path]
    if files != expected:
        odd = min(name for name in {*files, *expected} if files.get(name) != expected.get(name))
        message = f"{odd} is not a file that the build writes"
        raise ManifestError(message)


def _content_of(files: Mapping[str, bytes], path: str) -> bytes:
    if path not in files:
        message = f"{path} is missing"
        raise ManifestError(message)
    return files[path]


def _listed_files(document: Manifest, name: str) -> Iterator[File]:
    """Return the files that a manifest lists in its data folder, each with a name that a build gives it."""
    files: list[tuple[File, bool]] = []
    for kind, file in document["files"].items():
        names = {"header": header.file_name(name), "tuning": "tuning.json"}
        path = names.get(kind, f"{kind}.fatbin")
        files.append((file, file["path"] == path))
    parts = document.get("toolchains", [])
    links = [*document["function_links"], *(file for part in parts for file in part["function_links"])]
    files += [
        (item["file"], item["file"]["path"] == manifest.fatbin_name(at)) for at, item in enumerate(document["fatbins"])
    ]
    files += [(file, _LINK.fullmatch(file["path"]) is not None) for file in links]
    functions = [part["functions"] for part in parts if "functions" in part]
    files += [(file, _FUNCTIONS.fullmatch(file["path"]) is not None) for file in functions]
    for file, is_known in files:
        if not is_known:
            message = f"{file['path']} is not a file of a data folder"
            raise ManifestError(message)
        yield file


def _sources(document: Manifest, folders: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Return the current content of the project's files that a wheel carries for the JIT fallback."""
    for file in document["rebuild"]["files"] if "rebuild" in document else ():
        path = file["path"]
        if not _is_inside(path):
            message = f"{path} is not a file of the project"
            raise ManifestError(message)
        source = next((folder / path for folder in folders if (folder / path).is_file()), folders[0] / path)
        try:
            data = foreign.read(source, file["bytes"])
        except TargetError as error:
            raise ManifestError(str(error)) from error
        manifest.check_file(data, file, path)
        yield path, data


def _is_mark(path: str, data: bytes, digests: Mapping[str, str], package_root: Path, *, editable: bool) -> bool:
    """Return True if a file marks a source of the project that is packaged in place."""
    base = path.removesuffix(_MARK)
    if not _is_inside(path) or not any((package_root / f"{base}{end}").is_file() for end in (".py", "/__init__.py")):
        return False
    lines = data.decode(errors="replace").splitlines()[1:]
    entries = {module: digest for module, digest in digests.items() if f"{module} {digest}" in lines}
    return data == in_place.content(entries, editable=editable)


def _is_inside(path: str) -> bool:
    """Return True if a relative path is normalized and stays below its folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and path == "/".join(parts) and not {"..", "/"} & {*parts} and not {"\\", "\0"} & {*path}
