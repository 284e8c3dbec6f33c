"""Describe how a compiled variant is launched: block and shared memory, parameters, and arguments by name."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import code_warnings
from aotcuda.builder.frontends.triton import config, source_function, type_notation
from aotcuda.builder.frontends.triton.compilation import WARP
from aotcuda.errors import CompileError
from aotcuda.manifest import constants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.builder.frontends.triton.source_function import Loaded
    from aotcuda.builder.frontends.triton.type_notation import Type, Value
    from aotcuda.builder.link.ptx_parameters import Field
    from aotcuda.manifest import Argument, FixedLaunch, Parameter

_MOST_THREADS = 1024
SCRATCH = 2
"""The last parameters of Triton's kernels: the addresses of global and of profile scratch memory."""


def fixed_launch(unit: TritonUnit, metadata: Any, target: Target, fields: Sequence[Field]) -> FixedLaunch:
    """Return the block, shared memory, cluster and scratch memory of the kernel's launches.

    Raises:
        CompileError: The kernel needs something that packaged kernels or the target lack.
    """
    if size := getattr(metadata, "profile_scratch_size", 0):
        message = (
            f"{unit.head}: for {target} it needs {size} bytes of profile scratch memory for each block, which "
            "Triton allocates at launches; switch Triton's instrumentation off"
        )
        raise CompileError(message)
    threads = WARP * metadata.num_warps  # warp specialisation may have added warps
    if threads > _MOST_THREADS:
        message = (
            f"{unit.head}: for {target} a block has {threads} threads, and {_MOST_THREADS} are possible; "
            "use fewer warps"
        )
        raise CompileError(message)
    most = code_warnings.most_shared(str(target))
    if metadata.shared > most:
        message = (
            f"{unit.head}: it needs {metadata.shared} bytes of shared memory for a block, and {target} has {most}; "
            "have smaller tiles or fewer stages"
        )
        raise CompileError(message)
    dims = tuple(getattr(metadata, "cluster_dims", None) or (metadata.num_ctas, 1, 1))
    fixed: FixedLaunch = {"threads": threads, "shared": metadata.shared}
    if dims != (1, 1, 1):
        fixed["cluster"] = list(dims)
    if unit.launch_pdl:
        fixed["dependent"] = True
    if size := getattr(metadata, "global_scratch_size", 0):
        offset = fields[-SCRATCH].offset
        fixed["scratch"] = {"bytes": size, "align": metadata.global_scratch_align, "offset": offset}
    return fixed


def parameters(unit: TritonUnit, function: Any, metadata: Any, fields: Sequence[Field]) -> Iterator[Parameter]:
    """Yield the arguments of a launch: the function's parameters in order, then the options, as constants.

    Raises:
        CompileError: Triton's parameters differ from the table's.
    """
    values = source_function.constants(unit, function)
    places = iter(fields)
    types = iter(unit.types)
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    for parameter in function.params:
        name = parameter.name
        if parameter.is_constexpr:
            yield _constant(name, values[name])
            continue
        kind = next(types)
        if kind.scalar == type_notation.NOTHING or kind.hint == 1:
            yield _constant(name, 1 if kind.hint == 1 else None)
            continue
        place = next(places, None)
        if place is None:
            message = f"{unit.head}: Triton's kernel has no parameter for {name}; report this defect of aotcuda, please"
            raise CompileError(message)
        yield (_descriptor(name, kind, place, places, next(maps, None)) if kind.block else _argument(name, kind, place))
    for name, value in unit.launch_options.items():
        yield _constant(name, value)


def _constant(name: str, value: Value) -> Parameter:
    return {
        "name": name,
        "type": f"{name}={value!r}",
        "kind": "constant",
        "offset": 0,
        "value": constants.encode(value),
    }


def _argument(name: str, kind: Type, place: Field) -> Parameter:
    parameter: Parameter
    if kind.pointer:
        parameter = {
            "name": name,
            "type": str(kind),
            "kind": "elements",
            "offset": place.offset,
            "dtype": type_notation.ELEMENTS[kind.scalar],
        }
        if kind.const:
            parameter["readonly"] = True
    else:
        parameter = {
            "name": name,
            "type": str(kind),
            "kind": "number",
            "offset": place.offset,
            "format": type_notation.SCALARS[kind.scalar],
        }
    if kind.hint == source_function.DIVISOR:
        parameter["divisor"] = source_function.DIVISOR
    return parameter


_TENSOR_MAP_TYPES = {8: 10, 9: 8, 10: 9}
"""Numbers of element types in `CUtensorMapDataType`, by the different numbers in Triton's metadata."""


def _descriptor(name: str, kind: Type, place: Field, places: Iterator[Field], tensor_map: Any) -> Parameter:
    """Return the parameter for a tensor descriptor: a tensor map if the target has tensor maps, else an address.

    Shape, strides, and one or two flags follow an address. Shape and strides follow in both cases.
    """
    rank = len(kind.block)
    used = [place, *itertools.islice(places, 2 * rank)]
    if tensor_map is None:
        flags = list(itertools.islice(places, 1))
        rest = list(itertools.islice(places, 1))
        while rest and rest[0].size == 1:
            flags += rest
            rest = list(itertools.islice(places, 1))
        used += [*flags, *rest, *itertools.islice(places, 2 * rank - 1)]
    parameter: Parameter = {
        "name": name,
        "type": str(kind),
        "kind": "descriptor",
        "offset": place.offset,
        "dtype": type_notation.ELEMENTS[kind.scalar],
        "block": list(kind.block),
        "places": [field.offset for field in used],
    }
    if tensor_map is not None:
        element = tensor_map["elem_type"]
        parameter["tensor_map"] = {
            "element": _TENSOR_MAP_TYPES.get(element, element),
            "bytes": tensor_map["elem_size"],
            "swizzle": tensor_map["swizzle"],
            "box": list(tensor_map["block_size"]),
            "padded": bool(tensor_map["fp4_padded"]),
        }
    return parameter


def arguments(unit: TritonUnit, loaded: Loaded) -> Iterator[Argument]:
    """Yield the arguments of a launch by name, with their defaults, and then the options.

    In a generated module, a constant or an option that all variants share has its value as default. Other arguments
    have their default in the source. An argument that an autotuner overrules or a heuristic computes has no default.
    """
    shared = {name: constants.encode(value) for name, value in unit.shared}
    options: dict[str, Any] = dict(unit.shared_options)
    overruled = frozenset(loaded.computed) | (loaded.tuned or frozenset())
    launch_names = {parameter.name for parameter in loaded.function.params} - overruled
    for parameter in loaded.function.params:
        name = parameter.name
        argument: Argument = {"name": name}
        if name in shared and name not in loaded.computed:
            argument["default"] = shared[name]
        elif source_function.is_constant(parameter) and not (parameter.is_constexpr and name in overruled):
            argument["default"] = constants.encode(source_function.default_value(parameter))
        if (condition := loaded.computed.get(name)) is not None and condition[0] in launch_names:
            argument["is_none" if condition[1] else "is_not_none"] = condition[0]
        if not parameter.is_constexpr:
            _add_hints(argument, parameter)
        yield argument
    for name, default in config.ALL_OPTIONS.items():
        yield {"name": name, "default": options.get(name, default), "keyword": True}


def _add_hints(argument: Argument, parameter: Any) -> None:
    """Add the facts that prevent Triton from specialising an argument."""
    hints = source_function.disabled_hints(parameter)
    if annotation := parameter.annotation_type:
        argument["annotation"] = annotation
    if 16 in hints:
        argument["hints"] = "none" if 1 in hints and not annotation else "no alignment"
