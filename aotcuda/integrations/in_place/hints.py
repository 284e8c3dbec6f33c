"""How an array in the host's memory is copied for a launch: `cuda.In`, `cuda.Out` and `cuda.InOut`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard


class Hint:
    """A host array with a hint.

    Attributes:
        value: The array.
    """

    def __init__(self, value: object) -> None:
        self.value = value


class In(Hint):
    """It is copied to the GPU, and not back."""


class Out(Hint):
    """It is copied back; and to the GPU first, since a kernel may not write all of it."""


class InOut(Hint):
    """It is copied both ways."""


def is_hint(value: object) -> TypeGuard[Hint]:
    """Whether a value is such a hint, of this module or of Numba's."""
    kind = type(value)
    return isinstance(value, Hint) or (
        kind.__name__ in ("In", "Out", "InOut") and kind.__module__.endswith("cuda.args")
    )
