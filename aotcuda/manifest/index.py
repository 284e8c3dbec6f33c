"""The index of a long manifest, which lets a launch read a little of it; builds write it beside the manifest.

It is one line of JSON, `index.json`: the keys that loading takes, as they are in the manifest, and for each run of
kernels where their records lie in the manifest's file, with the SHA-256 of those bytes. The manifest itself is the same
with an index and without, so readers that know of none read all of it. `aotcuda.manifest.schema` declares the keys.
"""

from __future__ import annotations

import json
from math import isqrt
from typing import cast, get_type_hints

from aotcuda import manifest as manifests
from aotcuda.errors import ManifestError
from aotcuda.manifest import schema
from aotcuda.manifest.parts import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Head, Index, Manifest, Part

LEAST = 32 << 10
"""Bytes of a manifest that gets an index: reading all of a shorter one takes no longer than opening a second file."""

_A_RUN = 110
"""Bytes that a run of records takes in the index, beside their names."""

_BEGIN, _END = b'\n "kernels": [\n', b"\n ],\n"
_BETWEEN = b"\n  },\n  {\n"


def make(manifest: Manifest, data: bytes) -> bytes | None:
    """The index of a manifest whose file is `data`, as `manifest.dump` gives it; None if it is too short for one."""
    if len(data) < LEAST or not manifest["kernels"]:
        return None
    head = cast("Head", {key: manifest[key] for key in get_type_hints(schema.Head) if key in manifest})  # type: ignore[literal-required]
    index: Index = {
        "format": manifest["format"],
        "floor": manifest["floor"],
        "bytes": len(data),
        "head": head,
        "parts": _parts(manifest, data),
    }
    return (json.dumps(index, sort_keys=True, ensure_ascii=True, separators=(",", ":")) + "\n").encode()


def check(manifest: Manifest, data: bytes, where: str, index: Index) -> None:
    """Hold an index against the manifest that it is of, whose file is `data`.

    Raises:
        ManifestError: It says something else of it.
    """
    outline = Parts(index, data, where)
    records = {kernel["name"]: kernel for kernel in manifest["kernels"]}
    same = outline.names == [*records] and all(outline.kernel(name) == record for name, record in records.items())
    if not same or any(manifest.get(key) != value for key, value in index["head"].items()):
        message = f"{where} was altered: its index says something else of it; install the package again"
        raise ManifestError(message)


def least_run(size: int) -> int:
    """How many bytes of `size` bytes of records to read at once, at least.

    A launch reads the index and one run. Of larger runs it reads more, and smaller ones are more digests in the index:
    together they are the shortest where a run has as many bytes as the index has for all runs.
    """
    return isqrt(_A_RUN * size)


def _parts(manifest: Manifest, data: bytes) -> list[Part]:
    """Runs of records, each of at least `least_run` bytes but for the last one."""
    # Strings in JSON have no line breaks, and what lies deeper is indented by more: these bytes are there once.
    start = data.index(_BEGIN) + len(_BEGIN)
    end = data.index(_END, start)
    names = iter(kernel["name"] for kernel in manifest["kernels"])
    parts: list[Part] = []
    listed: list[str] = []
    at, least = start, least_run(end - start)
    while at < end:
        found = data.find(_BETWEEN, at, end)
        after = end if found < 0 else found + _BETWEEN.index(b",")
        listed.append(next(names))
        if after - start >= least or after == end:
            sha256 = manifests.digest(data[start:after])
            parts.append({"names": listed, "start": start, "end": after, "sha256": sha256})
            listed, start = [], after + len(b",\n")
        at = after + len(b",\n")
    return parts
