"""`aotcuda config`: flags for a C++ build that uses a module's device functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.binary import targets
from aotcuda.errors import TargetError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda import manifest


def includes(target: str) -> list[str]:
    """Return `-I<folder>` for the header of each module in `target`.

    Raises:
        TargetError: There is no such target, it is not installed, or it has no packaged module.
        ManifestError: A file is missing, truncated or altered.
    """
    return [f"-I{folder}" for folder, _ in _installed(target)]


def libs(target: str, cuda: int = 0) -> list[str]:
    """Return `-Xnvlink <file>` for each of `files`; nvcc's device linker accepts fatbins.

    Raises:
        TargetError: As for `files`.
        ManifestError: As for `files`.
    """
    return [word for file in files(target, cuda) for word in ("-Xnvlink", file)]


def files(target: str, cuda: int = 0) -> list[str]:
    """Return the files to link for the device functions of each module in `target`, and for their callees.

    Args:
        target: A module, package or folder.
        cuda: The linker's major version of CUDA; it selects files of a wheel that several toolkits built.

    Raises:
        TargetError: As for `includes`; or no module exports functions.
        ManifestError: As for `includes`.
    """
    # A package may have modules with kernels alone.
    modules = _installed(target)
    paths = [str(folder / file["path"]) for folder, item in modules for file in linkable.files_to_link(item, cuda)]
    if not paths:
        message = f"{target} exports no device functions, so there is nothing to link"
        raise TargetError(message)
    return paths


def _installed(target: str) -> list[tuple[Path, manifest.Manifest]]:
    """Return the data folder and manifest of each module."""
    packaged = [item for item in targets.find(target) if isinstance(item, targets.PackagedModule)]
    installed = [(item.path, item.manifest) for item in packaged if item.path is not None]
    if not installed:
        message = f"{target} is a file that compilers cannot read; install it, and name the module or its folder"
        raise TargetError(message)
    return installed
