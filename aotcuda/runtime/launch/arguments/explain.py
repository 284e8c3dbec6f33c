"""The errors of calls: arguments that no overload accepts, and calls of objects that cannot be called.

The first line of a message is complete; lists follow it.
"""

from __future__ import annotations

import os

from ....common.scalar_types import FORMATS, TRITON, TYPE_STRINGS
from ....errors import AlignmentError, ArgumentError, CallError, UnreadableError, quoted
from ... import module_of
from .. import arguments
from . import arrays, host_arrays, parameter_kinds, scalars, type_names
from .array_view import overlap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from ....manifest import Kernel, Overload, Parameter
    from .array_view import View

    class DescribedOverload(Protocol):
        """The attributes of an overload that errors name."""

        record: Overload
        parameters: list[Parameter]
        apart: list[tuple[int, int]]


_ARRAYS = ("array", "buffer", "elements")
_NUMBERS = ("scalar", "complex", "number", "small")
_TRITON_NUMBERS = {
    FORMATS[name]: triton for triton, name in TRITON.items() if triton in ("i32", "i64", "u64", "fp32", "i1")
}
_TRITON_ELEMENTS = {TYPE_STRINGS[name]: triton for triton, name in TRITON.items()}
_SEQUENCES = (list, tuple, range, bytes, bytearray, memoryview)
_NOT_FROM_MEMORY = ("struct", "scalar", "complex", "number", "small")
"""The kinds of parameters that accept values in the host's memory."""


def refusal(where: str, overloads: Sequence[DescribedOverload], args: tuple[object, ...]) -> ArgumentError:
    """Return the error for arguments that none of the overloads of kernel `where` accepts."""
    lists = _lists(overloads, args)
    counts = sorted({len(overload.parameters) for overload in overloads})
    if len(args) not in counts:
        text = " or ".join(map(str, counts))
        plural = "" if text == "1" else "s"
        return ArgumentError(f"{where} takes {text} argument{plural}, got {len(args)}{lists}")
    try:
        problems = min(
            (_problems(overload, args) for overload in overloads if len(overload.parameters) == len(args)), key=len
        )
        problem, conversion = problems[0]
        names_nearest = len(overloads) > 1 and not any(map(host_arrays.is_host, args))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 (an object that has changed since the launch read it)
        return read_error(where, overloads, args, None, error)
    if names_nearest:
        first = f"no packaged signature of {where} accepts these arguments; in the nearest one, {problem}"
    else:
        first = f"{where}: {problem}"
    remedy = f"\n  pass:     {conversion}" if conversion is not None else ""
    return ArgumentError(first + remedy + lists)


def read_error(
    where: str, overloads: Sequence[DescribedOverload], args: tuple[object, ...], at: int | None, error: Exception
) -> ArgumentError:
    """Return the error for an argument that cannot be read: the argument at index `at`; for None the first one."""
    if at is None:
        at = next((index for index, arg in enumerate(args) if type_names.readable_name(arg) is None), None)
    names = [
        overload.parameters[at]["name"] for overload in overloads if at is not None and at < len(overload.parameters)
    ]
    which = f"argument {at + 1}, {names[0]}," if at is not None and names else "an argument"
    problem = error if isinstance(error, UnreadableError) else UnreadableError.from_error(error)
    return ArgumentError(f"{where}: {which} {problem}{_lists(overloads, args)}")


