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
from aotcuda.builder import in_place, packs, wheel_files
from aotcuda.builder.c_header import header
from aotcuda.common import foreign
from aotcuda.errors import ManifestError, TargetError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aotcuda.builder.plan import ModulePlan
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
        data = _file(files, path)
        whole = manifest.parse(data, path)
        if whole["module"] != name or whole.get("in_place", False) != item.in_place or manifest.dump(whole) != data:
            message = f"{path} is not the manifest of {name}"
            raise ManifestError(message)
        expected[path] = data
        for file in _listed(whole, name):
            found = expected[f"{folder}/{file['path']}"] = _file(files, f"{folder}/{file['path']}")
            manifest.check_file(found, file, file["path"])
        expected |= {f"{folder}/{manifest.SOURCES}/{file}": found for file, found in _carried(whole, folders)}
        if item.in_place:
            digests[name] = manifest.digest(data)
        else:
            expected |= wheel_files.generated(whole, data, editable=editable)
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


def _file(files: Mapping[str, bytes], path: str) -> bytes:
    if path not in files:
        message = f"{path} is missing"
        raise ManifestError(message)
    return files[path]


def _listed(whole: Manifest, name: str) -> Iterator[File]:
    """Return the files that a manifest lists in its data folder, each with a name that a build gives it."""
    named: list[tuple[File, bool]] = []
    for kind, file in whole["files"].items():
        known = {"header": header.file_name(name), "tuning": "tuning.json"}
        path = known.get(kind, f"{kind}.fatbin")
        named.append((file, file["path"] == path))
    parts = whole.get("toolchains", [])
    links = [*whole["function_links"], *(file for part in parts for file in part["function_links"])]
    named += [(file, _LINK.fullmatch(file["path"]) is not None) for file in links]
    functions = [part["functions"] for part in parts if "functions" in part]
    named += [(file, _FUNCTIONS.fullmatch(file["path"]) is not None) for file in functions]
    for file, is_known in named:
        if not is_known:
            message = f"{file['path']} is not a file of a data folder"
            raise ManifestError(message)
        yield file


def _carried(whole: Manifest, folders: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Return the current content of the project's files that a wheel carries for the JIT fallback."""
    for file in whole["rebuild"]["files"] if "rebuild" in whole else ():
        path = file["path"]
        if not _is_inside(path):
            message = f"{path} is not a file of the project"
            raise ManifestError(message)
        found = next((folder / path for folder in folders if (folder / path).is_file()), folders[0] / path)
        try:
            data = foreign.read(found, file["bytes"])
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
    named = {module: digest for module, digest in digests.items() if f"{module} {digest}" in lines}
    return data == in_place.content(named, editable=editable)


def _is_inside(path: str) -> bool:
    """Return True if a relative path is normalized and stays below its folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and path == "/".join(parts) and not {"..", "/"} & {*parts} and not {"\\", "\0"} & {*path}
