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
        several = f" {self.variants} variants" if self.variants > 1 else ""
        return f"{self.kernel} for {self.target}{several and ','}{several}: {self.reason}"


def left_out(notes: Iterable[manifest.LeftOut]) -> tuple[LeftOut, ...]:
    """Group a manifest's notes by kernel and target."""
    found: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        found.setdefault((note["kernel"], note["target"]), []).append(note["reason"])
    return tuple(LeftOut(kernel, target, len(reasons), reasons[0]) for (kernel, target), reasons in found.items())
