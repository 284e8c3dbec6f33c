"""Put the arguments of a grid launch in order: positional, named, and omitted ones, and those of heuristics."""

from __future__ import annotations

import sys

from ...manifest import constants
from .. import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from ...manifest import Argument
    from ...manifest import Kernel as Record

    Bind = Callable[[tuple[object, ...], dict[str, object]], tuple[object, ...]]
    """A function that returns all arguments in order, from the positional and the named arguments."""

    Named = tuple[tuple[str | None, ...], tuple[object, ...], int, tuple[tuple[int, int, int], ...]]
    """The arguments for the extension: interned names in order, None for an option with the name of a parameter; the
    defaults, or the tuple of names itself for required arguments; the number of positional arguments; and computed
    arguments, as `Derived` in launch.h."""

_MOST_SHOWN = 16
_COPIED, _IS_NONE, _IS_NOT_NONE = 0, 1, 2


def constants_to_fill(
    record: Record,
) -> tuple[Callable[[tuple[object, ...]], dict[str, object]], list[tuple[int, str]]]:
    """Return a function that names arguments, and the constants that depend on the variant, with their positions.

    The function replaces omitted constants by their value where all variants have the same one.
    """
    defaults: dict[str, object] = {}
    by_variant: list[tuple[int, str]] = []
    names = [argument["name"] for argument in record["arguments"] if not argument.get("keyword")]
    for index, name in enumerate(names):
        defaults[name] = None
        if not _is_optional(record, index):
            continue
        parameters = [overload["parameters"][index] for overload in record["overloads"]]
        if len({repr(parameter["value"]) for parameter in parameters}) == 1:
            defaults[name] = constants.decode(parameters[0]["value"])
        else:
            by_variant.append((index, name))

    def name_arguments(args: tuple[object, ...]) -> dict[str, object]:
        pairs = zip(defaults.items(), args, strict=False)  # `args` also has keyword-only arguments at its end
        return {name: default if arg is None else arg for (name, default), arg in pairs}

    return name_arguments, by_variant


def _is_optional(record: Record, index: int) -> bool:
    """Return True if a launch may omit an argument, for the variant's value; exact kernels have none."""
    return not record.get("exact") and all(
        overload["parameters"][index].get("optional") for overload in record["overloads"]
    )


