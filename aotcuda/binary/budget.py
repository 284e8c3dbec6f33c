"""Limit how much of a target is unpacked, read and listed, in proportion to the target's size.

A small file can claim much: 131 kB of Zstandard may be 4 GiB, and 40,000 symbols may share a name of a megabyte.
Code that reads a target therefore spends from the budget first. The output of compilers stays far below it. A target
of at most 16 MB that exceeds the budget is refused within 5 seconds and 1 GiB.
"""

from __future__ import annotations

_LIMITS = {
    # Machine code packs to about a third and PTX to a tenth.
    "bytes": (256 << 20, 16, "bytes when it is unpacked"),
    "ptx": (32 << 20, 2, "bytes of PTX when it is unpacked"),
    # Sections, symbols, attributes, lines of the report: about a microsecond for each item.
    "items": (2_000_000, 1 / 8, "parts to read and to list"),
    "text": (16 << 20, 1 / 4, "bytes of names"),
}
"""For each resource: the amount for any target, the amount for each of its bytes, and the noun."""


class TooMuchError(Exception):
    """The budget is spent. The message follows the name of the file."""


class Budget:
    """The budget of a target of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._limits = {name: max(floor, int(ratio * size)) for name, (floor, ratio, _) in _LIMITS.items()}
        self._left = dict(self._limits)

    def spend(self, resource: str, amount: int) -> None:
        """Spend `amount` of the `bytes`, `ptx`, `items` or `text`.

        Raises:
            TooMuchError: The amount is more than the rest of the budget.
        """
        if amount > self._left[resource]:
            message = (
                f"holds more than {self._limits[resource]:,} {_LIMITS[resource][2]}, the most that aotcuda inspects"
            )
            raise TooMuchError(message)
        self._left[resource] -= amount
