"""Recognise known faults of the installed release of numba-cuda-mlir in the typed code of functions.

`fault_table` lists the faults. Each lowered function is searched once, helpers included.
"""

from __future__ import annotations

import math
import operator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.mlir_lowering import MLIRLower
from numba_cuda_mlir.numba_cuda import stubs, types
from numba_cuda_mlir.numba_cuda.core import ir

from aotcuda.builder.frontends.error_table import relative
from aotcuda.builder.frontends.numba_cuda_mlir.fault_table import FAULTS
from aotcuda.builder.frontends.protocol import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Faults = Iterator[tuple[str, str]]
    """The name and the detail of each fault."""

PRIVATE_PARTS = {"numba_cuda_mlir.mlir_lowering:MLIRLower.lower_to_mlir": "(self)"}

_RELEASE = version("numba-cuda-mlir")
_NAME = f"numba-cuda-mlir {_RELEASE}"

_found: list[tuple[str, str, str]] = []
"""The name, the detail and the place of each fault in the current unit, in order."""

_ATOMIC = {getattr(stubs.atomic, name): name for name in vars(stubs.atomic) if not name.startswith("_")}
_EXACT = frozenset(["ceil", "copysign", "fabs", "floor", "isfinite", "isinf", "isnan", "ldexp", "pow", "trunc"])
_FLOAT32 = {getattr(math, name): name for name in dir(math) if callable(getattr(math, name)) and name not in _EXACT}
_BITS = (operator.and_, operator.or_, operator.xor, operator.iand, operator.ior, operator.ixor)
_ORDERS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def install() -> None:
    """Search each function before it is lowered."""
    original = MLIRLower.lower_to_mlir

    def lower_to_mlir(self: Any) -> None:
        code = _Code(self)
        for block in self.func_ir.blocks.values():
            for statement in block.body:
                for name, detail in code.faults(statement):
                    if _RELEASE in FAULTS[name].releases:
                        _found.append((name, detail, f"{statement.loc.filename}:{statement.loc.line}"))
        original(self)

    MLIRLower.lower_to_mlir = lower_to_mlir


@contextmanager
def record(root: str) -> Iterator[list[Fault]]:
    """Record known faults of code that the compiler compiles in the context; paths are relative to `root`."""
    faults: list[Fault] = []
    _found.clear()
    yield faults
    for name, detail, place in dict.fromkeys(_found):
        fault = FAULTS[name]
        faults.append(
            Fault(compiler=_NAME, place=relative(place, root), fact=fault.fact.format(detail), remedy=fault.remedy)
        )


