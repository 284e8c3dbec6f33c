"""What `aotcuda doctor` tells: what this machine and this installation have for launches and for builds."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import aotcuda
from aotcuda import frontends
from aotcuda.cache import folder
from aotcuda.errors import AotcudaError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.fast import extension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
"""Of the JSON: it grows when a key goes or changes its meaning; new keys may come at any time."""


def examine() -> dict[str, Any]:
    """The findings, as `aotcuda doctor --json` prints them; nothing that is missing is an error."""
    problem = extension.why_not()
    return {
        "version": VERSION,
        "aotcuda": {"version": aotcuda.__version__, "path": str(Path(aotcuda.__file__).parent)},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(),
        },
        "fast_path": {
            "in": "C" if problem is None else "Python",
            "path": extension.in_use().__file__ if problem is None else None,
            "why_not_c": problem,
        },
        "driver": _driver(),
        "front_ends": {name: _installed(found.package) for name, found in frontends.BUILT_IN.items()},
        "cache": folder.folder(),
    }


def render(found: dict[str, Any]) -> str:
    """The same as lines to read."""
    own, python, fast, driver = (found[name] for name in ("aotcuda", "python", "fast_path", "driver"))
    cuda = int((driver["cuda"] or f"{frontends.CUDA}.0").partition(".")[0])
    rows = [
        ("aotcuda", f"{own['version']}, in {own['path']}"),
        ("Python", f"{python['version']}, {python['implementation']} on {python['platform']}"),
        ("fast path", f"in C: {fast['path']}" if fast["path"] else f"in Python: {fast['why_not_c']}"),
        ("driver", driver["problem"] or f"for CUDA {driver['cuda']}"),
        *((f"GPU {gpu['index']}", f"{gpu['name']}, compute capability {gpu['capability']}") for gpu in driver["gpus"]),
        *((name, _shown(frontends.BUILT_IN[name], version, cuda)) for name, version in found["front_ends"].items()),
        ("cache", found["cache"] or "none: there is no home folder, and AOTCUDA_CACHE_DIR names none"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def _shown(front_end: frontends.Registration, version: str | None, cuda: int) -> str:
    if version is None:
        return f"not installed: pip install {front_end.requirement(cuda=cuda)!r}"
    package = front_end.package.replace("_", "-")
    return version if package == front_end.name else f"{package} {version}"


def _driver() -> dict[str, Any]:
    try:
        driver = drivers.get()
    except AotcudaError as error:
        return {"cuda": None, "gpus": [], "problem": str(error)}
    gpus = [
        {"index": device.index, "name": device.name, "capability": "{}.{}".format(*device.capability)}
        for device in driver.devices
    ]
    return {"cuda": "{}.{}".format(*driver.version), "gpus": gpus, "problem": None}


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
