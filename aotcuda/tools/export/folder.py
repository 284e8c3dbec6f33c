"""Add entries to a folder that Triton reads as its cache, and describe them in a JSON file and a README beside them."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.common import foreign, gpu_facts
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE, README = "aotcuda-export.json", "README.md"
FORMAT, VERSION = "aotcuda triton cache", 1
_GROUP = "__grp__"
_HEAD = "# A cache for Triton, filled by `aotcuda export triton-cache`"
_LARGEST = 256 << 20


def read(folder: Path) -> dict[str, Any] | None:
    """Return the description of the exports in a folder; None if there is none.

    Raises:
        ConfigError: The file is damaged, or of another version.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(foreign.content(path, _LARGEST))
        is_valid = content["format"] == FORMAT and all(isinstance(item["entries"], dict) for item in content["exports"])
    except (foreign.UnreadableError, ValueError, LookupError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        message = f"{path} is no description of an export; remove it, or name another folder"
        raise ConfigError(message)
    if content.get("version") != VERSION:
        message = f"{path} has version {content.get('version')}, and this aotcuda reads version {VERSION}; remove it"
        raise ConfigError(message)
    return content  # type: ignore[no-any-return]


def add_entries(cache: Path, out: Path, at: str) -> dict[str, dict[str, str]]:
    """Add the entries of a new cache to a folder; return the digests of their files, by entry and name of the file.

    An entry that the folder has stays as it is. The file that makes an entry complete for Triton is written last.

    Args:
        cache: A cache that only this export has written.
        out: The folder.
        at: The path that the folder will have when Triton reads it.
    """
    entries: dict[str, dict[str, str]] = {}
    for source in sorted(path for path in cache.iterdir() if path.is_dir()):
        files = sorted((path for path in source.iterdir() if path.is_file()), key=lambda path: _is_group(path.name))
        target = out / source.name
        kept = any(_is_group(path.name) and _is_complete(target / path.name, at) for path in files)
        entries[source.name] = {}
        for path in files:
            data = path.read_bytes()
            if _is_group(path.name):
                paths = {name: f"{at}/{source.name}/{name}" for name in json.loads(data)["child_paths"]}
                data = json.dumps({"child_paths": paths}).encode()
            place = target / path.name
            if not kept and (_is_group(path.name) or not place.exists()):
                target.mkdir(parents=True, exist_ok=True)
                write(place, data)
            if place.exists():  # an entry stored with TRITON_STORE_BINARY_ONLY has fewer files
                entries[source.name][path.name] = manifest.digest(place.read_bytes())
    return entries


def _is_group(name: str) -> bool:
    return name.startswith(_GROUP)


def _is_complete(group: Path, at: str) -> bool:
    """Return True if a folder has an entry that Triton reads there, or at `at`."""
    try:
        paths = json.loads(group.read_bytes())["child_paths"]
        return all(
            Path(path).exists() or (path == f"{at}/{group.parent.name}/{name}" and (group.parent / name).exists())
            for name, path in paths.items()
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def places(group: Path) -> set[str]:
    """Return the folders of caches in which Triton looks for the files of an entry; none for other files."""
    if not _is_group(group.name):
        return set()
    try:
        return {str(Path(path).parent.parent) for path in json.loads(group.read_bytes())["child_paths"].values()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


def write(path: Path, data: bytes) -> None:
    """Write a file at once: readers see the old content, or the new content."""
    temporary = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)  # noqa: PTH105 (pathlib's has the same effect)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def describe(out: Path, at: str, export: dict[str, Any]) -> bool:
    """Write the description of an export, and the README; return False if the folder has another README.

    An earlier export of the same project for the same environment is extended.
    """
    content = read(out) or {"format": FORMAT, "version": VERSION, "exports": []}
    exports = [item for item in content["exports"] if _identity(item) != _identity(export)]
    for item in content["exports"]:
        if _identity(item) == _identity(export):
            export = _merged(item, export)
    exports = sorted([*exports, export], key=lambda item: json.dumps(_identity(item), sort_keys=True))
    text = json.dumps({**content, "exports": exports}, indent=1, sort_keys=True)
    write(out / FILE, f"{text}\n".encode())
    readme = out / README
    if readme.exists() and not readme.read_bytes().startswith(_HEAD.encode()):
        return False
    write(readme, _readme(at, exports).encode())
    return True


def _identity(export: dict[str, Any]) -> dict[str, Any]:
    described = ("kernels", "entries", "left_out", "timings", "ptxas", "libcuda")
    return {key: value for key, value in export.items() if key not in described}


def _merged(before: dict[str, Any], export: dict[str, Any]) -> dict[str, Any]:
    merged = {**export, "entries": before["entries"] | export["entries"], "ptxas": before["ptxas"] | export["ptxas"]}
    for key in ("kernels", "timings"):
        items = {json.dumps(item, sort_keys=True): item for item in (*before[key], *export[key])}
        merged[key] = [items[text] for text in sorted(items)]
    return merged


def _readme(at: str, exports: Iterable[dict[str, Any]]) -> str:
    exports = [*exports]
    timed = "export TRITON_CACHE_AUTOTUNING=1  # autotuners read their timings"
    timing_lines = [timed] if any(item["timings"] for item in exports) else []
    lines = [
        *(_HEAD, "", f"Triton reads this folder if its path is `{at}` and this variable is set:", ""),
        *("```", f"export TRITON_CACHE_DIR={at}", *timing_lines, "```", ""),
        "Another release of Triton or Python, another wheel of a package, another assembler or another value of a",
        "variable below misses without a message, and Triton compiles. A miss in a folder that cannot be written is an",
        f"error of Triton. This command compares, and `{FILE}` lists all entries with digests:",
        *("", "```", f"aotcuda doctor --triton-cache {at}", "```", ""),
    ]
    for item in exports:
        lines += [f"## {item['project']}", "", *(f"- {text}" for text in _facts(item)), ""]
    return "\n".join(lines)


def _facts(export: dict[str, Any]) -> Iterator[str]:
    variables = ", ".join(f"{name}={value}" for name, value in export["variables"].items())
    yield f"Triton {export['triton']}, Python {export['python']}, {export['platform']}"
    yield f"variables of Triton: {variables or 'none'}"
    capabilities = ", ".join(sorted({kernel["capability"] for kernel in export["kernels"]}, key=gpu_facts.pair))
    yield f"{len(export['kernels'])} variants for compute capability {capabilities or 'none'}"
    packages = ", ".join(f"{name} {version}" for name, version in export["packages"].items())
    yield f"packages: {packages or 'none that is installed'}"
    yield f"modules of C: {'compiled' if export['has_launchers'] else 'Triton compiles them at the first launch'}"
    if export["libcuda"]:
        folders = ", ".join(" ".join(each) for each in export["libcuda"])
        yield f"folders of the driver: {folders}; for others, set TRITON_LIBCUDA_PATH for the export and for Triton"
    yield from sorted({f"timings of {timing['gpu']}: {timing['kernel']}" for timing in export["timings"]})