def alignment_error(
    where: str,
    overload: DescribedOverload | None,
    args: tuple[object, ...],
    path: tuple[int, ...],
    view: View,
    alignment: int,
) -> ArgumentError:
    """Return the error for an array whose elements are not aligned as a parameter needs.

    Args:
        where: The kernel.
        overload: The overload that accepts the arguments otherwise; None if none was selected.
        args: The arguments.
        path: The index of the argument, and for an item of a tuple the indices in the tuple.
        view: The array.
        alignment: The alignment in bytes.
    """
    _, address, shape, strides, _ = view
    name, type_ = f"argument {path[0] + 1}", type_names.type_name(view[0])
    if overload is not None:
        parameter = overload.parameters[path[0]]
        name += f", {parameter['name']}"
        for at in path[1:]:
            parameter = parameter["members"][at]
            name += f"[{at}]"
        type_ = parameter["type"]
    fact = f"begins at {address:#x}"
    if address % alignment == 0:
        fact = f"has strides {strides} in bytes for shape {shape}"
    lists = _lists([overload], args) if overload is not None else ""
    problem = f"{fact}, and the kernel reads {type_} at multiples of {alignment} bytes; pass a copy"
    return AlignmentError(f"{where}: {name}, {problem}{lists}")


def explain_missing_variant(
    where: str,
    records: Sequence[Overload],
    numbers: dict[tuple[Any, ...], int],
    args: tuple[object, ...],
    codes: Sequence[object],
) -> str:
    """Return the text of an error: no variant of an exact kernel is packaged for the arguments.

    Args:
        where: The kernel.
        records: Its variants.
        numbers: The indices of variants, by their keys.
        args: The arguments.
        codes: The codes of the arguments; None for an unknown code.
    """
    if not numbers:
        return f"{where} has no packaged variant"
    count = len(next(iter(numbers)))
    if len(args) != count:
        return f"{where} takes {count} arguments, got {len(args)}"

    def differences(key: tuple[Any, ...]) -> list[int]:
        return [at for at, (one, other) in enumerate(zip(key, codes, strict=True)) if one != other]

    key = min(numbers, key=lambda key: len(differences(key)))
    nearest = records[numbers[key]]
    problems = [
        f"{parameter['name']} is {_variant_type(args[at], codes[at])} where {_wanted(parameter)}"
        for at in differences(key)
        if (parameter := nearest["parameters"][at])
    ]
    if not problems:
        found = [_problem(parameter, arg) for parameter, arg in zip(nearest["parameters"], args, strict=True)]
        problems = [problem for problem in found if problem] or ["the arguments could not be packed"]
    text = f"in the nearest one, {nearest['signature']}, {', '.join(problems)}"
    remedy = _launch_to_record(nearest, [(at, key[at]) for at in differences(key)], args, codes)
    return f"{where} has no packaged variant for these arguments; {text}{remedy}"


def _launch_to_record(
    nearest: Overload, differing: Sequence[tuple[int, Any]], args: tuple[object, ...], codes: Sequence[Any]
) -> str:
    """Return the remedy for a launch that differs from a variant in hints alone; empty for other differences."""
    values = []
    for at, packaged in differing:
        parameter, code = nearest["parameters"][at], codes[at]
        if not isinstance(code, tuple) or not isinstance(packaged, tuple) or parameter["kind"] == "descriptor":
            return ""
        name = parameter["name"]
        if arrays.family(args[at]) is not None and code[0] == packaged[0]:
            values.append(f"{name} {'' if code[1] else 'not '}at a multiple of 16 bytes")
        elif isinstance(args[at], int):
            values.append(f"{name} = {args[at]}")
        else:
            return ""
    return f"; record a launch with {' and '.join(values)}" if values else ""


def _wanted(parameter: Parameter) -> str:
    packaged = repr(parameter["value"]) if parameter["kind"] == "constant" else parameter["type"]
    return f"{packaged} is packaged"


def _variant_type(arg: object, code: object) -> str:
    """Return an argument's type in Triton's notation (`i32:16`, `*fp32`), or the value of a constant."""
    if isinstance(code, tuple) and len(code) == 3:
        return f"tensordesc<{_TRITON_ELEMENTS.get(code[0], code[0])}{list(code[1])}>"
    form, is_multiple = code if isinstance(code, tuple) and len(code) == 2 else ("", None)
    text = quoted(arg) if type(arg) in (int, float, bool, str, tuple, type(None)) else type_names.name_of(arg)
    if not isinstance(form, str) or not isinstance(is_multiple, bool):
        return text
    name = _TRITON_NUMBERS.get(form) or (f"*{_TRITON_ELEMENTS.get(form, form)}" if arrays.family(arg) else "")
    return f"{name}{':16' * is_multiple}" if name else text