class _OtherArgument:
    """An argument that a launch does not give by position.

    Attributes:
        name: The name in the call; None if the launch omits the argument, or a heuristic computes it.
        value: The value if the launch omits the argument.
        source: For a heuristic: the index or the name of the argument that it tests for None.
        is_none: For a heuristic: the result if that argument is None.
    """

    __slots__ = ("is_none", "name", "source", "value")

    def __init__(
        self,
        name: str | None = None,
        value: object = None,
        source: int | str | None = None,
        is_none: bool | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.is_none = is_none

    def evaluate(self, args: tuple[object, ...], named: dict[str, object]) -> object:
        """Return the argument for a launch."""
        if self.is_none is None:
            return self.value if self.name is None else named[self.name]
        tested = named[self.source] if isinstance(self.source, str) else args[self.source]  # type: ignore[index]
        return self.is_none if tested is None else not self.is_none


def extension_arguments(record: Record) -> Named | None:
    """Return the arguments in the form for the extension; None if it cannot put them in order."""
    arguments = record["arguments"]
    names = [argument["name"] for argument in arguments]
    interned: list[str | None] = [*map(sys.intern, names)]
    derived: list[tuple[int, int, int]] = []
    for index, argument in enumerate(arguments):
        first = names.index(names[index])
        if first < index:
            derived.append((index, first, _COPIED))
            interned[index] = None
        test = _test_of(argument)
        if test is not None:
            source: str = argument[test]  # type: ignore[literal-required]
            if _is_computed_before(record, source, names[index]):
                return None
            derived.append((index, names.index(source), _IS_NONE if test == "is_none" else _IS_NOT_NONE))
    all_names = (*interned,)
    defaults = [
        constants.decode(argument["default"])
        if "default" in argument
        else None
        if _is_optional(record, index)
        else all_names
        for index, argument in enumerate(arguments)
    ]
    return all_names, (*defaults,), sum(not argument.get("keyword") for argument in arguments), (*derived,)


def make_binder(where: str, record: Record, count: int, names: tuple[str, ...]) -> Bind:
    """Return the function that puts a launch's arguments in order.

    As in Triton, an option with the name of a parameter gets the value of that name only if the launch gives it by
    name.

    Raises:
        ArgumentError: There are too many, unknown, repeated, or missing arguments.
    """
    arguments = record["arguments"]
    distinct = list(dict.fromkeys(argument["name"] for argument in arguments))
    positional = [argument["name"] for argument in arguments if not argument.get("keyword")]
    if count > len(positional):
        _refuse(where, record, f"takes {len(positional)} arguments, got {count}")
    for name in names:
        if name not in distinct:
            _refuse(where, record, f"has no argument {name}; it has {', '.join(distinct)}")
        if name in positional[:count]:
            _refuse(where, record, f"was given {name} by position and by name")
    remaining = []
    for index, argument in enumerate(arguments):
        test = _test_of(argument)
        if test is not None:
            remaining.append(_by_heuristic(where, record, argument, test, positional[:count], names))
        elif index >= count and argument["name"] in names:
            remaining.append(_OtherArgument(name=argument["name"]))
        elif index >= count:
            remaining.append(_OtherArgument(value=_default(where, record, index, argument)))
    if not remaining:
        return lambda args, _named: args
    if all(other.is_none is None for other in remaining):
        pairs = [(other.name, other.value) for other in remaining]
        return lambda args, named: (*args, *[value if name is None else named[name] for name, value in pairs])
    return lambda args, named: (*args, *[other.evaluate(args, named) for other in remaining])


def _by_heuristic(
    where: str, record: Record, argument: Argument, test: str, positional: list[str], names: tuple[str, ...]
) -> _OtherArgument:
    """Return an argument that a heuristic computes; a value that the launch gives by its name is ignored.

    Raises:
        ArgumentError: The launch gives it by position, or omits the argument that the heuristic tests.
    """
    name, source = argument["name"], argument[test]  # type: ignore[literal-required]
    if name in positional:
        _refuse(where, record, f"was given {name} by position, and a heuristic gives it by name")
    if _is_computed_before(record, source, name):
        return _OtherArgument(value=test == "is_not_none")  # a heuristic has computed the source: it is not None
    if source not in positional and source not in names:
        _refuse(where, record, f"was not given {source}, which the heuristic for {name} tests for None")
    return _OtherArgument(
        source=positional.index(source) if source in positional else source, is_none=test == "is_none"
    )


def _test_of(argument: Argument) -> str | None:
    """Return the key of an argument that a heuristic computes by testing another one for None; else None."""
    return "is_none" if "is_none" in argument else "is_not_none" if "is_not_none" in argument else None


def _is_computed_before(record: Record, source: str, name: str) -> bool:
    """Return True if an earlier heuristic than that of `name` computes `source`."""
    order = [argument["name"] for argument in record["arguments"] if _test_of(argument) is not None]
    order = [argument_name for argument_name in record.get("heuristics", order) if argument_name in order]
    return source in order and name in order and order.index(source) < order.index(name)


def _default(where: str, record: Record, index: int, argument: Argument) -> object:
    """Return the value of an omitted argument: the source's default, or None for the variant's value.

    Raises:
        ArgumentError: It is required.
    """
    if "default" in argument:
        return constants.decode(argument["default"])
    if _is_optional(record, index):
        return None
    parameters = [overload["parameters"][index] for overload in record["overloads"]]
    values = list(dict.fromkeys(repr(item["value"]) for item in parameters if item["kind"] == "constant"))
    hint = f"; it is packaged with {', '.join(values[:_MOST_SHOWN])}" if values else ""
    return _refuse(where, record, f"was not given {argument['name']}{hint}")


def _refuse(where: str, record: Record, problem: str) -> NoReturn:
    if record.get("exact"):
        message = f"{where} {problem}"
        raise errors.MissingVariantError(message)
    signatures = "".join(f"\n  packaged: {overload['signature']}" for overload in record["overloads"])
    message = f"{where} {problem}{signatures}"
    raise errors.ArgumentError(message)
