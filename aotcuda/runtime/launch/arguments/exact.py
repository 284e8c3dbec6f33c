"""Exact kernels: a launch chooses an overload by the rules by which Triton's JIT specializes a kernel.

Triton specializes a kernel for the types of its arguments, for integers that are 1 or divisible by 16, for addresses
that are divisible by 16 (hints), and for the values of constants and options. A key has a code for each argument. Each
overload has one key. A launch takes the overload whose key equals the key of its arguments. If there is none, it takes,
of the overloads with its types, constants and options whose hints all hold, the one with most aligned pointers, then
with most ones, then with most multiples of 16, then the first one. In a module in place this overload must have each
aligned pointer of the launch, because code for unaligned pointers may be many times slower.

In a generated module (`adopts`), a number fits each type that the table has for it, and the narrowest of the types that
have its value wins.
"""

# Triton's rules, as in its releases 3.6 to 3.9 (native_specialize_impl and create_function_from_signature of
# triton/runtime/jit.py):
#
#     int        1 is a constant; others are i32 where they fit, else i64, else u64. `divisor`: a multiple of 16
#     float      fp32; objects of subclasses of int and float are their plain values, other numbers are refused
#     bool       i1
#     None       a constant
#     tensor     a pointer to its dtype. `divisor`: its address is a multiple of 16
#     constexpr  its type and value: 1, 1.0 and True are three constants
#     descriptor its dtype and block shape
#
# `hints` of an argument limits Triton's checks. With "none" (do_not_specialize), 1 is no constant and multiples get no
# hint; with "no alignment", multiples get no hint. `annotation` fixes the type: then 1 is no constant, and numbers of
# other types fit.

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from ....common.scalar_types import TRITON
from ....manifest import constants
from ... import errors, module_of
from . import arrays, descriptors, keys, scalars
from .argument_layout import PackedOverload
from .keys import Coder
from .overloads import ArgumentTypes, OverloadTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....errors import ArgumentError
    from ....manifest import Argument, Kernel, Parameter
    from ...driver import ValidityFlag
    from .overloads import Specialization
    from .scalars import Read

    Code = Any
    """`(format, is a multiple)` of a number, `(dtype, is a multiple)` of an array, `(type, value)` of a constant,
    `(dtype, block shape, None)` of a tensor descriptor."""

_ALIGNMENT = 16
_NUMBER = "number"
"""The first part of the code of a number that adopts types; the others are: it is a multiple, it is 1."""
_MOST_TYPES = 1024
_ANNOTATED = "annotated"
_NONE: Code = (type(None), None)
_ONE: Code = (int, 1)
_NARROWEST = " ?bBhHiIqQfd"
"""The formats of numbers, the narrowest first; a distance of 0 comes before all of them."""
_LIMITS = (("i", -(2**31), 2**31), ("q", -(2**63), 2**63), ("Q", 0, 2**64))
_OF_TRITON = "triton.language.core"
_TYPE_NAMES = ("tl.", "torch.")
"""The beginnings of the names by which types of Triton and PyTorch are packaged."""

_DTYPES = {triton: TRITON[triton] for triton in ("fp16", "bf16", "fp32", "fp64")}
"""Names in `triton.language` of types that Triton's signatures abbreviate."""


class Rule:
    """The reader and the code of arguments of one Python type.

    Attributes:
        read: Reads the argument.
        code: The code; None if the value decides it.
        coder: Computes the code from the value that was read; None if the type decides it.
    """

    __slots__ = ("code", "coder", "read")

    def __init__(self, read: Read, code: Code = None, coder: Coder | None = None) -> None:
        self.read = read
        self.code = code
        self.coder = coder


class Hints(NamedTuple):
    """The hints of an overload.

    Attributes:
        order: Minus the numbers of its aligned pointers, ones, and multiples of 16.
        drops: The number of pointers that a launch has aligned and the overload has not.
    """

    order: tuple[int, int, int]
    drops: int


class _Chosen(list[PackedOverload]):
    """The overloads of a specialization.

    Attributes:
        served: As in `Specialization`.
    """

    __slots__ = ("served",)

    served: tuple[Any, int]


