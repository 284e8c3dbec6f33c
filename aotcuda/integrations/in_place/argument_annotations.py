"""Annotations that set how a launch copies an array in host memory: `cuda.In`, `cuda.Out` and `cuda.InOut`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard


class Annotation:
    """A host array with a copy annotation.

    Attributes:
        value: The array.
    """

    def __init__(self, value: object) -> None:
        self.value = value


class In(Annotation):
    """Copy the array to the GPU, not back."""


class Out(Annotation):
    """Copy the array back; and to the GPU first, since a kernel may not write all of it."""


class InOut(Annotation):
    """Copy the array both ways."""


def is_annotation(value: object) -> TypeGuard[Annotation]:
    """Return True if a value is an annotation, of this module or of Numba."""
    kind = type(value)
    return isinstance(value, Annotation) or (
        kind.__name__ in ("In", "Out", "InOut") and kind.__module__.endswith("cuda.args")
    )