class _Code:
    """A typed function."""

    def __init__(self, lower: Any) -> None:
        self.types = lower.fndesc.typemap
        self.code = lower.func_ir

    def faults(self, statement: Any) -> Faults:
        """Return the name and the detail of each fault in a statement."""
        value = statement.value if isinstance(statement, ir.Assign) else statement
        if isinstance(value, ir.SetItem):
            yield from self._subscript(value.target, value.index)
        elif isinstance(value, ir.StaticSetItem):
            yield from self._static_subscript(value.target, value.index, value.index_var)
        elif isinstance(value, ir.SetAttr):
            yield from self._field(value.target, value.attr)
        elif not isinstance(value, ir.Expr):
            return
        elif value.op == "getitem":
            yield from self._subscript(value.value, value.index)
        elif value.op == "static_getitem":
            yield from self._static_subscript(value.value, value.index, value.index_var)
        elif value.op == "getattr":
            yield from self._field(value.value, value.attr)
        elif value.op == "call":
            yield from self._call(getattr(self.types[value.func.name], "typing_key", None), value.args)
        elif value.op in ("binop", "inplace_binop"):
            yield from self._operation(value.fn, self._type(value.lhs), self._type(value.rhs))
        elif value.op == "unary":
            yield from self._sign(value.fn, self._type(value.value))

    def _type(self, var: Any) -> Any:
        return self.types[var.name]

    def _constant(self, var: Any) -> Any:
        """Return the constant integer of a variable; None for other variables."""
        literal = getattr(self._type(var), "literal_value", None)
        return literal if isinstance(literal, int) else None

    # Indices.

    def _subscript(self, array: Any, index: Any) -> Faults:
        array_type, index_type = self._type(array), self._type(index)
        if isinstance(array_type, types.Array):
            yield from self._index(array_type, index_type, index)

    def _static_subscript(self, array: Any, index: Any, var: Any) -> Faults:
        array_type = self._type(array)
        if isinstance(index, str):
            yield from self._field(array, index)
        elif isinstance(array_type, types.Array):
            if isinstance(index, slice):
                yield from _bounds(index.start, index.stop, index.step)
            elif isinstance(index, tuple):
                for one in index:
                    if isinstance(one, slice):
                        yield from _bounds(one.start, one.stop, one.step)
            if var is not None and not isinstance(index, slice | tuple):
                yield from self._index(array_type, self._type(var), var)

    def _index(self, array: Any, index: Any, var: Any) -> Faults:
        members = self._members(var) if isinstance(index, types.BaseTuple) else [var]
        scalar = all(isinstance(self._type(one), types.Integer) for one in members)
        if isinstance(array.dtype, types.Record) and scalar:
            return  # `corrections` computes these addresses
        for one in members:
            kind = self._type(one)
            if _is_narrow(kind):
                yield "unsigned-index", str(kind)
            elif isinstance(kind, types.SliceType):
                yield from self._slice(one)

    def _members(self, var: Any) -> list[Any]:
        definition = self._definition(var)
        is_tuple = isinstance(definition, ir.Expr) and definition.op == "build_tuple"
        return list(definition.items) if is_tuple else []

    def _slice(self, var: Any) -> Faults:
        definition = self._definition(var)
        if isinstance(definition, ir.Expr) and definition.op == "call":
            bounds = [self._bound(argument) for argument in definition.args]
            yield from _bounds(*(bounds if len(bounds) == 3 else [*bounds, None]))

    def _bound(self, var: Any) -> Any:
        """Return a bound of a slice: a constant, None for an absent bound, or the type of a value at run time."""
        kind, constant = self._type(var), self._constant(var)
        if isinstance(kind, types.NoneType):
            return None
        return kind if constant is None else constant

    def _definition(self, var: Any) -> Any:
        try:
            return self.code.get_definition(var)
        except KeyError:
            return None  # the variable has several definitions

    # Calls and operators.

    def _call(self, function: Any, args: Iterable[Any]) -> Faults:
        args = list(args)
        kinds = [self._type(one) for one in args]
        if function is range:
            yield from (("unsigned-range", str(kind)) for kind in kinds if _is_narrow(kind))
        elif function in (min, max):
            yield from (("unsigned-extreme", str(kind)) for kind in kinds if _is_unsigned(kind))
        elif function is round and len(kinds) == 1 and isinstance(kinds[0], types.Float):
            yield "round", str(kinds[0])
        elif _hashable(function) and function in _FLOAT32:
            if kinds and isinstance(kinds[0], types.Integer) and kinds[0].bitwidth < 64:
                yield "integer-math", f"{_FLOAT32[function]} of {kinds[0]}"
        elif _hashable(function) and function in _ATOMIC and len(args) > 2 and isinstance(kinds[0], types.Array):
            yield from self._atomic(_ATOMIC[function], kinds[0].dtype, args[1], kinds[2:])

    def _atomic(self, name: str, element: Any, index: Any, values: Iterable[Any]) -> Faults:
        for one in self._members(index) if isinstance(self._type(index), types.BaseTuple) else [index]:
            kind, constant = self._type(one), self._constant(one)
            if _is_narrow(kind):
                yield "atomic-index", str(kind)
            elif constant is not None and constant < 0:
                yield "negative-atomic-index", str(constant)
        for kind in values:
            if not isinstance(kind, types.Integer):
                continue
            narrow = isinstance(element, types.Integer) and kind.signed and kind.bitwidth < element.bitwidth
            if narrow or (isinstance(element, types.Float) and not kind.signed):
                yield "atomic-value", f"{kind} to {element}"
        if name in ("max", "min", "nanmax", "nanmin") and _is_unsigned(element):
            yield "atomic-extreme", str(element)

    def _operation(self, function: Any, a: Any, b: Any) -> Faults:
        integers = isinstance(a, types.Integer) and isinstance(b, types.Integer)
        if function in (operator.pow, operator.ipow):
            if integers and a.bitwidth < 64:
                yield "integer-power", str(a)
        elif function in _BITS:
            if integers and a.signed != b.signed:
                signed, unsigned = (a, b) if a.signed else (b, a)
                if signed.bitwidth <= unsigned.bitwidth < 64:
                    yield "mixed-bits", f"{a} and {b}"
        elif function in _ORDERS:
            if function is operator.ne and isinstance(a, types.Float) and isinstance(b, types.Float):
                yield "nan-unequal", str(a)
            for one, other in ((a, b), (b, a)):
                if _is_unsigned(one) and one.bitwidth == 64 and isinstance(other, types.Float):
                    yield "unsigned-compare", f"{a} and {b}"

    def _sign(self, function: Any, kind: Any) -> Faults:
        if function is operator.not_ and isinstance(kind, types.Float):
            yield "nan-not", str(kind)
        elif function in (operator.neg, operator.invert) and _is_narrow(kind):
            yield "unsigned-negation", str(kind)

    def _field(self, var: Any, name: str) -> Faults:
        kind = self._type(var)
        record = kind.dtype if isinstance(kind, types.Array) else kind
        if not isinstance(record, types.Record) or name not in record.fields:
            return
        field = record.fields[name]
        size = getattr(field.type, "bitwidth", 8) // 8
        if size and (field.offset % size or record.size % size):
            yield "unaligned-field", name


def _bounds(start: Any, stop: Any, step: Any) -> Faults:
    """Return the faults of a slice; `_Code._bound` describes the arguments."""
    for bound in (start, stop):
        if isinstance(bound, int) and bound < 0:
            yield "slice-bound", str(bound)
    if step not in (None, 1):
        yield "slice-step", str(step)


def _is_unsigned(kind: Any) -> bool:
    return isinstance(kind, types.Integer) and not kind.signed


def _is_narrow(kind: Any) -> bool:
    """Return True for unsigned integers that the compiler extends to 64 bits."""
    return _is_unsigned(kind) and kind.bitwidth < 64


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None
