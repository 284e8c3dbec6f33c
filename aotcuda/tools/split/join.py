"""`aotcuda join`: restore the full wheel from the parts that `aotcuda split` made."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests
from aotcuda.common.replacing import replacing
from aotcuda.errors import BuildError, TargetError
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.parts import FORMAT
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive
from aotcuda.tools.split.wheel import RESTORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.tools.wheel_archive import Wheel

_REMEDY = "name all wheels of one of the folders that aotcuda split wrote"
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, zlib.error)


def run(wheels: Sequence[Path], out: Path) -> Path:
    """Write the full wheel to the folder `out`; return its path.

    Raises:
        TargetError: The wheels are not parts of one wheel, or not all of them.
        BuildError: It cannot be written, or a file with another content is there.
    """
    name, data = full_wheel(wheels)
    path = out / name
    try:
        if path.exists() and path.read_bytes() != data:
            message = f"{path} exists already with another content; name another folder: --out DIR"
            raise BuildError(message)
        out.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(data)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); name another folder: --out DIR"
        raise BuildError(message) from error
    return path


def full_wheel(paths: Sequence[Path]) -> tuple[str, bytes]:
    """Return the name and the bytes of the full wheel.

    Raises:
        TargetError: The wheels are not parts of one wheel, or not all of them.
    """
    wheels = [wheel_archive.read(path) for path in paths]
    parts = [wheel for wheel in wheels if f"{wheel.metadata}/{RESTORE}" in wheel.files]
    if not parts:
        message = f"{paths[0]} is no part of a split wheel; {_REMEDY}"
        raise TargetError(message)
    first = parts[0]
    try:
        restore = _restore(first)
        for wheel in parts:
            if _restore(wheel)["sha256"] != restore["sha256"]:
                raise _different_wheels(first, wheel)
        contents = dict(first.files)
        for name, text in restore["originals"].items():
            contents[f"{first.metadata}/{name}"] = text.encode(errors="surrogateescape")
        for folder in _folders_with_parts(first):
            contents |= _fatbin(folder, first, wheels)
        name, data = Path(restore["wheel"]).name, archive.make(restore, contents)
    except _MALFORMED:
        message = f"{first.path} was altered after it was split; {_REMEDY}"
        raise TargetError(message) from None
    if manifests.digest(data) != restore["sha256"]:
        message = (
            f"{name} cannot be restored byte for byte: its parts were altered, or zlib {zlib.ZLIB_RUNTIME_VERSION} of "
            f"this Python compresses differently than {restore['zlib']}, with which they were split; join them with "
            "that Python"
        )
        raise TargetError(message)
    return name, data


def _restore(wheel: Wheel) -> Any:
    """Return the data of a part for restoring the full wheel."""
    restore = json.loads(wheel.files[f"{wheel.metadata}/{RESTORE}"])
    if restore["format"] > FORMAT:
        message = f"{wheel.path} was split by a newer aotcuda than this one; upgrade it: pip install --upgrade aotcuda"
        raise TargetError(message)
    return restore


def _fatbin(folder: str, first: Wheel, wheels: Sequence[Wheel]) -> dict[str, bytes]:
    """Return the fatbin with all images of the module in a data folder, by its name."""
    where = f"{folder}/{manifests.FILE_NAME}"
    manifest = manifests.parse(first.files[where], f"{first.path}/{where}")
    kernels, module = manifest["files"]["kernels"], manifest["module"]
    fatbins: dict[str, bytes] = {}
    for wheel in wheels:
        for inside in _folders_with_parts(wheel):
            part = json.loads(wheel.files[f"{inside}/{manifests.PARTS}"])
            if part["module"] != module:
                continue
            if part["whole"] != kernels["sha256"]:
                raise _different_wheels(first, wheel)
            fatbins |= dict.fromkeys(part["images"], wheel.files[f"{inside}/{part['kernels']['path']}"])
    archs = [image["arch"] for image in manifest["images"]]
    if missing := [arch for arch in archs if arch not in fatbins]:
        message = f"the wheels lack {', '.join(missing)} of {module}; {_REMEDY}"
        raise TargetError(message)
    data = subset.only(list(dict.fromkeys(fatbins.values())), archs, f"{first.path}/{folder}")
    return {f"{folder}/{kernels['path']}": data}


def _folders_with_parts(wheel: Wheel) -> list[str]:
    """Return the folders of a wheel that have some images of a module."""
    return [name.rpartition("/")[0] for name in wheel.files if name.endswith(f"/{manifests.PARTS}")]


def _different_wheels(first: Wheel, second: Wheel) -> TargetError:
    return TargetError(f"{first.path} and {second.path} are parts of different wheels; {_REMEDY}")
