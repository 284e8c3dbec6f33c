"""Limit how many bytes a target has when it is unpacked, in proportion to its size.

A small file can claim much: 131 kB of Zstandard may be 4 GiB. Machine code packs to about a third, and PTX to a tenth.
"""

from __future__ import annotations

_SMALLEST, _RATIO = 256 << 20, 16


class TooMuchError(Exception):
    """The target has too many bytes. The message follows the name of the file."""


class Limit:
    """The limit of a target of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._most = self._left = max(_SMALLEST, _RATIO * size)

    def add(self, size: int) -> None:
        """Count `size` unpacked bytes.

        Raises:
            TooMuchError: They are more than the rest of the limit.
        """
        self._left -= size
        if self._left < 0:
            message = f"holds more than {self._most:,} bytes when it is unpacked, the most that aotcuda inspects"
            raise TooMuchError(message)
