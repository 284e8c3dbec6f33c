"""`aotcuda cache dir`, `list` and `clear`."""

from __future__ import annotations

import time
from collections import Counter

from aotcuda.builder.cache import archive, settings
from aotcuda.cache import entries, folder
from aotcuda.cache.entries import Files
from aotcuda.common.foreign import excerpt
from aotcuda.errors import AotcudaError, TargetError
from aotcuda.runtime.jit import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from aotcuda.cache.entries import Entry

_KINDS = {
    "build": "whole builds",
    "code": "results of code generators",
    "declarations": "declarations of CUDA C++ files",
    "damaged": "damaged, to be replaced",
}
"""The kinds of build cache entries in words."""

_RECORD_KEYS = ("module", "kernel", "signature", "target")
"""The keys of an entry's record in the JIT cache that the list has."""


def cache_dir() -> Iterator[str]:
    """Yield the folder of the JIT cache, which may not exist; by default it contains the build cache too.

    Raises:
        TargetError: There is no folder, because there is no home folder.
    """
    yield _root()


def cache_list() -> Iterator[str]:
    """Yield a line for each entry of the JIT cache, the last used first; then totals of both caches.

    Raises:
        TargetError: There is no folder, or it cannot be used.
        ConfigError: `AOTCUDA_CACHE_SIZE` is no size, or `AOTCUDA_BUILD_CACHE` no place.
    """
    jit_entries = sorted(entries.entries(_jit_cache()), key=lambda entry: -entry.used)
    rows = [("SIZE", "USED", "TARGET", "KERNEL", "ENTRY"), *map(_row, jit_entries)]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for size, used, target, kernel, key in rows if jit_entries else ():
        columns = (size.rjust(widths[0]), used.rjust(widths[1]), target.ljust(widths[2]), kernel.ljust(widths[3]), key)
        yield "  ".join(columns)
    cap = size_text(entries.size_cap())
    total = sum(entry.bytes for entry in jit_entries)
    yield f"{entry_count(len(jit_entries))}, {size_text(total)} of at most {cap}, in {_root()}"
    builds = settings.configured_folder()
    if builds is None:
        return
    build_entries = entries.entries(_files(builds, archive.NAMES))
    kinds = Counter("damaged" if entry.record is None else str(entry.record.get("kind")) for entry in build_entries)
    total = sum(entry.bytes for entry in build_entries)
    counts = ", ".join(f"{kinds[kind]} {text}" for kind, text in _KINDS.items() if kinds[kind])
    details = f" ({counts})" if counts else ""
    yield f"{entry_count(len(build_entries))} of builds{details}, {size_text(total)} of at most {cap}, in {builds}"


def cache_clear() -> Iterator[str]:
    """Remove all entries of both caches, and yield a line with their number.

    Raises:
        TargetError: There is no folder, or one of the two cannot be used; nothing is removed.
        ConfigError: `AOTCUDA_BUILD_CACHE` is no place.
    """
    builds = settings.configured_folder()
    build_cache = _files(builds, archive.NAMES) if builds is not None else None
    count, size = entries.clear(_jit_cache())
    yield f"{entry_count(count)}, {size_text(size)}, removed from {_root()}"
    if build_cache is not None:
        count, size = entries.clear(build_cache)
        yield f"{entry_count(count)} of builds, {size_text(size)}, removed from {builds}"


def totals() -> dict[str, dict[str, Any]]:
    """Return folder, number of entries, bytes and problem of the JIT cache and the build cache."""
    return {
        "fallback": _totals(folder.folder, cache.NAMES),
        "builds": _totals(settings.configured_folder, archive.NAMES),
    }


def _totals(find_folder: Callable[[], str | None], names: Iterable[str]) -> dict[str, Any]:
    totals: dict[str, Any] = {"folder": None, "entries": None, "bytes": None, "problem": None}
    try:
        root = totals["folder"] = find_folder()
        if root is not None:
            listed = entries.entries(_files(root, names))
            totals |= {"entries": len(listed), "bytes": sum(entry.bytes for entry in listed)}
    except AotcudaError as error:
        totals["problem"] = str(error)
    return totals


def _root() -> str:
    root = folder.folder()
    if root is None:
        message = "there is no cache, because there is no home folder; AOTCUDA_CACHE_DIR can name one"
        raise TargetError(message)
    return root


def _jit_cache() -> Files:
    return _files(_root(), cache.NAMES)


def _files(root: str, names: Iterable[str]) -> Files:
    problem = folder.problem(root, f"{root}/{entries.VERSION}")
    if problem is not None:
        message = f"{problem}; it is not used as a cache"
        raise TargetError(message)
    return Files(root, names)


def _row(entry: Entry) -> tuple[str, str, str, str, str]:
    record = entry.record
    if record is None or not all(isinstance(record.get(name, ""), str | None) for name in _RECORD_KEYS):
        kernel = "damaged, to be replaced when it is next needed"
        return size_text(entry.bytes), _age(entry.used), "?", kernel, entry.key
    module, kernel, signature, target = (record.get(name) or "" for name in _RECORD_KEYS)
    name = f"{module}.{kernel} {signature}" if kernel else f"{module}, all kernels"
    return size_text(entry.bytes), _age(entry.used), excerpt(target), excerpt(name), entry.key


def entry_count(count: int) -> str:
    """Return the number of entries in words."""
    return f"{count} {'entry' if count == 1 else 'entries'}"


def size_text(count: float) -> str:
    """Return a number of bytes as text: `1.4 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _age(used: float) -> str:
    seconds = max(time.time() - used, 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
