"""Correct numba-cuda-mlir's lowering where it makes wrong code without an error.

- Functions that call each other are refused, since the compiler takes each call for one of the function itself.
- A foreign function in the Numba ABI ends the thread if its status is not 0; the compiler ignores the status.
- Debug builds raise division by zero; the compiler's code goes on.
- Elements of arrays of records are found by strides and, from the end, by negative indices; fields of whole arrays are
  refused if the compiler would round their strides.

What the compiler refuses is its own error.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import lowering_utilities, mlir_lowering
from numba_cuda_mlir._mlir.dialects import arith, llvm, memref
from numba_cuda_mlir._mlir.extras import types as T  # noqa: N812 (as the compiler calls it)
from numba_cuda_mlir.mlir.dialect_exts import scf
from numba_cuda_mlir.mlir_lowering import MLIRLower
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Builder = Callable[[Any, Any, Sequence[Any], Any], None]
    Fails = Callable[[str, str, Any, Any], int | None]

PRIVATE_PARTS = {
    "numba_cuda_mlir.mlir_lowering:MLIRLower._get_registered_builder": "(self, fn, signature)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower._extract_callable_from_var": "(self, var)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower._lower_call_external_numba_abi": "(self, target, fn_value, args)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.build_recursive_call": "(self, target, fn_type, args, kws=None)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower._lower_record_array_field_view": "(self, target, value, attr)",
    "numba_cuda_mlir.mlir_lowering:func": "module",
}


_DYNAMIC_INDEX = -(2**31)
"""The constant index of `getelementptr` that represents an index in a value (LLVM dialect, `kDynamicIndex`)."""

_DIVIDING = (
    *(operator.truediv, operator.floordiv, operator.mod),
    *(operator.itruediv, operator.ifloordiv, operator.imod),
)


def install(fails: Fails) -> None:
    """Install the corrections.

    `fails(kind, arguments, where, lower)` records an exception and returns its error code, which is 0 outside of debug
    builds and None in functions with the C ABI, which cannot report exceptions.
    """
    _add_builders(fails)
    _view_fields()
    _check_status(fails)
    _refuse_recursion()


def _add_builders(fails: Fails) -> None:
    original = MLIRLower._get_registered_builder

    def find(self: Any, fn: Any, signature: Any) -> Any:
        called = self._extract_callable_from_var(fn) if isinstance(fn, numba_ir.Var) else fn
        if called in (operator.getitem, operator.setitem, "static_getitem") and signature.args:
            builder = _record_builder(called, signature.args)
            if builder is not None:
                return builder
        registered = original(self, fn, signature)
        if (
            registered is not None
            and called in _DIVIDING
            and isinstance(signature.args[1], types.Integer | types.Float)
        ):
            return _with_divisor_check(registered, fails)
        return registered

    MLIRLower._get_registered_builder = find


def _with_divisor_check(builder: Builder, fails: Fails) -> Builder:
    def divide(lower: Any, target: Any, args: Sequence[Any], kws: Any) -> None:
        if code := fails("ZeroDivisionError", "division by zero", args[1].loc, lower):
            divisor = lower.load_var(args[1])
            if isinstance(lower.get_numba_type(args[1].name), types.Float):
                zero = arith.cmpf(arith.CmpFPredicate.OEQ, divisor, arith.constant(divisor.type, 0.0))
            else:
                zero = arith.cmpi(arith.CmpIPredicate.eq, divisor, arith.constant(divisor.type, 0))
            _end_thread(lower, zero, code)
        builder(lower, target, args, kws)

    return divide


def _end_thread(lower: Any, condition: Any, code: Any) -> None:
    with scf.if_ctx_manager(condition):
        if code:
            lower.set_error_code(code)
        _exit()
        scf.yield_([])


def report_and_exit(kind: type, lower: Any, code: Any) -> None:
    """End the thread with an error code, by the method of `kind`, the class of `lower`."""
    kind.set_error_code(lower, code)  # type: ignore[attr-defined]
    _exit()


def _exit() -> None:
    llvm.inline_asm(None, [], "exit;", "", has_side_effects=True)


# Arrays of records are memrefs of bytes, whose sizes, strides and offset count records.


def _record_builder(called: Any, args: Sequence[Any]) -> Builder | None:
    array, index = args[0], args[1] if len(args) > 1 else None
    if not isinstance(array, types.Array) or isinstance(array, types.NestedArray):
        return None
    if not isinstance(array.dtype, types.Record):
        return None
    indices = list(index) if isinstance(index, types.BaseTuple) else [index]
    if len(indices) != array.ndim or not all(isinstance(one, types.Integer) for one in indices):
        return None
    if called is not operator.setitem:
        return _get_record
    return _set_record if isinstance(args[2], types.Record) else None


def _get_record(lower: Any, target: Any, args: Sequence[Any], _: Any) -> None:
    lower.store_var(target, _place_of_record(lower, *args[:2]))


def _set_record(lower: Any, _: Any, args: Sequence[Any], __: Any) -> None:
    size = arith.constant(T.i64(), lower.get_numba_type(args[0].name).dtype.size)
    llvm.intr_memcpy(_place_of_record(lower, *args[:2]), lower.load_var(args[2]), size, False)


def _place_of_record(lower: Any, array_var: Any, index_var: Any) -> Any:
    """Return the address of one record of an array."""
    array_type, array = lower.get_numba_type(array_var.name), lower.load_var(array_var)
    index = index_var if isinstance(index_var, int) else lower.load_var(index_var)
    index_type = types.int64 if isinstance(index_var, int) else lower.get_numba_type(index_var.name)
    indices = index if isinstance(index, tuple) else (index,)
    index_types = list(index_type) if isinstance(index_type, types.BaseTuple) else [index_type]
    _, offset, *rest = memref.extract_strided_metadata(array)
    sizes, strides = rest[: array_type.ndim], rest[array_type.ndim :]
    record = _to_int64(offset)
    for one, ty, size, stride in zip(indices, index_types, sizes, strides, strict=True):
        record = arith.addi(record, arith.muli(_nonnegative_index(one, ty, _to_int64(size)), _to_int64(stride)))
    offset_in_bytes = arith.muli(record, arith.constant(T.i64(), array_type.dtype.size))
    return _advance(_data(array, _to_int64(offset)), offset_in_bytes)


def _data(array: Any, offset: Any) -> Any:
    """Return the address of an array's data, without its offset."""
    of_memref = getattr(lowering_utilities, "memref_data_pointer", None)
    if of_memref is None:  # releases before 0.5.4
        return llvm.inttoptr(llvm.PointerType.get(), _to_int64(memref.extract_aligned_pointer_as_index(array)))
    # The result includes the offset in bytes. Other ways to the address lose its address space.
    return _advance(of_memref(array), arith.subi(arith.constant(T.i64(), 0), offset))


