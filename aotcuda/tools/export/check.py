"""`aotcuda doctor --triton-cache DIR`: compare exports in a folder with this environment's Triton."""

from __future__ import annotations

import os
from importlib import metadata
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.errors import ConfigError, DependencyError
from aotcuda.tools.export import folder, private_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LAST_WITHOUT_FOLDERS = (3, 6)
"""The last release whose `cuda_utils` is the same for all folders of the driver."""

_SHOWN = 3


def compare(cache: Path) -> dict[str, Any]:
    """Return for each export in a folder the differences for which Triton would not use its entries here.

    Args:
        cache: The folder.

    Returns:
        `{"cache": DIR, "exports": [{"project", "kernels", "problems"}]}`.

    Raises:
        ConfigError: No export is described in the folder.
        DependencyError: Triton is not installed.
        ToolchainError: The installed Triton is not known.
    """
    content = folder.read(cache)
    if content is None:
        message = f"{cache} has no {folder.FILE}; name a folder that `aotcuda export triton-cache` has filled"
        raise ConfigError(message)
    try:
        import triton  # noqa: F401, PLC0415 (only this command needs it)
    except ImportError as error:
        message = "comparing a cache needs the Triton that will read it: pip install triton"
        raise DependencyError(message) from error
    private_parts.check()
    from aotcuda.tools.export.worker import environment  # noqa: PLC0415 (it needs Triton)

    here = environment()
    return {
        "cache": str(cache),
        "exports": [
            {
                "project": export["project"],
                "kernels": len(export["kernels"]),
                "problems": [*_differences(export, here), *_damage(export, cache)],
            }
            for export in content["exports"]
        ],
    }


def render(findings: Mapping[str, Any]) -> str:
    """Return the findings as text."""
    lines = []
    for export in findings["exports"]:
        head = f"{export['project']}, {export['kernels']} variants"
        lines += [f"{head}: {problem}" for problem in export["problems"]] or [f"{head}: Triton reads them here"]
    return "\n".join(lines)


def problem(findings: Mapping[str, Any]) -> str | None:
    """Return one sentence if an export does not fit, else None."""
    bad = [export["project"] for export in findings["exports"] if export["problems"]]
    if not bad:
        return None
    return (
        f"{findings['cache']}: Triton would compile kernels of {', '.join(bad)} here; export them in this environment"
    )


def _differences(export: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    names = {"triton": "Triton", "triton_key": "the digest of Triton's files", "python": "Python"}
    names |= {"extension": "the suffix of extension modules", "platform": "the platform"}
    for key, name in names.items():
        if export[key] != here[key] and (key != "triton_key" or export["triton"] == here["triton"]):
            yield f"it was made for {name} {export[key]}, and this is {here[key]}"
    for name in sorted(export["variables"].keys() | here["variables"].keys()):
        made, now = export["variables"].get(name), here["variables"].get(name)
        if made != now:
            yield f"it was made with {_setting(name, made)}, and here is {_setting(name, now)}"
    for capability, text in export["ptxas"].items():
        now = private_parts.ptxas(int(capability.replace(".", "")))
        if text != now:
            yield f"for {capability} it was made by {_last_line(text)}, and Triton has {_last_line(now)} here"
    for name, version in export["packages"].items():
        installed = _installed(name)
        if installed != version:
            yield f"it was made from {name} {version}, and {installed or 'none'} is installed"
    folders = _folders_of_driver()
    if export["libcuda"] and folders and folders not in export["libcuda"]:
        from aotcuda.builder.frontends.triton.compilation import release  # noqa: PLC0415 (it needs Triton)

        if release(here["triton"]) > _LAST_WITHOUT_FOLDERS:
            where = " ".join(folders)
            yield f"it has no module of C for the driver in {where}; set TRITON_LIBCUDA_PATH in both places"


def _setting(name: str, value: str | None) -> str:
    return f"{name}={value}" if value is not None else f"{name} unset"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _folders_of_driver() -> list[str]:
    from triton.backends.nvidia import driver  # noqa: PLC0415 (after the check that Triton is installed)

    try:
        return list(driver.libcuda_dirs())
    except (AssertionError, OSError):  # there is no driver
        return []


def _damage(export: Mapping[str, Any], cache: Path) -> Iterator[str]:
    """Yield entries that Triton cannot read: missing or changed files, and paths that lead elsewhere."""
    wrong, elsewhere = [], set()
    for entry, files in export["entries"].items():
        for name, digest in files.items():
            path = cache / entry / name
            if not path.is_file():
                wrong.append(f"{entry}/{name} is missing")
            elif manifest.digest(path.read_bytes()) != digest:
                wrong.append(f"{entry}/{name} was changed")
        for name in files:
            elsewhere |= folder.places(cache / entry / name)
    yield from wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        yield f"{len(wrong) - _SHOWN} other files are missing or changed"
    for place in sorted(elsewhere - {os.path.realpath(cache), str(cache.absolute())}):
        yield f"Triton looks for its files in {place}; export with --at {cache.absolute()}, or move the folder there"