class ExactOverloads(OverloadTable):
    """The overloads of an exact kernel. The first launch of an overload prepares it, since there may be thousands."""

    __slots__ = ("_adopts", "_arguments", "_groups", "_keys", "_prepared", "_records", "_values", "counts")

    def __init__(
        self, kernel: Kernel, where: str, live: ValidityFlag, device: Callable[[], int | None] = lambda: None
    ) -> None:
        """Implement OverloadTable.__init__."""
        super().__init__({**kernel, "overloads": []}, where, live, device)
        self._records = kernel["overloads"]
        self._arguments = kernel.get("arguments", [])
        self._adopts = kernel.get("adopts", False)
        self.counts = (ctypes.c_ulonglong * 2)()  # launches by exact variants, and by hints
        self._prepared: dict[int, PackedOverload] = {}
        self._keys: dict[tuple[Code, ...], list[int]] = {}
        self._groups: dict[tuple[Code, ...], list[int]] | None = None
        self._values: list[dict[Code, Code] | None] = []
        columns = []
        rows = [each["parameters"] for each in self._records]
        for argument, column in zip(self._arguments, zip(*rows, strict=True), strict=bool(rows)):
            parameters = {id(parameter): parameter for parameter in column}  # thousands of overloads share a few
            codes = {key: _code(parameter, argument) for key, parameter in parameters.items()}
            is_constant = all(parameter["kind"] == "constant" for parameter in parameters.values())
            self._values.append({code: code for code in codes.values()} if is_constant else None)
            columns.append([codes[id(parameter)] for parameter in column])
        for number, key in enumerate(zip(*columns, strict=True)):
            self._keys.setdefault(key, []).append(number)

    @property
    def is_exact(self) -> bool:
        """Implement OverloadTable.is_exact."""
        return True

    def all_overloads(self) -> list[PackedOverload]:
        """Implement OverloadTable.all_overloads."""
        return [self._overload(number) for number in range(len(self._records))]

    def refusal(self, args: tuple[object, ...]) -> ArgumentError:
        """Implement OverloadTable.refusal."""
        explain = self._explain_types if self._adopts else self._explain
        return errors.MissingVariantError(lambda: explain(args))

    def read_error(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> ArgumentError:
        """Implement OverloadTable.read_error."""
        return errors.MissingVariantError(lambda: self._explain_read_error(args, error, at))

    def find_miss(self, args: tuple[object, ...]) -> Specialization | None:
        """Return the specialization of arguments that no overload accepts; it has no overloads.

        None if the types of the arguments exclude all overloads, or if an overload accepts them.
        """
        try:
            types = self.argument_types(args)
            if types is None or not types.readers:
                return None
            pairs = zip(types.readers, args, strict=True)
            specialization = types.specialization([read(arg, [], 0) if read else arg for read, arg in pairs])
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (the launch raises an error for an argument that cannot be read)
            return None
        return None if specialization.overloads else specialization

    def _overload(self, number: int) -> PackedOverload:
        overload = self._prepared.get(number)
        if overload is None:
            overload = PackedOverload(self._records[number], self._where, self.live, is_exact=True)
            overload = self._prepared.setdefault(number, overload)
        return overload

    def _rank(self, key: object, args: tuple[object, ...]) -> ArgumentTypes:
        """Make the `ArgumentTypes` of arguments of these types."""
        rules: list[Rule | None] = [None]
        try:
            if self._adopts and self._add_open_types(args):
                return self.argument_types(args)  # type: ignore[return-value]  # `_rank` returns types
            if len(args) == len(self._arguments):
                rules = [self._rule(at, arg) for at, arg in enumerate(args)]
        except (errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.read_error(args, error) from error
        complete = [rule for rule in rules if rule is not None]
        is_complete = len(complete) == len(rules)
        types = self._make_types(complete, args) if is_complete else ArgumentTypes([], [], (), [], None)
        if len(self._argument_types) >= _MOST_TYPES:
            self._argument_types.clear()
        self._argument_types[key] = types
        return types

    def _make_types(self, rules: list[Rule], args: tuple[object, ...]) -> ArgumentTypes:
        fixed = [rule.code for rule in rules]
        coders = [rule.coder for rule in rules if rule.coder is not None]

        def find(codes: tuple[Code, ...]) -> list[PackedOverload]:
            key = [*fixed]
            for coder, code in zip(coders, codes, strict=True):
                key[coder.at] = code
            exact = self._keys.get((*key,), []) if not self._adopts else []
            numbers = exact or (self._by_type(key, args) if self._adopts else self._by_hints(key))
            by_hints = self._records[numbers[0]].get("general", False) if self._adopts and numbers else not exact
            chosen = _Chosen([self._overload(number) for number in numbers])
            chosen.served = self.counts, int(by_hints)
            return chosen

        return ArgumentTypes([], [rule.read for rule in rules], args, coders, find)

    def _by_hints(self, key: list[Code]) -> list[int]:
        """Return the best overload for a key that no overload has; none if `AOTCUDA_GENERAL` is 0."""
        if os.environ.get("AOTCUDA_GENERAL") == "0":
            return []
        fitting = []
        for number in self._group(key):
            hints = self._hints_for(number, key)
            if hints is not None and hints.drops == 0:
                fitting.append((hints.order, number))
        return [min(fitting)[1]] if fitting else []

    def _by_type(self, key: list[Code], args: tuple[object, ...]) -> list[int]:
        """Return the best overload of each combination of types that arguments fit, the narrowest types first."""
        best: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}
        for number in self._group(key):
            hints = self._hints_for(number, key)
            types = self._widths(number, args) if hints is not None else None
            if hints is not None and types is not None:
                best[types] = min(best.get(types, (hints.order, number)), (hints.order, number))
        return [best[types][1] for types in sorted(best)]

    def _group(self, key: list[Code]) -> list[int]:
        """Return the overloads with the types, constants and options of a key."""
        if self._groups is None:
            groups: dict[tuple[Code, ...], list[int]] = {}
            for codes, numbers in self._keys.items():
                group = tuple([self._base(at, code) for at, code in enumerate(codes)])
                groups.setdefault(group, []).extend(numbers)
            self._groups = groups
        return self._groups.get(tuple([self._base(at, code) for at, code in enumerate(key)]), [])

    def _base(self, at: int, code: Code) -> Code:
        """Return the code of an argument without its hints: a 1 is an i32."""
        if self._values[at] is not None or code == _NONE or code is keys.OTHER:
            return code
        first = code[0]
        if code == _ONE:
            return _NUMBER if self._adopts else "i"
        if not isinstance(first, str):
            return code
        if first in (_NUMBER, _ANNOTATED) or first in _NARROWEST:
            return _NUMBER if self._adopts else first
        return code[0] if len(code) == 2 else code  # a descriptor has three parts

    def _hints_for(self, number: int, key: list[Code]) -> Hints | None:
        """Return the hints of an overload of the group of a key; None if one does not hold for the key."""
        aligned = ones = multiples = drops = 0
        for at, parameter in enumerate(self._records[number]["parameters"]):
            if self._values[at] is not None:
                continue
            code, kind = key[at], parameter["kind"]
            if kind == "constant":
                if _code_of_value(constants.decode(parameter["value"])) != _ONE:  # all of the group have this constant
                    continue
                if code != _ONE and not (code[0] == _NUMBER and code[2]):
                    return None
                ones += 1
            elif kind in ("elements", "number"):
                is_multiple = code[0] is not int and code[1]
                if parameter.get("divisor") == _ALIGNMENT:
                    if not is_multiple:
                        return None
                    aligned += kind == "elements"
                    multiples += kind == "number"
                elif is_multiple and kind == "elements":
                    drops += 1
        return Hints((-aligned, -ones, -multiples), drops)

    def _widths(self, number: int, args: tuple[object, ...]) -> tuple[int, ...] | None:
        """Return a number for the type of each number of an overload, lower for narrower types; None if one is wrong.

        The packing of the arguments checks the range.
        """
        widths = []
        for parameter, arg in zip(self._records[number]["parameters"], args, strict=True):
            if parameter["kind"] == "number":
                distance = scalars.rank(parameter, arg)
                if distance is None:
                    return None
                widths.append(distance // 100 * 100 + _NARROWEST.index(parameter["format"]) if distance else 0)
            else:
                widths.append(_NARROWEST.index("i"))  # a 1 is an i32
        return (*widths,)

    def _rule(self, at: int, arg: object) -> Rule | None:
        """Return the rule for arguments of the type of `arg`; None if no overload accepts the type."""
        argument, values = self._arguments[at], self._values[at]
        if arg is None:
            is_option = argument.get("keyword", False)  # an option that is None has its default
            return Rule(scalars.read_plain, _code_of_default(argument) if is_option else _NONE)
        if values is not None:
            return _rule_of_constant(at, arg, values, names_types=self._adopts)
        if self._adopts and scalars.kind_of(arg) is not None:
            return _rule_of_adopting(at, arg, argument)
        annotation = argument.get("annotation")
        if isinstance(arg, bool):
            return Rule(scalars.read_plain, (_ANNOTATED if annotation else "?", False))
        if isinstance(arg, int):
            return _rule_of_int(at, scalars.reader(arg), argument)
        if isinstance(arg, float):
            fits = annotation is None or annotation.startswith(("fp", "bf"))
            return Rule(scalars.reader(arg), (_ANNOTATED if annotation else "f", False)) if fits else None
        if arrays.is_descriptor(type(arg)):
            return Rule(descriptors.read, coder=Coder(at, _code_of_descriptor))
        read = arrays.reader(arg) if self._adopts or not arrays.is_open(type(arg)) else None
        return _rule_of_array(at, read, argument) if read is not None else None

    def _explain_read_error(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> str:
        """Return the text of an error: an argument cannot be read."""
        from . import explain  # noqa: PLC0415 (only errors come here)

        first = [self._overload(0)] if self._records else []
        return str(explain.read_error(self._where, first, args, at, error))

    def _explain_types(self, args: tuple[object, ...]) -> str:
        """Return the text of an error, with all variants and the differences of the nearest one."""
        from . import explain  # noqa: PLC0415 (only errors come here)

        return str(explain.refusal(self._where, self.all_overloads(), args))

    def _explain(self, args: tuple[object, ...]) -> str:
        """Return the text of an error, with the nearest variant and its differences."""
        from . import explain  # noqa: PLC0415 (only errors come here)

        def code(at: int, arg: object) -> Code:
            rule = self._rule(at, arg)
            if rule is None:
                return None
            return rule.code if rule.coder is None else rule.coder.code(rule.read(arg, [], 0))

        try:
            codes = [code(at, arg) for at, arg in enumerate(args)]
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 (an object that has changed since the launch read it)
            return self._explain_read_error(args, error)
        numbers = {key: indices[0] for key, indices in self._keys.items()}
        return explain.explain_missing_variant(self._where, self._records, numbers, args, codes)


def _code(parameter: Parameter, argument: Argument) -> Code:
    """Return the code of the arguments that a parameter accepts."""
    is_multiple = parameter.get("divisor") == _ALIGNMENT
    if parameter["kind"] == "constant":
        return _code_of_value(constants.decode(parameter["value"]))
    if parameter["kind"] == "elements":
        return parameter["dtype"], is_multiple
    if parameter["kind"] == "descriptor":
        return parameter["dtype"], tuple(parameter["block"]), None
    return _ANNOTATED if "annotation" in argument else parameter["format"], is_multiple


def _code_of_descriptor(descriptor: Any) -> Code:
    return (descriptor.dtype, descriptor.block, None) if descriptor is not None else keys.OTHER


def _code_of_default(argument: Argument) -> Code:
    return _code_of_value(constants.decode(argument.get("default")))


def _code_of_value(value: Any) -> Code:
    """Return the code of a constant; the two zeros are two floats, and NaN is one."""
    if isinstance(value, tuple):
        return tuple, tuple([_code_of_value(item) for item in value])
    return type(value), str(value) if type(value) is float and (value == 0 or value != value) else value  # noqa: PLR0124


def _code_of_constant(arg: Any, *, names_types: bool = False) -> Code:
    """Return the code of an argument for a constexpr: types by name, "tl.float16", and enumerations by their value."""
    kind = type(arg)
    if kind is tuple:
        return tuple, tuple([_code_of_constant(item, names_types=names_types) for item in arg])
    if module_of(kind) == _OF_TRITON and kind.__name__ == "dtype":
        return str, f"tl.{_DTYPES.get(arg.name, arg.name)}"
    if module_of(kind) == _OF_TRITON and kind.__name__ == "constexpr":
        return _code_of_constant(arg.value, names_types=names_types)
    if module_of(kind) == "torch" and kind.__name__ == "dtype":
        return str, str(arg)
    for plain in (int, float, str):
        if isinstance(arg, plain) and kind is not bool:
            arg = plain.__str__(arg) if plain is str else plain(arg)
            break
    if isinstance(arg, str) and arg.startswith(_TYPE_NAMES) and not names_types:
        return keys.OTHER  # no constant string begins so
    return _code_of_value(arg) if arg is None or isinstance(arg, (int, float, str)) else keys.OTHER


def _rule_of_constant(at: int, arg: object, values: dict[Code, Code], *, names_types: bool) -> Rule:
    kind = type(arg)
    if kind in (int, bool, str):
        plain = {code[1]: code for code in values if code[0] is kind}
        if kind is str and not names_types:
            plain = {value: code for value, code in plain.items() if not value.startswith(_TYPE_NAMES)}

        def plain_code(value: Any) -> Code:
            return plain.get(value, keys.OTHER)

        return Rule(scalars.read_plain, coder=Coder(at, plain_code, is_value=True))

    def constant_code(value: Any) -> Code:
        return values.get(_code_of_constant(value, names_types=names_types), keys.OTHER)

    return Rule(scalars.read_plain, coder=Coder(at, constant_code, is_value=True))


def _rule_of_adopting(at: int, arg: object, argument: Argument) -> Rule:
    """Return the rule for a number that adopts the type of a parameter."""
    read = scalars.reader(arg)
    if scalars.kind_of(arg) not in ("bool", "int"):
        return Rule(read, (_NUMBER, False, False))
    hints = argument.get("hints")
    finds_one = hints != "none" and "annotation" not in argument
    tests: list[keys.Test] = [("multiple", _ALIGNMENT)] if hints is None else []

    def code(number: int) -> Code:
        return _NUMBER, bool(tests) and number % _ALIGNMENT == 0, finds_one and number == 1

    return Rule(read, coder=Coder(at, code, [*tests, ("equal", 1)] if finds_one else tests))


def _rule_of_int(at: int, read: Read, argument: Argument) -> Rule:
    hints = argument.get("hints")
    multiples: list[keys.Test] = [("multiple", _ALIGNMENT)] if hints is None else []
    if "annotation" in argument:
        if not multiples or argument["annotation"][0] not in "iu" or argument["annotation"] in ("i1", "u1"):
            return Rule(read, (_ANNOTATED, False))
        return Rule(read, coder=Coder(at, lambda number: (_ANNOTATED, number % _ALIGNMENT == 0), multiples))
    finds_one = hints != "none"

    def code(number: int) -> Code:
        if finds_one and number == 1:
            return _ONE
        for form, least, end in _LIMITS:
            if least <= number < end:
                return form, bool(multiples) and number % _ALIGNMENT == 0
        return keys.OTHER

    tests: list[keys.Test] = [*multiples, ("equal", 1)] if finds_one else multiples
    return Rule(read, coder=Coder(at, code, tests, has_type=True))


def _rule_of_array(at: int, read: Read, argument: Argument) -> Rule:
    multiples = argument.get("hints") is None

    def code(view: Any) -> Code:
        return (view[0], multiples and view[1] % _ALIGNMENT == 0) if view is not None else keys.OTHER

    tests: list[keys.Test] = [("multiple", _ALIGNMENT)] if multiples else []
    return Rule(read, coder=Coder(at, code, tests, any_dimensions=True))
