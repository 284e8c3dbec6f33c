"""Read the arguments of a launch: an argument's type alone selects the function that reads it.

An array gives its view, a number a plain one, and so on. The parameters of
`aotcuda.runtime.arguments.parameter_kinds` then take it, or do not.
"""

from __future__ import annotations

from aotcuda.runtime.arguments import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.scalars import Read


def reader(value: object) -> Read | None:
    """Return the function that reads arguments of the type of `value`; None if no parameter takes such.

    An array gives its view (None on the host), a number a plain one, other values the result of `values.reader`.
    """
    found: Read | None = arrays.reader(value)
    if found is not None:
        return found
    if scalars.is_plain(value):
        return scalars.reader(value)
    from aotcuda.runtime.arguments import other_values  # noqa: PLC0415 (most kernels take none)

    return other_values.reader(value, reader)
