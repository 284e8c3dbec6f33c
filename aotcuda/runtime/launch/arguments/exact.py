"""Exact kernels: an overload is launched only for the arguments for which Triton's JIT would compile it.

Triton specializes a kernel for the types of its arguments, for integers that are 1 or divisible by 16, for addresses
that are divisible by 16, and for the values of constants and options. A key has a code for each argument. Each overload
has one key, and a launch takes the overload whose key equals the key of its arguments.
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

import aotcuda
from aotcuda.runtime import module_of
from aotcuda.runtime.launch.arguments import arrays, descriptors, keys, scalars
from aotcuda.runtime.launch.arguments.argument_layout import PackedOverload
from aotcuda.runtime.launch.arguments.keys import Coder
from aotcuda.runtime.launch.arguments.overloads import Candidates, OverloadTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.errors import ArgumentError
    from aotcuda.manifest import Argument, Kernel, Parameter
    from aotcuda.runtime.driver import ValidityFlag
    from aotcuda.runtime.launch.arguments.overloads import Specialization
    from aotcuda.runtime.launch.arguments.scalars import Read

    Code = Any
    """`(format, is a multiple)` of a number, `(dtype, is a multiple)` of an array, `(type, value)` of a constant,
    `(dtype, block shape, None)` of a tensor descriptor."""

_ALIGNMENT = 16
_MOST_TYPES = 1024
_ANNOTATED = "annotated"
_NONE: Code = (type(None), None)
_ONE: Code = (int, 1)
_LIMITS = (("i", -(2**31), 2**31), ("q", -(2**63), 2**63), ("Q", 0, 2**64))
_OF_TRITON = "triton.language.core"
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
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


class ExactOverloads(OverloadTable):
    """The overloads of an exact kernel. The first launch of an overload prepares it, since there may be thousands."""

    __slots__ = ("_arguments", "_keys", "_prepared", "_records", "_values")

    def __init__(
        self, kernel: Kernel, where: str, live: ValidityFlag, device: Callable[[], int | None] = lambda: None
    ) -> None:
        """Implement OverloadTable.__init__."""
        super().__init__({**kernel, "overloads": []}, where, live, device)
        self._records = kernel["overloads"]
        self._arguments = kernel.get("arguments", [])
        self._prepared: dict[int, PackedOverload] = {}
        self._keys: dict[tuple[Code, ...], list[int]] = {}
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

    def is_idle(self) -> bool:
        """Implement OverloadTable.is_idle."""
        return all(overload.is_idle() for overload in [*self._prepared.values()])

    def refusal(self, args: tuple[object, ...]) -> ArgumentError:
        """Implement OverloadTable.refusal."""
        return aotcuda.errors.MissingVariantError(lambda: self._explain(args))

    def read_error(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> ArgumentError:
        """Implement OverloadTable.read_error."""
        return aotcuda.errors.MissingVariantError(lambda: self._explain_read_error(args, error, at))

    def find_miss(self, args: tuple[object, ...]) -> Specialization | None:
        """Return the specialization of arguments that no overload accepts; it has no overloads.

        None if the types of the arguments exclude all overloads, or if an overload accepts them.
        """
        try:
            candidates = self.candidates(args)
            if candidates is None or not candidates.readers:
                return None
            pairs = zip(candidates.readers, args, strict=True)
            specialization = candidates.specialization([read(arg, [], 0) if read else arg for read, arg in pairs])
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

    def _rank(self, key: object, args: tuple[object, ...]) -> Candidates:
        """Make the candidates of arguments of these types."""
        rules: list[Rule | None] = [None]
        try:
            if len(args) == len(self._arguments):
                rules = [self._rule(at, arg) for at, arg in enumerate(args)]
        except (aotcuda.errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.read_error(args, error) from error
        complete = [rule for rule in rules if rule is not None]
        is_complete = len(complete) == len(rules)
        candidates = self._make_candidates(complete, args) if is_complete else Candidates([], [], (), [], None)
        if len(self._candidates) >= _MOST_TYPES:
            self._candidates.clear()
        self._candidates[key] = candidates
        return candidates

    def _make_candidates(self, rules: list[Rule], args: tuple[object, ...]) -> Candidates:
        fixed = [rule.code for rule in rules]
        coders = [rule.coder for rule in rules if rule.coder is not None]

        def find(codes: tuple[Code, ...]) -> list[PackedOverload]:
            key = [*fixed]
            for coder, code in zip(coders, codes, strict=True):
                key[coder.at] = code
            return [self._overload(number) for number in self._keys.get(tuple(key), ())]

        return Candidates([], [rule.read for rule in rules], args, coders, find)

    def _rule(self, at: int, arg: object) -> Rule | None:
        """Return the rule for arguments of the type of `arg`; None if no overload accepts the type."""
        argument, values = self._arguments[at], self._values[at]
        if arg is None:
            is_option = argument.get("keyword", False)  # an option that is None has its default
            return Rule(scalars.read_plain, _code_of_value(argument.get("default")) if is_option else _NONE)
        if values is not None:
            return _rule_of_constant(at, arg, values)
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
        read = None if arrays.is_open(type(arg)) else arrays.reader(arg)
        return _rule_of_array(at, read, argument) if read is not None else None

    def _explain_read_error(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> str:
        """Return the text of an error: an argument cannot be read."""
        from aotcuda.runtime.launch.arguments import errors  # noqa: PLC0415 (only errors come here)

        first = [self._overload(0)] if self._records else []
        return str(errors.read_error(self._where, first, args, at, error))

    def _explain(self, args: tuple[object, ...]) -> str:
        """Return the text of an error, with the nearest variant and its differences."""
        from aotcuda.runtime.launch.arguments import errors  # noqa: PLC0415 (only errors come here)

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
        return errors.explain_missing_variant(self._where, self._records, numbers, args, codes)


def _code(parameter: Parameter, argument: Argument) -> Code:
    """Return the code of the arguments that a parameter accepts."""
    is_multiple = parameter.get("divisor") == _ALIGNMENT
    if parameter["kind"] == "constant":
        return _code_of_value(parameter["value"])
    if parameter["kind"] == "elements":
        return parameter["dtype"], is_multiple
    if parameter["kind"] == "descriptor":
        return parameter["dtype"], tuple(parameter["block"]), None
    return _ANNOTATED if "annotation" in argument else parameter["format"], is_multiple


def _code_of_descriptor(descriptor: Any) -> Code:
    return (descriptor.dtype, descriptor.block, None) if descriptor is not None else keys.OTHER


def _code_of_value(value: Any) -> Code:
    """Return the code of a constant; the two zeros are two floats."""
    if isinstance(value, list | tuple):
        return tuple, tuple([_code_of_value(item) for item in value])
    return type(value), str(value) if type(value) is float and value == 0 else value


def _code_of_constant(arg: Any) -> Code:
    """Return the code of an argument for a constexpr; Triton's types are packaged by name, such as "tl.float16"."""
    kind = type(arg)
    if kind is str:
        return keys.OTHER if arg.startswith("tl.") else (str, arg)
    if kind is tuple:
        return tuple, tuple([_code_of_constant(item) for item in arg])
    if module_of(kind) == _OF_TRITON and kind.__name__ == "dtype":
        return str, f"tl.{_DTYPES.get(arg.name, arg.name)}"
    if module_of(kind) == _OF_TRITON and kind.__name__ == "constexpr":
        return _code_of_constant(arg.value)
    return _code_of_value(arg) if kind in (int, bool, float) or arg is None else keys.OTHER


def _rule_of_constant(at: int, arg: object, values: dict[Code, Code]) -> Rule:
    kind = type(arg)
    if kind in (int, bool, str):
        plain = {code[1]: code for code in values if code[0] is kind}
        if kind is str:
            plain = {value: code for value, code in plain.items() if not value.startswith("tl.")}

        def plain_code(value: Any) -> Code:
            return plain.get(value, keys.OTHER)

        return Rule(scalars.read_plain, coder=Coder(at, plain_code, is_value=True))

    def constant_code(value: Any) -> Code:
        return values.get(_code_of_constant(value), keys.OTHER)

    return Rule(scalars.read_plain, coder=Coder(at, constant_code, is_value=True))


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
