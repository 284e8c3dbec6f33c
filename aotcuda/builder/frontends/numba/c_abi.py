"""Make the C prototype of an exported function.

| Numba | argument | result |
|---|---|---|
| numbers, bool | the C type of the same size; float16 as its bits | the same |
| complex | two floats or a struct of two, by the compiler | a struct of two |
| datetimes | the count, as `long long` | the same |
| `CPointer` | a pointer; `void *` if C has no type for its element | the same |
| records | a pointer to a struct | refused |
| tuples | one argument for each item | a struct of the items; nested tuples by the compiler |
| arrays | the parts of the compiler's array descriptor | refused |
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from aotcuda.builder.emit.c_header import c_types
from aotcuda.builder.frontends.numba import units
from aotcuda.builder.frontends.protocol import CompiledFunction
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FunctionType

    from aotcuda.builder.frontends.numba.calling_convention import CallingConvention
    from aotcuda.builder.frontends.numba.config import NumbaUnit


def prototype(
    convention: CallingConvention, unit: NumbaUnit, python: FunctionType, args: Sequence[Any], result: Any
) -> CompiledFunction:
    """Return the prototype of `python` for these types, as a compiled function without code.

    Raises:
        CompileError: A type has no counterpart in the C ABI.
    """
    abi = _Abi(convention, unit, python)
    names = inspect.signature(python).parameters
    parameters = [part for name, ty in zip(names, args, strict=True) for part in abi.parameter(name, ty)]
    returned = abi.result(result)
    return CompiledFunction(
        ir=b"",
        signature=convention.notation.spell_signature(result, args),
        result=returned,
        parameters=tuple(parameters),
        structs=tuple(abi.structs.definitions.items()),
        records=tuple(abi.structs.records.items()),
    )


class _Abi:
    def __init__(self, convention: CallingConvention, unit: NumbaUnit, python: FunctionType) -> None:
        self._convention = convention
        self._notation = convention.notation
        self._types = convention.notation.types
        self._where = f"{unit.key}: {unit.signature}"
        self.structs = c_types.Structs(unit.symbol, unit.module, _named_records(unit, python, convention))

    def parameter(self, name: str, ty: Any) -> list[tuple[str, str]]:
        """Return `(C type, name)` of each C parameter that an argument becomes."""
        notation, types = self._notation, self._types
        if (kind := self._value(ty)) is not None:
            return [(kind, name)]
        if notation.is_complex(ty):
            return self._convention.c_complex(name, ty)
        if isinstance(ty, types.Record) and (struct := self._record(ty)) is not None:
            return [(f"{struct} *", name)]
        if isinstance(ty, types.BaseTuple):
            return [part for index, item in enumerate(ty) for part in self.parameter(f"{name}_{index}", item)]
        if isinstance(ty, types.Array):
            pointer = self._pointer(ty.dtype)
            return [(word.c_type or pointer, f"{name}_{word.name}") for word in self._convention.array_words(ty.ndim)]
        message = (
            f"{self._where}: argument {name!r} is of type {notation.spell(ty)}, which has no type in the C ABI; "
            "use a number, bool, complex, datetime, pointer, record, array, or tuple of these"
        )
        raise CompileError(message)

    def result(self, ty: Any) -> str:
        """Return the C type in which the function returns `ty`."""
        if ty in (self._types.none, self._types.void):
            return "void"
        if (kind := self._result_scalar(ty)) is not None:
            return kind
        if isinstance(ty, self._types.BaseTuple) and len(ty):
            return self.structs.result(self._items(ty, ty))
        raise self._result_error(ty)

    def _items(self, ty: Any, result: Any, prefix: str = "item") -> list[str]:
        """Return the declarations of a tuple's items as members of a struct; the tuple is part of the type `result`."""
        members = []
        for index, item in enumerate(ty):
            name = f"{prefix}{index}"
            if (kind := self._result_scalar(item)) is not None:
                members.append(c_types.declare(kind, name))
            elif isinstance(item, self._types.BaseTuple) and len(item):
                if self._convention.nests_results:
                    members.append(c_types.tuple_member(self._items(item, result), name))
                else:
                    members += self._items(item, result, f"{name}_")
            else:
                raise self._result_error(result)
        return members

    def _result_error(self, ty: Any) -> CompileError:
        return CompileError(
            f"{self._where}: it returns {self._notation.spell(ty)}, which has no type in the C ABI; return a number, "
            "bool, complex, datetime, pointer or a tuple of these, or write through a pointer argument"
        )

    def _result_scalar(self, ty: Any) -> str | None:
        return self._notation.c_scalar(ty) if self._notation.is_complex(ty) else self._value(ty)

    def _value(self, ty: Any) -> str | None:
        """Return the C type of a Numba type that is one value in C; None for all others."""
        if ty in self._notation.formats:
            return self._notation.c_scalar(ty)
        if isinstance(ty, self._types.NPDatetime | self._types.NPTimedelta):
            return "long long"
        return self._pointer(getattr(ty, "dtype", None)) if self._notation.is_pointer(ty) else None

    def _pointer(self, pointee: Any) -> str:
        """Return the C type of a pointer to `pointee`."""
        target = None
        if isinstance(pointee, self._types.Record):
            target = self._record(pointee)
        elif pointee is not None:
            target = self._result_scalar(pointee)
        return c_types.declare(target or "void", "*")

    def _record(self, ty: Any) -> str | None:
        """Return the name of a record's struct; None if C has no type for one of its fields."""
        try:
            return self.structs.record(self._convention.notation.dtype(ty), self._notation.spell(ty))
        except NotImplementedError:
            return None


def _named_records(unit: NumbaUnit, python: FunctionType, convention: CallingConvention) -> dict[str, Any]:
    """Return the structured dtypes that a signature may name."""
    records = {}
    for name, value in units.namespace(unit, python).items():
        dtype = convention.notation.dtype(value) if isinstance(value, convention.notation.types.Record) else value
        if isinstance(dtype, np.dtype) and dtype.names is not None:
            records[name] = dtype
    return records