def keyword_error(where: str, launch: str, record: Kernel | None, named: Iterable[str]) -> ArgumentError:
    """Return the error for keyword arguments, which the kernel does not accept.

    Args:
        where: The kernel.
        launch: The expression of its launch, up to the arguments.
        record: The kernel's entry in the manifest; None if it is unknown.
        named: The names of the keyword arguments.
    """
    overloads = record["overloads"] if record is not None else []
    lists_of_names = [[parameter["name"] for parameter in overload["parameters"]] for overload in overloads]
    first = lists_of_names[0] if lists_of_names else ["..."]
    nearest = next((names for names in lists_of_names if {*named} <= {*names}), first)
    text = ", ".join(map(repr, named))
    lists = "".join(f"\n  packaged: {overload['signature']}" for overload in overloads)
    remedy = f"write {launch}({', '.join(nearest)})"
    return ArgumentError(f"{where} accepts positional arguments, not names ({text}): {remedy}{lists}")


def configuration_error(where: str, name: str, *forms: str) -> CallError:
    """Return the error for a kernel that is called without a configuration; `forms` are the right forms."""
    calls = [f"{name}{form}(...)" for form in forms or ("[grid, block]", ".forall(n)")]
    return CallError(f"{where} needs a configuration: {' or '.join(calls)}")


def host_call_error(where: str) -> CallError:
    """Return the error for a device function that is called by the host."""
    return CallError(f"{where} is a device function: kernels call it on the GPU, the host cannot")


def host_launch_error(where: str) -> CallError:
    """Return the error for a device function that is launched as a kernel."""
    return CallError(f"{where} is a device function; to launch a kernel, list it in kernels, not in functions")


def _lists(overloads: Sequence[DescribedOverload], args: tuple[object, ...]) -> str:
    lines = [f"\n  passed:   ({', '.join(map(type_names.name_of, args))})"]
    return "\n  ".join([*lines, *(f"packaged: {overload.record['signature']}" for overload in overloads)])


def _problems(overload: DescribedOverload, args: tuple[object, ...]) -> list[tuple[str, str | None]]:
    """Return the problem of each argument that the overload does not accept, and an expression to pass instead."""
    problems: list[tuple[str, str | None]] = []
    for number, (parameter, arg) in enumerate(zip(overload.parameters, args, strict=True), 1):
        problem = _problem(parameter, arg)
        if problem is not None:
            problems.append((f"argument {number}, {parameter['name']}, {problem}", _conversion(parameter, arg, args)))
    if problems:
        return problems
    return [(problem, None) for problem in _overlaps(overload, args) or ["the arguments could not be packed"]]


def _overlaps(overload: DescribedOverload, args: tuple[object, ...]) -> list[str]:
    """Return a problem for each pair of arrays that overlap and must not."""
    problems = []
    for pair in overload.apart:
        views: list[Any] = [read(args[at], [], 0) for at in pair if (read := arrays.reader(args[at])) is not None]
        if len(views) == len(pair) and None not in views and overlap(*views):
            first, second = (f"argument {at + 1}, {overload.parameters[at]['name']}," for at in pair)
            problems.append(f"{first} and {second} overlap, and the kernel was compiled for arrays that do not")
    return problems


