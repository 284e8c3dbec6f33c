"""Read the arguments of a launch: an argument's type alone selects the function that reads it.

The reader of an array returns its view, the reader of a number a plain number, and so on. The parameters of
`aotcuda.runtime.arguments.parameter_kinds` then accept or refuse the result.
"""

from __future__ import annotations

from aotcuda.runtime.arguments import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.scalars import Read


def reader(value: object) -> Read | None:
    """Return the function that reads arguments of the type of `value`; None if no parameter accepts the type.

    It returns the view of an array (None for an array in the host's memory), a plain number, or for other values the
    result of `other_values.reader`.
    """
    found: Read | None = arrays.reader(value)
    if found is not None:
        return found
    if scalars.is_plain(value):
        return scalars.reader(value)
    from aotcuda.runtime.arguments import other_values  # noqa: PLC0415 (few kernels have such parameters)

    return other_values.reader(value, reader)
