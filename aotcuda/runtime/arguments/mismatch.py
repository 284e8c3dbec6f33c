"""What to tell a caller whose arguments no overload takes: the first line is complete in itself, lists follow it."""

from __future__ import annotations

import os

from aotcuda.errors import ArgumentError
from aotcuda.runtime.arguments import arrays, parameters, scalars, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Parameter
    from aotcuda.runtime.arguments.layout import Plan


def refusal(where: str, plans: list[Plan], args: tuple[object, ...]) -> ArgumentError:
    """The error for arguments that none of the overloads of kernel `where` takes."""
    lists = _lists(plans, args)
    counts = sorted({len(plan.parameters) for plan in plans})
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        plural = "" if wanted == "1" else "s"
        return ArgumentError(f"{where} takes {wanted} argument{plural}, got {len(args)}{lists}")
    try:
        problems = min((_problems(plan, args) for plan in plans if len(plan.parameters) == len(args)), key=len)
        several = len(plans) > 1 and not any(map(arrays.is_host, args))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 (it was readable before: an object that changes)
        return unreadable(where, plans, args, None, error)
    if several:
        first = f"no packaged signature of {where} takes these arguments; in the nearest one, {problems[0]}"
    else:
        first = f"{where}: {problems[0]}"
    return ArgumentError(first + lists)


def unreadable(
    where: str, plans: list[Plan], args: tuple[object, ...], at: int | None, error: Exception
) -> ArgumentError:
    """The error for an argument that cannot be read: the one at index `at`, or the first one of which that is true."""
    if at is None:
        at = next((index for index, arg in enumerate(args) if _name(arg) is None), None)
    names = [plan.parameters[at]["name"] for plan in plans if at is not None and at < len(plan.parameters)]
    which = f"argument {at + 1}, {names[0]}," if at is not None and names else "an argument"
    problem = error if isinstance(error, views.UnreadableError) else views.UnreadableError.of(error)
    return ArgumentError(f"{where}: {which} {problem}{_lists(plans, args)}")


def name_of(arg: object) -> str:
    """An argument's type as signatures would write it; the name of its class if it cannot be read."""
    return _name(arg) or _type(arg)


def _lists(plans: list[Plan], args: tuple[object, ...]) -> str:
    lines = [f"\n  passed:   ({', '.join(map(name_of, args))})"]
    return "\n  ".join([*lines, *(f"packaged: {plan.overload['signature']}" for plan in plans)])


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
    kind = parameters.of(parameter)
    read = parameters.reader(arg)
    if read is not None and kind.rank(parameter, arg) is not None:
        return kind.problem(parameter, arg, read(arg, [], 0))
    return f"is {name_of(arg)} where {kind.wanted(parameter)}"


def _tuple_problem(parameter: Parameter, arg: object) -> str | None:
    members = parameter["members"]
    if not isinstance(arg, tuple) or len(arg) != len(members):
        return f"is {name_of(arg)} where a tuple of {len(members)} is packaged: {parameter['type']}"
    problems = [_problem(member, item) for member, item in zip(members, arg, strict=True)]
    return next((f"in its item {at}, {problem}" for at, problem in enumerate(problems) if problem), None)


def _name(arg: object) -> str | None:
    """An argument's type as signatures would write it; None if it cannot be read."""
    try:
        read = arrays.reader(arg)
        view = read(arg, [], 0) if read else None
        if view is not None:
            return views.view_name(view)
        if isinstance(arg, tuple):
            return f"({', '.join(map(name_of, arg))})"
        if arrays.is_host(arg):
            return f"host {_type(arg)}"
        stands_for = scalars.type_of(arg)
        if stands_for is not None:
            return f"the type {views.type_name(stands_for)}"
        number = parameters.reader(arg)
        if number is not None:
            number(arg, [], 0)
        dtype = scalars.numpy_dtype(arg)
        return str(dtype) if dtype is not None and scalars.kind_of(arg) else _type(arg)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (this is for an error's text)
        return None


def _type(arg: object) -> str:
    kind = type(arg)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
