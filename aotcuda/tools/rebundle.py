"""`aotcuda rebundle`: replace the run time in a wheel by the run time of this aotcuda.

An upgrade of aotcuda does not change wheels with `runtime = "bundled"`. This command writes the private copy, RECORD
(PEP 376) and the bill of materials again, without a build. Other files stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.builder.emit import bundle, sbom
from aotcuda.common.foreign import escape
from aotcuda.errors import TargetError
from aotcuda.tools import wheel_archive
from aotcuda.version import __version__, is_older

if TYPE_CHECKING:
    from pathlib import Path


def run(wheel: Path) -> list[str]:
    """Replace each run time in a wheel by this version; return a line for each.

    Raises:
        TargetError: The file is no wheel, was altered, or has no run time, or a later version of the run time.
        BuildError: The wheel cannot be written. The old wheel is unchanged.
    """
    archive = wheel_archive.read(wheel)
    files = archive.files
    packages = sorted(name.partition("/")[0] for name in files if _is_version_file(name))
    if not packages:
        message = f'{wheel} holds no run time of aotcuda; build it with runtime = "bundled" first'
        raise TargetError(message)
    lines = []
    for package in packages:
        old_version = escape(files[f"{package}/{bundle.NAME}/{bundle.VERSION}"].decode(errors="replace").strip()[:40])
        if is_older(__version__, old_version):
            message = f"{wheel}: {package} holds aotcuda {old_version}, and this is {__version__}; update aotcuda first"
            raise TargetError(message)
        has_extension = any(name.startswith(f"{package}/") and bundle.is_extension(name) for name in files)
        tag = bundle.extension_tag() if has_extension else None
        if has_extension and not wheel.stem.endswith(f"-{tag}"):
            fact = (
                f"that of the installed aotcuda is for {tag}" if tag is not None else "the installed aotcuda has none"
            )
            message = f"{wheel} holds a C extension, and {fact}; build the wheel again"
            raise TargetError(message)
        files = {name: data for name, data in files.items() if not name.startswith(f"{package}/{bundle.NAME}/")}
        files |= bundle.files(package, extension=has_extension)
        lines.append(f"{package}/{bundle.NAME}: aotcuda {old_version} -> {__version__}")
    for name in files:
        if name.endswith(f"/sboms/{sbom.FILE_NAME}"):
            try:
                files[name] = sbom.with_run_time(files[name])
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                message = f"{wheel}: {name} is no bill of materials that aotcuda wrote; build the wheel again"
                raise TargetError(message) from None
    wheel_archive.write(wheel, files, archive)
    return lines


def _is_version_file(name: str) -> bool:
    return name.count("/") == 2 and name.endswith(f"/{bundle.NAME}/{bundle.VERSION}")
