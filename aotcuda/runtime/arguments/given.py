"""What a kernel was given, in words, from its parameter block: the arguments themselves may be gone or out of reach."""

from __future__ import annotations

import struct

from aotcuda.runtime.arguments import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Parameter
    from aotcuda.runtime.arguments.layout import PackedOverload


def given(overload: PackedOverload, block: bytes) -> list[str]:
    """A line for each argument of an overload."""
    return [
        f"argument {number}, {parameter['name']}: {_words(parameter, block)}"
        for number, parameter in enumerate(overload.parameters, 1)
    ]


def _words(parameter: Parameter, block: bytes) -> str:
    kind, offset = parameter["kind"], parameter["offset"]
    if kind == "tuple":
        return f"({', '.join([_words(member, block) for member in parameter['members']])})"
    if kind == "array":
        return _array(parameter, block)
    if kind in ("pointer", "record"):
        (address,) = struct.unpack_from("<Q", block, offset)
        return f"{parameter['type']} at {address:#x}"
    if kind == "complex":
        value: object = complex(*struct.unpack_from(f"<2{parameter['format']}", block, offset))
    else:
        (value,) = struct.unpack_from(f"<{parameter.get('format', 'q')}", block, offset)
    return f"{parameter['type']} {value}"


def _array(parameter: Parameter, block: bytes) -> str:
    words, ndim = parameter["words"], parameter["ndim"]
    numbers = dict(zip(words, struct.unpack_from(f"<{len(words)}q", block, parameter["offset"]), strict=True))
    shape = tuple([numbers[f"shape{axis}"] for axis in range(ndim)])
    itemsize = views.item_bytes(parameter["dtype"])
    name = views.array_name(parameter["dtype"], ndim, parameter["layout"])
    text = f"{name} of shape {shape}"
    if parameter["layout"] == "A" and ndim:
        steps = [numbers.get(f"stride{axis}", numbers.get(f"step{axis}", 0) * itemsize) for axis in range(ndim)]
        text += f" and strides {tuple(steps)} in bytes"
    return f"{text} at {numbers['data'] % (1 << 64):#x}"
