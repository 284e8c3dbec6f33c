"""List the kernels that a module's images for some targets lack, one line for each kernel and target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda import manifest


class LeftOut(NamedTuple):
    """Variants of a kernel that cannot be compiled for a target.

    Attributes:
        kernel: The kernel.
        target: The target.
        variants: Their number.
        reason: The reason of the first one.
    """

    kernel: str
    target: str
    variants: int
    reason: str

    def __str__(self) -> str:
        variants = f", {self.variants} variants" if self.variants > 1 else ""
        return f"{self.kernel} for {self.target}{variants}: {self.reason}"


def left_out(entries: Iterable[manifest.LeftOut]) -> tuple[LeftOut, ...]:
    """Group a manifest's entries by kernel and target."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry["kernel"], entry["target"]), []).append(entry["reason"])
    return tuple(LeftOut(kernel, target, len(reasons), reasons[0]) for (kernel, target), reasons in groups.items())
