"""What to tell a caller whose arguments no overload takes: the first line is complete in itself, lists follow it.

And one who calls what is not to be called: a kernel without its configuration, a device function.
"""

from __future__ import annotations

import os

from aotcuda.errors import ArgumentError, CallError, UnreadableError
from aotcuda.runtime import arguments
from aotcuda.runtime.arguments import advice, arrays, host_arrays, names, parameters
from aotcuda.runtime.arguments.overlap import overlap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from aotcuda.manifest import Kernel, Overload, Parameter

    class Described(Protocol):
        """An overload, as far as its errors tell of it."""

        record: Overload
        parameters: list[Parameter]
        apart: list[tuple[int, int]]


_NOT_FROM_MEMORY = ("struct", "scalar", "complex", "number")
"""The kinds of parameters whose arguments no copy to the GPU helps."""


def refusal(where: str, overloads: Sequence[Described], args: tuple[object, ...]) -> ArgumentError:
    """The error for arguments that none of the overloads of kernel `where` takes."""
    lists = _lists(overloads, args)
    counts = sorted({len(overload.parameters) for overload in overloads})
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        plural = "" if wanted == "1" else "s"
        return ArgumentError(f"{where} takes {wanted} argument{plural}, got {len(args)}{lists}")
    try:
        problems = min(
            (_problems(overload, args) for overload in overloads if len(overload.parameters) == len(args)), key=len
        )
        problem, conversion = problems[0]
        several = len(overloads) > 1 and not any(map(host_arrays.is_host, args))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 (it was readable before: an object that changes)
        return unreadable(where, overloads, args, None, error)
    if several:
        first = f"no packaged signature of {where} takes these arguments; in the nearest one, {problem}"
    else:
        first = f"{where}: {problem}"
    way = f"\n  pass:     {conversion}" if conversion is not None else ""
    return ArgumentError(first + way + lists)


def unreadable(
    where: str, overloads: Sequence[Described], args: tuple[object, ...], at: int | None, error: Exception
) -> ArgumentError:
    """The error for an argument that cannot be read: the one at index `at`, or the first one of which that is true."""
    if at is None:
        at = next((index for index, arg in enumerate(args) if names.readable_name(arg) is None), None)
    called = [
        overload.parameters[at]["name"] for overload in overloads if at is not None and at < len(overload.parameters)
    ]
    which = f"argument {at + 1}, {called[0]}," if at is not None and called else "an argument"
    problem = error if isinstance(error, UnreadableError) else UnreadableError.of(error)
    return ArgumentError(f"{where}: {which} {problem}{_lists(overloads, args)}")


def by_name(where: str, launch: str, record: Kernel | None, named: Iterable[str]) -> ArgumentError:
    """The error for arguments given by name, to a kernel that has none by name.

    Args:
        where: The kernel.
        launch: How it is launched, up to its arguments.
        record: What is packaged of it; None if that is not known.
        named: The names that were given.
    """
    overloads = record["overloads"] if record is not None else []
    called = [[parameter["name"] for parameter in overload["parameters"]] for overload in overloads]
    nearest = next((known for known in called if {*named} <= {*known}), called[0] if called else ["..."])
    given = ", ".join(map(repr, named))
    lists = "".join(f"\n  packaged: {overload['signature']}" for overload in overloads)
    way = f"write {launch}({', '.join(nearest)})"
    return ArgumentError(f"{where} takes its arguments by position, not by name ({given}): {way}{lists}")


def unconfigured(where: str, name: str, *ways: str) -> CallError:
    """The error for a kernel that is called as it is; `ways` of launching it stand behind its name."""
    shown = [f"{name}{way}(...)" for way in ways or ("[grid, block]", ".forall(n)")]
    return CallError(f"{where} needs a configuration: {' or '.join(shown)}")


def on_the_host(where: str) -> CallError:
    """The error for a device function that is called by the host."""
    return CallError(f"{where} is a device function: kernels call it on the GPU, the host cannot")


def _lists(overloads: Sequence[Described], args: tuple[object, ...]) -> str:
    lines = [f"\n  passed:   ({', '.join(map(names.name_of, args))})"]
    return "\n  ".join([*lines, *(f"packaged: {overload.record['signature']}" for overload in overloads)])


def _problems(overload: Described, args: tuple[object, ...]) -> list[tuple[str, str | None]]:
    """What is wrong with each argument that the overload does not take, and what to pass in its place."""
    found: list[tuple[str, str | None]] = []
    for number, (parameter, arg) in enumerate(zip(overload.parameters, args, strict=True), 1):
        problem = _problem(parameter, arg)
        if problem is not None:
            found.append(
                (f"argument {number}, {parameter['name']}, {problem}", advice.conversion(parameter, arg, args))
            )
    if found:  # else what must lie apart are arrays
        return found
    return [(problem, None) for problem in _overlaps(overload, args) or ["the arguments could not be packed"]]


def _overlaps(overload: Described, args: tuple[object, ...]) -> list[str]:
    """Which arguments overlap that must not."""
    found = []
    for pair in overload.apart:
        read: list[Any] = [reader(args[at], [], 0) for at in pair if (reader := arrays.reader(args[at])) is not None]
        if len(read) == len(pair) and None not in read and overlap(*read):
            first, second = (f"argument {at + 1}, {overload.parameters[at]['name']}," for at in pair)
            found.append(f"{first} and {second} overlap, and the kernel was compiled for arrays that do not")
    return found


def _problem(parameter: Parameter, arg: object) -> str | None:
    """What is wrong with one argument, None if nothing is."""
    if parameter["kind"] == "tuple":
        return _tuple_problem(parameter, arg)
    if parameter["kind"] not in _NOT_FROM_MEMORY and host_arrays.is_host(arg):
        what = "a record" if hasattr(arg, "setfield") and not hasattr(arg, "ctypes") else "an array"
        copied = names.class_of(arg).startswith("numpy.") and os.environ.get("AOTCUDA_HOST_ARRAYS") != "copy"
        way = " (or set AOTCUDA_HOST_ARRAYS=copy)" if copied else ""
        of = names.class_of(arg)
        does = advice.onto_the_gpu(parameter["name"], arg)
        return f"is {what} in the host's memory ({of}); copy it to the GPU first, as {does} does{way}"
    kind = parameters.of(parameter)
    read = arguments.reader(arg)
    if read is not None and kind.rank(parameter, arg) is not None:
        return kind.problem(parameter, arg, read(arg, [], 0))
    return f"is {names.name_of(arg)} where {kind.wanted(parameter)}"


def _tuple_problem(parameter: Parameter, arg: object) -> str | None:
    members = parameter["members"]
    if not isinstance(arg, tuple) or len(arg) != len(members):
        return f"is {names.name_of(arg)} where a tuple of {len(members)} is packaged: {parameter['type']}"
    problems = [_problem(member, item) for member, item in zip(members, arg, strict=True)]
    return next((f"in its item {at}, {problem}" for at, problem in enumerate(problems) if problem), None)
