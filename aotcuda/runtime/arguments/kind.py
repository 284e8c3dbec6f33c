"""What a kind of parameter does; `aotcuda.runtime.arguments.parameters` and `other_parameters` have the kinds.

Numbers and arrays do all of it, and launches of kernels that take nothing else do without this. The other kinds are
subclasses: what a kind has no way of its own for is here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from aotcuda.manifest import Parameter

    Fit = Callable[[Any, list[object]], bool]
    Fields = list[tuple[int, str, bool]]
else:
    Protocol = object  # typing takes milliseconds


class Kind(Protocol):
    """What a kind of parameter does; `parameter` is its entry in the manifest."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        """How near it is to a value's type: 0 is best; None means it never takes such a value."""
        raise NotImplementedError

    def fit(self, parameter: Parameter) -> Fit:
        """The function that appends, from what was read of an argument, the numbers of `fields`; or answers False."""
        raise NotImplementedError

    def fields(self, parameter: Parameter) -> Fields:
        """Return offset, `struct` character and whether it is an array's address, of each number in the block.

        Words that are always zero are none of them: packing fills the gaps with zeros.
        """
        raise NotImplementedError

    def problem(self, parameter: Parameter, arg: object, read: object) -> str | None:
        """Why it does not take an argument of which that was read; None if it does."""
        raise NotImplementedError

    def wanted(self, parameter: Parameter) -> str:
        """What it takes, for an error: the end of "is float where int32 is packaged"."""
        dtype = parameter.get("dtype")
        return f"{parameter['type']} is packaged{f' ({dtype})' if dtype else ''}"

    def is_exact(self, parameter: Parameter, arg: object) -> bool:
        """Whether every value of this argument's type that it takes would itself be JIT-compiled to such a parameter.

        What was compiled before must not decide what a launch gets: a parameter for any strides would take contiguous
        arrays too, and one for large ints the small ones.
        """
        return True

    def given(self, parameter: Parameter, block: bytes) -> str:
        """What a kernel was given, in words, from its parameter block."""
        raise NotImplementedError

    def record(self, parameter: Parameter) -> tuple[object, ...] | None:
        """The parameter for the extension: kind, format, offset, layout, ndim, itemsize, writable, words, dtype.

        Where it is more than that, also: sizes, divisor, least, most, value. None if the extension does not take it.
        """
        return None
