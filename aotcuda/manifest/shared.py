"""Store equal parts of a kernel's overloads once in the manifest's file.

A kernel may have thousands of variants, with few different parameters, launches and resources. In the file a kernel
with `"exact": true` has a list of these parts, `shared`, and its overloads have indices into the list. In memory
overloads have the parts, and equal parts are one object.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .schema import Manifest

_MOST_VALUES = 20_000_000
"""The most values of a kernel in memory."""

_BY_TARGET = ("resources", "launches")
"""The keys of an overload with parts by target."""


def compact(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest in the form of its file."""
    content: dict[str, Any] = {**manifest}
    if any(map(_is_exact, content.get("kernels") or ())):
        content["kernels"] = [_compact(kernel) if _is_exact(kernel) else kernel for kernel in content["kernels"]]
    return content


def _is_exact(kernel: Any) -> bool:
    return isinstance(kernel, dict) and kernel.get("exact") is True


def _compact(kernel: Any) -> dict[str, Any]:
    if "shared" in kernel:
        return kernel  # type: ignore[no-any-return]  # the content of a file, without `expand`
    shared: list[object] = []
    numbers: dict[str, int] = {}

    def number(part: object) -> int:
        index = numbers.setdefault(json.dumps(part, sort_keys=True), len(shared))
        if index == len(shared):
            shared.append(part)
        return index

    overloads = []
    for overload in kernel["overloads"]:
        compacted = {**overload, "parameters": [*map(number, overload["parameters"])]}
        for key in _BY_TARGET:
            if key in overload:
                compacted[key] = {target: number(part) for target, part in overload[key].items()}
        overloads.append(compacted)
    return {**kernel, "shared": shared, "overloads": overloads}


def expand(manifest: Any) -> None:
    """Put the shared parts of a manifest into its overloads.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: It is no manifest, or would take too much memory.
    """
    kernels = manifest.get("kernels")
    for kernel in kernels if isinstance(kernels, list) else ():
        if not isinstance(kernel, dict) or "shared" not in kernel:
            continue
        shared = kernel.pop("shared")
        uses = [0] * len(shared)
        for overload in kernel["overloads"]:
            numbers = overload["parameters"]
            overload["parameters"] = [shared[number] for number in numbers]
            for by_target in [overload[key] for key in _BY_TARGET if key in overload]:
                numbers += by_target.values()
                for target, number in by_target.items():
                    by_target[target] = shared[number]
            for number in numbers:
                uses[number] += 1
        if sum(count * _values_in(part) for count, part in zip(uses, shared, strict=True)) > _MOST_VALUES:
            message = "too many values"
            raise ValueError(message)


def _values_in(part: object) -> int:
    if isinstance(part, dict):
        return 1 + sum(map(_values_in, part.values()))
    return 1 + sum(map(_values_in, part)) if isinstance(part, list) else 1
