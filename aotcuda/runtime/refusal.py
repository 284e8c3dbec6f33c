"""What to tell a caller whose arguments no overload takes: the first line is complete in itself, lists follow it."""

from __future__ import annotations

import os
import struct

from aotcuda.errors import ArgumentError
from aotcuda.runtime import arrays, scalars
from aotcuda.runtime.plan import converter, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Parameter
    from aotcuda.runtime.plan import Plan


def refusal(where: str, plans: list[Plan], args: tuple[object, ...]) -> ArgumentError:
    """The error for arguments that none of the overloads of kernel `where` takes."""
    lists = "\n  ".join(
        [
            f"\n  passed:   ({', '.join(map(_name, args))})",
            *(f"packaged: {plan.overload['signature']}" for plan in plans),
        ]
    )
    counts = sorted({len(plan.parameters) for plan in plans})
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        plural = "" if wanted == "1" else "s"
        return ArgumentError(f"{where} takes {wanted} argument{plural}, got {len(args)}{lists}")
    problems = min((_problems(plan, args) for plan in plans if len(plan.parameters) == len(args)), key=len)
    if len(plans) > 1 and not any(map(arrays.is_host, args)):
        first = f"no packaged signature of {where} takes these arguments; in the nearest one, {problems[0]}"
    else:
        first = f"{where}: {problems[0]}"
    return ArgumentError(first + lists)


def _problems(plan: Plan, args: tuple[object, ...]) -> list[str]:
    """What is wrong with each argument that the overload does not take."""
    found = []
    for number, (parameter, arg) in enumerate(zip(plan.parameters, args, strict=True), 1):
        problem = _problem(parameter, arg)
        if problem is not None:
            found.append(f"argument {number}, {parameter['name']}, {problem}")
    return found or ["the arguments could not be packed"]


def _problem(parameter: Parameter, arg: object) -> str | None:
    """What is wrong with one argument, None if nothing is."""
    if parameter["kind"] == "tuple":
        return _tuple_problem(parameter, arg)
    if arrays.is_host(arg):
        what = "a record" if hasattr(arg, "setfield") and not hasattr(arg, "ctypes") else "an array"
        copied = _type(arg).startswith("numpy.") and os.environ.get("AOTCUDA_HOST_ARRAYS") != "copy"
        way = " (or set AOTCUDA_HOST_ARRAYS=copy)" if copied else ""
        return f"is {what} in the host's memory ({_type(arg)}); copy it to the GPU first, as cupy.asarray does{way}"
    if parameter["kind"] == "array":
        return _array_problem(parameter, arg)
    if parameter["kind"] in ("record", "datetime", "type"):
        fits = rank(parameter, arg) is not None and converter(parameter, arg)(arg, [], [], 0)
        return None if fits else f"is {_name(arg)} where {parameter['type']} is packaged ({parameter['dtype']})"
    if rank(parameter, arg) is None:
        return f"is {_name(arg)} where {parameter['type']} is packaged"
    values: list[object] = []
    fits = converter(parameter, arg)(arg, values, [], 0)
    try:
        struct.pack(f"<{len(values)}{parameter.get('format', 'Q')}", *values)
    except (struct.error, OverflowError):
        fits = False
    return None if fits else f"is {arg!r}, which is out of range for {parameter['type']}"


def _tuple_problem(parameter: Parameter, arg: object) -> str | None:
    members = parameter["members"]
    if not isinstance(arg, tuple) or len(arg) != len(members):
        return f"is {_name(arg)} where a tuple of {len(members)} is packaged: {parameter['type']}"
    problems = [_problem(member, item) for member, item in zip(members, arg, strict=True)]
    return next((f"in its item {at}, {problem}" for at, problem in enumerate(problems) if problem), None)


def _array_problem(parameter: Parameter, arg: object) -> str | None:
    wanted = arrays.array_name(parameter["dtype"], parameter["ndim"], parameter["layout"])
    read = arrays.reader(arg)
    view = read(arg, [], 0) if read else None
    if view is None:
        return f"is {_name(arg)} where {wanted} is packaged"
    typestr, _, shape, strides, readonly = view
    if arrays.canonical(typestr) != parameter["dtype"] or len(shape) != parameter["ndim"]:
        return f"is {arrays.view_name(view)} where {wanted} is packaged"
    layout = parameter["layout"]
    itemsize = arrays.item_bytes(typestr)
    if strides is None:
        strides = arrays.contiguous_strides(shape, itemsize, "C")
    if layout != "A" and not arrays.is_contiguous(shape, strides, itemsize, layout):
        return (
            f"has shape {tuple(shape)} and strides {tuple(strides)} in bytes, which is not contiguous in {layout} "
            f"order as {wanted} promises; pass a contiguous copy"
        )
    if readonly and not parameter.get("readonly", False):
        return f"is read-only, and {wanted} was compiled as writable; pass a writable array"
    return None


def _name(arg: object) -> str:
    """An argument's type as signatures would write it."""
    read = arrays.reader(arg)
    view = read(arg, [], 0) if read else None
    if view is not None:
        return arrays.view_name(view)
    if isinstance(arg, tuple):
        return f"({', '.join(map(_name, arg))})"
    stands_for = scalars.type_of(arg)
    if stands_for is not None:
        return f"the type {arrays.type_name(stands_for)}"
    if not arrays.is_host(arg):
        dtype = getattr(arg, "dtype", None)
        return str(dtype) if dtype is not None and scalars.kind_of(arg) else _type(arg)
    return f"host {_type(arg)}"


def _type(arg: object) -> str:
    kind = type(arg)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
