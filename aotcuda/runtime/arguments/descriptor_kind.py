"""The kind of parameter that accepts Triton's tensor descriptors."""

from __future__ import annotations

import aotcuda
from aotcuda.runtime.arguments import arrays, descriptors
from aotcuda.runtime.arguments.parameter_kinds import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.manifest import Parameter
    from aotcuda.runtime.arguments.descriptors import Descriptor
    from aotcuda.runtime.arguments.parameter_kinds import Fields, Fit


_MOST_KNOWN = 256


class TensorDescriptor(Kind):
    """A tensor descriptor of one dtype and block shape."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return 0 if arrays.is_descriptor(type(value)) else None

    def fit(self, parameter: Parameter) -> Fit:
        dtype, block, tensor_map = parameter["dtype"], tuple(parameter["block"]), parameter.get("tensor_map")
        flags, name = len(parameter["places"]) - 4 * len(block) - 1, parameter["name"]
        known: dict[tuple[object, ...], bytes] = {}  # tensor maps, by the properties that they encode

        def fit(given: Descriptor | None, values: list[object]) -> bool:
            if given is None or given.dtype != dtype or given.block != block or not _is_regular(given):
                return False
            if tensor_map is None:
                values += [given.address, *given.shape, *given.strides]
                values += [given.pads_with_nan, given.rounds_to_tf32][:flags]
            else:
                key = given.address, given.shape, given.strides, given.pads_with_nan, given.rounds_to_tf32
                data = known.get(key)
                if data is None:
                    data = descriptors.encode(tensor_map, given)
                    if data is None:
                        raise aotcuda.errors.ArgumentError(_refused(name, given))
                    if len(known) >= _MOST_KNOWN:
                        known.clear()
                    known[key] = data
                values.append(data)
            values += [*given.shape, *given.strides]
            return True

        return fit

    def fields(self, parameter: Parameter) -> Fields:
        rank, places = len(parameter["block"]), parameter["places"]
        begin = f"{descriptors.BYTES}s" if "tensor_map" in parameter else "Q"
        flags = "?" * (len(places) - 4 * rank - 1)
        middle = "" if "tensor_map" in parameter else f"{'q' * (2 * rank)}{flags}"
        forms = [begin, *middle, *("i" * rank), *("q" * rank)]
        return [(place, form, form == "Q") for place, form in zip(places, forms, strict=True)]

    def problem(self, parameter: Parameter, arg: object, read: Any) -> str | None:
        given: Descriptor | None = read
        if given is None:
            return "is a tensor descriptor of an array in the host's memory; copy the array to the GPU"
        if given.dtype != parameter["dtype"] or given.block != tuple(parameter["block"]):
            found = f"{given.dtype} elements and block shape {list(given.block)}"
            return f"is a tensor descriptor with {found}, where {self.wanted(parameter)}"
        return None if _is_regular(given) else f"is a tensor descriptor with {_shown(given)}, which no kernel takes"

    def wanted(self, parameter: Parameter) -> str:
        return f"{parameter['type']} is packaged"


def _is_regular(given: Descriptor) -> bool:
    """Return True if shape and strides have as many dimensions as the block, and the last one is contiguous."""
    return len(given.shape) == len(given.strides) == len(given.block) and given.strides[-1] == 1


def _shown(given: Descriptor) -> str:
    return f"shape {list(given.shape)}, strides {list(given.strides)} and block shape {list(given.block)}"


def _refused(name: str, given: Descriptor) -> str:
    return (
        f"{name} is a tensor descriptor with {_shown(given)} at {given.address:#x}, which the driver refuses; "
        "align address and strides to 16 bytes"
    )
