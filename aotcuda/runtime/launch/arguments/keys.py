"""Keys of arguments: one look-up by the properties that distinguish overloads finds the few overloads that may fit."""

# A `Coder` computes a code from the value that was read for one argument. The codes of all arguments that overloads
# distinguish are the key of a `Specialization` (see `aotcuda.runtime.launch.arguments.overloads`). A code contains only
# properties with few values: dtype, number of dimensions and divisors of the address of an array; divisors of a number,
# and the constants that it equals; the value of a constant, if an overload has it. Bounds and ranges are checked later.

from __future__ import annotations

from . import parameter_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ....manifest import Parameter
    from .argument_layout import PackedOverload

    Form = tuple[str, int | None] | None
    Test = tuple[str, Any]
    """`("multiple", divisor)` or `("equal", value)`: one bit of a code."""

OTHER = object()
"""The code of a constant that no overload has."""


class Coder:
    """The part of a specialization's key for one argument.

    Attributes:
        at: The argument's index.
        code: Returns the code of the value that was read for the argument.
        accepts: Returns True if a parameter may accept arguments with a code.
        tests: The bits of the code; in the code of an array, dtype and dimensions come first.
        any_dimensions: True if the code of an array has no number of dimensions.
        has_type: True if the code of a number includes Triton's type for the number.
        is_value: True if the code is the value itself: all overloads have a constant for this argument.
    """

    __slots__ = ("accepts", "any_dimensions", "at", "code", "has_type", "is_value", "tests")

    def __init__(
        self,
        at: int,
        code: Callable[[Any], object],
        tests: Sequence[Test] = (),
        accepts: Callable[[Parameter, Any], bool] = lambda _parameter, _code: True,
        *,
        any_dimensions: bool = False,
        has_type: bool = False,
        is_value: bool = False,
    ) -> None:
        self.at = at
        self.code = code
        self.accepts = accepts
        self.tests = tests
        self.any_dimensions = any_dimensions
        self.has_type = has_type
        self.is_value = is_value


def coders(overloads: Sequence[PackedOverload], args: tuple[object, ...]) -> list[Coder]:
    """Return the coders of the arguments that distinguish these overloads, which all accept the arguments' types."""
    result = []
    for at, arg in enumerate(args):
        parameters = [overload.parameters[at] for overload in overloads]
        forms = {overload.forms[at] for overload in overloads}
        if forms != {None}:
            # A parameter for any number of dimensions needs a coder: the fast path is for one number.
            divisors = sorted({_divisor(parameter) for parameter in parameters})
            if len(forms) > 1 or len(divisors) > 1 or any(map(_takes_any, forms)):
                result.append(_array_coder(at, [divisor for divisor in divisors if divisor > 1]))
        elif arg is not None:  # None fits all of these overloads, as a constant or in place of an optional one
            result += _number_coders(at, parameters)
    return result


def _array_coder(at: int, divisors: list[int]) -> Coder:
    def code(view: Any) -> tuple[object, ...] | None:
        return None if view is None else (view[0], len(view[2]), *[view[1] % divisor == 0 for divisor in divisors])

    def plain(view: Any) -> tuple[object, ...] | None:
        return None if view is None else (view[0], len(view[2]))

    def accepts(parameter: Parameter, code: tuple[Any, ...] | None) -> bool:
        form, divisor = parameter_kinds.form(parameter), _divisor(parameter)
        if form is None:  # a record
            return True
        if code is None or form[0] != code[0] or form[1] not in (None, code[1]):
            return False
        return divisor == 1 or code[2 + divisors.index(divisor)]

    return Coder(at, code if divisors else plain, [("multiple", divisor) for divisor in divisors], accepts)


def _number_coders(at: int, parameters: Sequence[Parameter]) -> list[Coder]:
    """Return the coder of an argument that is no array; an empty list if all these parameters accept equal values."""
    listed = [_constant(each) for each in parameters if each["kind"] == "constant"]
    values = list({repr(value): value for value in listed}.values())
    if values and all(each["kind"] == "constant" for each in parameters):
        return [_constant_coder(at, values)] if len(values) > 1 else []
    divisors = sorted({_divisor(each) for each in parameters})
    if not values and len(divisors) == 1:
        return []
    tests: list[Test] = [("multiple", divisor) for divisor in divisors if divisor > 1]
    tests += [("equal", value) for value in values]

    def code(number: Any) -> tuple[bool, ...]:
        return tuple([number % other == 0 if test == "multiple" else number == other for test, other in tests])

    def accepts(parameter: Parameter, code: tuple[bool, ...]) -> bool:
        if parameter["kind"] == "constant":
            return any(code[tests.index(test)] for test in tests if test == ("equal", _constant(parameter)))
        divisor = _divisor(parameter)
        return divisor == 1 or code[tests.index(("multiple", divisor))]

    return [Coder(at, code, tests, accepts)]


def _constant_coder(at: int, values: list[Any]) -> Coder:
    by_text = {_text(value) for value in values}  # all values have the argument's type

    def code(value: object) -> object:
        text = _text(value)
        return text if text in by_text else OTHER

    def accepts(parameter: Parameter, code: object) -> bool:
        return code is not OTHER and _text(_constant(parameter)) == code

    return Coder(at, code, accepts=accepts, is_value=True)


def _text(value: object) -> object:
    """Return a value that is equal for equal constants: the text of a float, of which NaN and the zeros are special."""
    return repr(value) if isinstance(value, float) else value


def key_of(coders: Sequence[Coder]) -> Callable[[Sequence[Any]], tuple[object, ...]]:
    """Return the function that makes a key from the values that were read for all arguments."""
    pairs = [(coder.at, coder.code) for coder in coders]
    return lambda reads: tuple([code(reads[at]) for at, code in pairs])


def _constant(parameter: Parameter) -> Any:
    from ....manifest.constants import decode  # noqa: PLC0415 (few kernels have constants)

    return decode(parameter["value"])


def _divisor(parameter: Parameter) -> int:
    return parameter.get("divisor", 1)


def _takes_any(form: Form) -> bool:
    """Return True if a parameter of this form accepts any number of dimensions."""
    return form is not None and form[1] is None