def _advance(pointer: Any, offset_in_bytes: Any) -> Any:
    return llvm.getelementptr(pointer.type, pointer, [offset_in_bytes], [_DYNAMIC_INDEX], T.i8(), None)


def _to_int64(value: Any, *, signed: bool = True) -> Any:
    return lowering_utilities.convert(value, T.i64(), signed=signed)


def _nonnegative_index(index: Any, ty: Any, size: Any) -> Any:
    """Return an index, counted from the end if it is negative."""
    if isinstance(index, int):
        index = arith.constant(T.i64(), index)
    signed = ty.signed
    index = _to_int64(index, signed=signed)
    if not signed:
        return index
    negative = arith.cmpi(arith.CmpIPredicate.slt, index, arith.constant(T.i64(), 0))
    return arith.select(negative, arith.addi(index, size), index)


def _view_fields() -> None:
    # The compiler counts the strides of `records.x` in elements of x, and rounds.
    original = MLIRLower._lower_record_array_field_view

    def lower_field_view(self: Any, target: Any, value: Any, attr: str) -> None:
        record = self.get_numba_type(value.name).dtype
        size = record.fields[attr].type.bitwidth // 8
        if record.size % size:
            message = (
                f"it takes the field {attr} of a whole array of records; a record has {record.size} bytes, which is no "
                f"multiple of that field's {size}, and numba-cuda-mlir counts in fields; read it from each "
                f"record, as in array[i].{attr}, or align the dtype"
            )
            raise CompileError(message)
        original(self, target, value, attr)

    MLIRLower._lower_record_array_field_view = lower_field_view


class _CallRecorder:
    """A wrapper of MLIR's dialect of functions that stores the result of the last call."""

    def __init__(self, dialect: Any) -> None:
        self._dialect = dialect
        self.result: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def call(self, *args: Any, **more: Any) -> Any:
        self.result = self._dialect.call(*args, **more)
        return self.result


def _check_status(fails: Fails) -> None:
    # Numba-CUDA returns a status that is not 0 through all helpers, and then from the kernel.
    original = MLIRLower._lower_call_external_numba_abi

    def lower_call(self: Any, target: Any, fn_value: Any, args: Any) -> None:
        dialect = mlir_lowering.func
        recording = _CallRecorder(dialect)
        mlir_lowering.func = recording
        try:
            original(self, target, fn_value, args)
        finally:
            mlir_lowering.func = dialect
        status = recording.result
        code = fails("RuntimeError", f"the foreign function {fn_value.name} failed", target.loc, self)
        if code is not None:
            _end_thread(self, arith.cmpi(arith.CmpIPredicate.ne, status, arith.constant(T.i32(), 0)), code)

    MLIRLower._lower_call_external_numba_abi = lower_call


def _refuse_recursion() -> None:
    # The compiler lowers every recursive call to a call of the function that contains it.
    original = MLIRLower.build_recursive_call

    def build_recursive_call(self: Any, target: Any, fn_type: Any, args: Any, kws: Any = None) -> Any:
        if fn_type.dispatcher_type.dispatcher.py_func is not self.func_ir.func_id.func:
            message = (
                "functions that it calls call each other in a circle, which numba-cuda-mlir cannot compile; make them "
                "one function"
            )
            raise CompileError(message)
        return original(self, target, fn_type, args, kws)

    MLIRLower.build_recursive_call = build_recursive_call
