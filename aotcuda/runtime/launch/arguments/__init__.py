"""Read the arguments of a launch: an argument's type alone selects the function that reads it.

The reader of an array returns its view, the reader of a number a plain number, and so on. The parameters of
`aotcuda.runtime.launch.arguments.parameter_kinds` then accept or refuse the result.
"""

from __future__ import annotations

from . import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .scalars import Read


def reader(value: object) -> Read | None:
    """Return the function that reads arguments of the type of `value`; None if no parameter accepts the type.

    The function returns the view of an array (None for an array in the host's memory) or a plain number. For other
    values see `other_values.reader`.
    """
    read: Read | None = arrays.reader(value)
    if read is not None:
        return read
    if scalars.is_plain(value):
        return scalars.reader(value)
    from . import other_values  # noqa: PLC0415 (few kernels have such parameters)

    return other_values.reader(value, reader)
