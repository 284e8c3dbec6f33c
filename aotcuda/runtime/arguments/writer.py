"""What `Kind.write` writes a fast path with, for type checkers; `aotcuda.runtime.fast.python` has it."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Parameter


class Writer(Protocol):
    """The checks and the numbers of one overload's arguments, as they are written down."""

    def check(self, condition: str) -> None:
        """Decline unless a condition holds."""

    def compute(self, letter: str, expression: str) -> str:
        """Have an expression computed; the name of a variable for it, which begins with `letter`."""

    def keep(self, letter: str, value: object) -> str:
        """Have a value at hand; the name for it, likewise."""

    def pack(self, *expressions: str) -> None:
        """Have numbers written to the block."""

    def number(self, name: str, arg: object) -> str:
        """The expression that reads a number of the type of `arg`, the variable `name`."""

    def array(self, name: str, parameter: Parameter, array: object) -> None:
        """An array's checks and numbers; `array` is one like those to come."""

    def elements(self, name: str, parameter: Parameter, array: object) -> None:
        """Those of an array of which the kernel takes the elements alone."""

    def parameters(self, tuple_: str, members: list[Parameter], args: tuple[object, ...]) -> None:
        """Those of a tuple's members."""
