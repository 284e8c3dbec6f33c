"""The file of `aotcuda build --stamp`: which files a build wrote where, so that the next one leaves none behind.

A build into a folder replaces what it makes again. A module that is no longer in the table would stay, and be installed
with the folder. Several projects may share one, so what is there says nothing; the stamp says what a build wrote.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


def content(files: Mapping[str, bytes], folder: Path) -> bytes:
    """What a stamp has after a build that wrote `files` below `folder`: JSON, with the digest of each."""
    digests = {name: manifest.digest(data) for name, data in sorted(files.items())}
    return json.dumps({"folder": str(folder.resolve()), "files": digests}, indent=1).encode() + b"\n"


def remove_stale(stamp: Path, files: Collection[str], folder: Path) -> None:
    """Remove what the build before wrote below `folder`, as `stamp` tells, and this one, which wrote `files`, did not.

    What was changed since is somebody else's by now, and stays. So does everything where the stamp is of another
    folder, or was written otherwise, by `touch` perhaps.

    Raises:
        BuildError: A file cannot be removed.
    """
    for name, digest in _written(stamp, folder).items():
        path = folder / name
        try:
            if name in files or not path.is_file() or manifest.digest(path.read_bytes()) != digest:
                continue
            path.unlink()
        except OSError as error:
            message = f"{path}, which a build before this one wrote, cannot be removed ({error.strerror}); remove it"
            raise BuildError(message) from error
        for parent in path.relative_to(folder).parents[:-1]:
            with suppress(OSError):  # it is not empty
                (folder / parent).rmdir()


def _written(stamp: Path, folder: Path) -> dict[str, str]:
    try:
        found = json.loads(stamp.read_bytes()) if stamp.is_file() else None
        if found is None or found["folder"] != str(folder.resolve()):
            return {}
        return {str(name): str(digest) for name, digest in found["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
