"""The kind of parameter that accepts Triton's tensor descriptors."""

from __future__ import annotations

from ... import errors
from . import arrays, descriptors
from .parameter_kinds import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....manifest import Parameter
    from .descriptors import Descriptor
    from .parameter_kinds import Fields, Fit


_MOST_MAPS = 256


class TensorDescriptor(Kind):
    """A tensor descriptor of one dtype and block shape."""

    def rank(self, parameter: Parameter, value: object) -> int | None:
        return 0 if arrays.is_descriptor(type(value)) else None

    def fit(self, parameter: Parameter) -> Fit:
        dtype, block, tensor_map = parameter["dtype"], tuple(parameter["block"]), parameter.get("tensor_map")
        flags, name = len(parameter["places"]) - 4 * len(block) - 1, parameter["name"]
        encoded_maps: dict[tuple[object, ...], bytes] = {}  # by the properties that a tensor map encodes

        def fit(read: Descriptor | None, values: list[object]) -> bool:
            if read is None or read.dtype != dtype or read.block != block or not _is_regular(read):
                return False
            if tensor_map is None:
                values += [read.address, *read.shape, *read.strides]
                values += [read.pads_with_nan, read.rounds_to_tf32][:flags]
            else:
                key = read.address, read.shape, read.strides, read.pads_with_nan, read.rounds_to_tf32
                data = encoded_maps.get(key)
                if data is None:
                    data = descriptors.encode(tensor_map, read)
                    if data is None:
                        raise errors.ArgumentError(_driver_refusal(name, read))
                    if len(encoded_maps) >= _MOST_MAPS:
                        encoded_maps.clear()
                    encoded_maps[key] = data
                values.append(data)
            values += [*read.shape, *read.strides]
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
        descriptor: Descriptor | None = read
        if descriptor is None:
            return "is a tensor descriptor of an array in the host's memory; copy the array to the GPU"
        if descriptor.dtype != parameter["dtype"] or descriptor.block != tuple(parameter["block"]):
            properties = f"{descriptor.dtype} elements and block shape {list(descriptor.block)}"
            return f"is a tensor descriptor with {properties}, where {self.describe(parameter)}"
        if _is_regular(descriptor):
            return None
        return f"is a tensor descriptor with {_describe(descriptor)}, which no kernel takes"

    def describe(self, parameter: Parameter) -> str:
        return f"{parameter['type']} is packaged"


def _is_regular(descriptor: Descriptor) -> bool:
    """Return True if shape and strides have as many dimensions as the block, and the last one is contiguous."""
    dimensions = len(descriptor.block)
    return len(descriptor.shape) == len(descriptor.strides) == dimensions and descriptor.strides[-1] == 1


def _describe(descriptor: Descriptor) -> str:
    shape, strides = list(descriptor.shape), list(descriptor.strides)
    return f"shape {shape}, strides {strides} and block shape {list(descriptor.block)}"


def _driver_refusal(name: str, descriptor: Descriptor) -> str:
    return (
        f"{name} is a tensor descriptor with {_describe(descriptor)} at {descriptor.address:#x}, which the driver "
        "refuses; align address and strides to 16 bytes"
    )