def _problem(parameter: Parameter, arg: object) -> str | None:
    """Return the problem of one argument, or None."""
    if parameter["kind"] == "tuple":
        return _tuple_problem(parameter, arg)
    if parameter["kind"] not in _NOT_FROM_MEMORY and host_arrays.is_host(arg):
        noun = "a record" if hasattr(arg, "setfield") and not hasattr(arg, "ctypes") else "an array"
        may_copy = type_names.class_of(arg).startswith("numpy.") and os.environ.get("AOTCUDA_HOST_ARRAYS") != "copy"
        variable = " (or set AOTCUDA_HOST_ARRAYS=copy)" if may_copy else ""
        class_name, copy = type_names.class_of(arg), _copy_to_gpu(parameter["name"], arg)
        return f"is {noun} in the host's memory ({class_name}); copy it to the GPU first, as {copy} does{variable}"
    kind = parameter_kinds.kind_of(parameter)
    read = arguments.reader(arg)
    if read is not None and kind.rank(parameter, arg) is not None:
        return kind.problem(parameter, arg, read(arg, [], 0))
    return f"is {type_names.name_of(arg)} where {kind.describe(parameter)}"


def _tuple_problem(parameter: Parameter, arg: object) -> str | None:
    members = parameter["members"]
    if not isinstance(arg, tuple) or len(arg) != len(members):
        return f"is {type_names.name_of(arg)} where a tuple of {len(members)} is packaged: {parameter['type']}"
    problems = [_problem(member, item) for member, item in zip(members, arg, strict=True)]
    return next((f"in its item {at}, {problem}" for at, problem in enumerate(problems) if problem), None)


def _conversion(parameter: Parameter, arg: object, args: Iterable[object]) -> str | None:
    """Return an expression that converts an argument for its parameter, or None.

    Args:
        parameter: The parameter's entry in the manifest.
        arg: The argument.
        args: All arguments of the launch: the expression makes new arrays in the library of the other arguments.
    """
    name, kind = parameter["name"], parameter["kind"]
    if kind == "tuple":
        return f"tuple({name})" if isinstance(arg, list) else None
    if kind in _NUMBERS:
        if arrays.family(arg) is not None or host_arrays.is_host(arg):
            return f"{name}.item(), the number in an array of one element" if hasattr(type(arg), "item") else None
        is_int = scalars.family(parameter) == "int" and scalars.kind_of(arg) == "float"
        return f"int({name}), or {name} // 2 in place of {name} / 2" if is_int else None
    dtype = type_names.type_name(parameter["dtype"]) if kind in _ARRAYS else ""
    if not dtype.isidentifier():
        return None
    if isinstance(arg, _SEQUENCES):
        return f"{_new_array(name, dtype, args)}; a {type_names.class_of(arg)} is no array, and on no GPU"
    read = arrays.reader(arg)
    view = read(arg, [], 0) if read is not None else None
    if view is None or view[0] == parameter["dtype"]:
        return None
    method, value = ("to", f"torch.{dtype}") if _library(arg) == "torch" else ("astype", f'"{dtype}"')
    return f"{name}.{method}({value}), a copy" if hasattr(type(arg), method) else None


def _copy_to_gpu(name: str, arg: object) -> str:
    """Return the call of the array's own library that copies it to the GPU."""
    return {
        "torch": f"{name}.cuda()",
        "jax": f'jax.device_put({name}, jax.devices("gpu")[0])',
    }.get(_library(arg), "cupy.asarray")


def _new_array(name: str, dtype: str, args: Iterable[object]) -> str:
    libraries = [_library(arg) for arg in args if arrays.family(arg) is not None]
    calls = {
        "torch": f'torch.tensor({name}, dtype=torch.{dtype}, device="cuda")',
        "jax": f'jax.numpy.asarray({name}, "{dtype}")',
    }
    return next((calls[each] for each in libraries if each in calls), f'cupy.asarray({name}, "{dtype}")')


def _library(arg: object) -> str:
    """Return the top package of an array's class; `jax` for JAX's arrays, whose package is jaxlib."""
    top = next((module_of(kind) for kind in type(arg).__mro__ if module_of(kind) == "torch"), module_of(type(arg)))
    return top.partition(".")[0].replace("jaxlib", "jax")
