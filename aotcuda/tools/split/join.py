"""`aotcuda join`: make the full wheel again from the wheels that `aotcuda split` made of it."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests
from aotcuda.errors import BuildError, TargetError
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.parts import FORMAT, PROVIDER
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive
from aotcuda.tools.split.wheel import RESTORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_ALL = "name all wheels of one of the folders that aotcuda split wrote"


def run(wheels: Sequence[Path], out: Path) -> Path:
    """Write the full wheel to the folder `out`; return its path.

    Raises:
        TargetError: The wheels are not parts of one wheel, or not all of them.
        BuildError: It cannot be written, or is there already with another content.
    """
    name, data = made(wheels)
    path = out / name
    try:
        if path.exists() and path.read_bytes() != data:
            message = f"{path} is there already, and is another wheel; name another folder: --out DIR"
            raise BuildError(message)
        out.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); name another folder: --out DIR"
        raise BuildError(message) from error
    return path


def made(wheels: Sequence[Path]) -> tuple[str, bytes]:
    """Return the name and the bytes of the full wheel; errors as for `run`."""
    given = {path: wheel_archive.read(path)[0] for path in wheels}
    restores = {path: found for path, files in given.items() if (found := _restore(path, files))}
    if not restores:
        message = f"{wheels[0]} is no part of a wheel from which the full one can be made; {_ALL}"
        raise TargetError(message)
    first, restore = next(iter(restores.items()))
    for path, other in restores.items():
        if other["sha256"] != restore["sha256"]:
            raise _unlike(first, path)
    folder = wheel_archive.metadata_folder(given[first])
    try:
        texts = {name: text.encode(errors="surrogateescape") for name, text in restore["originals"].items()}
        contents = {**given[first], **{f"{folder}/{name}": text for name, text in texts.items()}}
        for name in given[first]:
            data_folder, _, inside = name.rpartition("/")
            if inside == manifests.PARTS:
                contents |= _fatbin(data_folder, first, given)
        data = archive.make(restore, contents)
    except (ValueError, LookupError, TypeError, AttributeError, zlib.error):
        message = f"{first} was altered after it was split; {_ALL}"
        raise TargetError(message) from None
    if manifests.digest(data) != restore["sha256"]:
        message = (
            f"{restore['wheel']} does not come back byte for byte: its parts were altered, or zlib "
            f"{zlib.ZLIB_RUNTIME_VERSION} of this Python compresses in another way than {restore['zlib']}, with which "
            "they were split; join them with that Python"
        )
        raise TargetError(message)
    return restore["wheel"], data


def _restore(path: Path, files: Mapping[str, bytes]) -> Any:
    """Return what a part has for the full wheel; None if it has nothing."""
    found = files.get(f"{wheel_archive.metadata_folder(files)}/{RESTORE}")
    if found is None:
        return None
    try:
        restore = json.loads(found)
        is_newer = restore["format"] > FORMAT
    except (ValueError, LookupError, TypeError):
        message = f"{path} was altered after it was split; {_ALL}"
        raise TargetError(message) from None
    if is_newer:
        message = f"{path} was split by a newer aotcuda than this one; upgrade it: pip install --upgrade aotcuda"
        raise TargetError(message)
    return restore


def _fatbin(data_folder: str, first: Path, given: Mapping[Path, Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the file with all images of a module."""
    where = f"{data_folder}/{manifests.FILE_NAME}"
    manifest = manifests.parse(given[first][where], f"{first}/{where}")
    file, module = manifest["files"]["kernels"], manifest["module"]
    held: dict[str, bytes] = {}
    for path, files in given.items():
        for part, data in _parts(files, data_folder, module):
            if part.get("whole", file["sha256"]) != file["sha256"]:
                raise _unlike(first, path)
            held |= dict.fromkeys(part["images"], data)
    missing = [image["arch"] for image in manifest["images"] if image["arch"] not in held]
    if missing:
        message = f"the wheels lack {', '.join(missing)} of {module}; {_ALL}"
        raise TargetError(message)
    archs = [image["arch"] for image in manifest["images"]]
    data = subset.only(list(dict.fromkeys(held.values())), archs, f"{first}/{data_folder}")
    return {f"{data_folder}/{file['path']}": data}


def _parts(files: Mapping[str, bytes], data_folder: str, module: str) -> Iterator[tuple[Any, bytes]]:
    """Yield the description and the content of each fatbin of a module in a wheel."""
    for name, data in files.items():
        folder, _, inside = name.rpartition("/")
        if name == f"{data_folder}/{manifests.PARTS}":
            part = json.loads(data)
        elif inside == PROVIDER and "/" not in folder:
            part = json.loads(data)["modules"].get(module)
        else:
            continue
        if part is not None:
            yield part, files[f"{folder}/{part['kernels']['path']}"]


def _unlike(first: Path, second: Path) -> TargetError:
    return TargetError(f"{first} and {second} are parts of different wheels; {_ALL}")
