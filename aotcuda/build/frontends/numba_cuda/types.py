"""Numba's types as the rest of aotcuda needs them: signatures, parameter blocks and C types.

The parameter layout follows `numba.cuda.dispatcher._Kernel._prepare_args` and Numba's data models: every argument is
flattened into machine-level parameters, each at its natural alignment, as PTX lays out a kernel's parameters
(PTX ISA, "Kernel Function Parameters"). The build checks the result against the linked image.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numba.cuda import types
from numba.cuda.core import sigutils
from numba.cuda.np import numpy_support

from aotcuda.dtypes import structured
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.manifest import Parameter

_FORMATS = {
    types.boolean: "?",
    types.int8: "b",
    types.uint8: "B",
    types.int16: "h",
    types.uint16: "H",
    types.int32: "i",
    types.uint32: "I",
    types.int64: "q",
    types.uint64: "Q",
    types.float16: "e",
    types.float32: "f",
    types.float64: "d",
}
_SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "e": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}
_C_TYPES = {
    "?": "bool",
    "b": "signed char",
    "B": "unsigned char",
    "h": "short",
    "H": "unsigned short",
    "i": "int",
    "I": "unsigned int",
    "q": "long long",
    "Q": "unsigned long long",
    "e": "unsigned short",
    "f": "float",
    "d": "double",
}


def parse_signature(text: str, namespace: Mapping[str, object]) -> tuple[tuple[Any, ...], Any]:
    """Argument types and return type (None if the text gives none) of a signature in Numba's notation.

    Args:
        text: The signature.
        namespace: The source module's globals. Numba types and NumPy dtypes among them may be named in the signature,
            which is how records are written: `void(particle[::1])` with `particle = np.dtype([...])` in the module.

    Raises:
        ValueError: The text is no signature; the message says why.
    """
    own = {
        name: numpy_support.from_dtype(value) if isinstance(value, np.dtype) else value
        for name, value in namespace.items()
        if isinstance(value, types.Type | np.dtype)
    }
    try:
        # As numba.cuda.core.sigutils does it, with more names.
        args, result = sigutils.normalize_signature(eval(text, {}, {**own, **vars(types)}))  # noqa: S307
    except Exception as error:
        reason = getattr(error, "msg", None) or str(error.args[0] if error.args else "")
        if isinstance(error, NameError):
            reason = f"{getattr(error, 'name', reason)!r} is no Numba type"
        raise ValueError(reason or "it must be made of Numba types, as void(float32[::1], int32)") from error
    return tuple(args), result


def spell(ty: Any) -> str:
    """A type in the notation that signatures are written in."""
    if isinstance(ty, types.Array):
        if not ty.mutable or not ty.aligned:
            extra = "".join(f", {flag}=True" for flag, on in (("readonly", not ty.mutable),) if on)
            return f"Array({spell(ty.dtype)}, {ty.ndim}, {ty.layout!r}{extra})"
        dims = {"C": [":"] * (ty.ndim - 1) + ["::1"], "F": ["::1"] + [":"] * (ty.ndim - 1)}.get(
            ty.layout, [":"] * ty.ndim
        )
        if ty.ndim == 0:
            return f"Array({spell(ty.dtype)}, 0, {ty.layout!r})"
        return f"{spell(ty.dtype)}[{', '.join(dims)}]"
    if isinstance(ty, types.UniTuple):
        return f"UniTuple({spell(ty.dtype)}, {ty.count})"
    if isinstance(ty, types.Tuple):
        return f"Tuple(({', '.join(spell(item) for item in ty)}{',' if len(ty) == 1 else ''}))"
    if isinstance(ty, types.CPointer):
        return f"CPointer({spell(ty.dtype)})"
    if isinstance(ty, types.Record):
        return f"Record({', '.join(f'{name}: {spell(field.type)}' for name, field in ty.fields.items())})"
    return {types.none: "void", types.bfloat16: "bfloat16"}.get(ty) or str(ty)


def spell_signature(result: Any, args: Sequence[Any]) -> str:
    """A signature in that notation."""
    return f"{spell(result)}({', '.join(map(spell, args))})"


@dataclass(slots=True)
class Layout:
    """A parameter block under construction: the Python arguments, and the machine-level parameters they become."""

    where: str
    parameters: list[Parameter] = field(default_factory=list)
    fields: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def add_argument(self, name: str, ty: Any) -> None:
        """Append one Python argument.

        Raises:
            CompileError: A packaged kernel cannot take an argument of this type.
        """
        self.parameters.append(self._describe(name, ty))

    def _place(self, size: int) -> int:
        offset = -(-self.size // size) * size
        self.fields.append((offset, size))
        self.size = offset + size
        return offset

    def _describe(self, name: str, ty: Any) -> Parameter:
        entry: dict[str, object] = {"name": name, "type": spell(ty)}
        if ty in _FORMATS:
            code = _FORMATS[ty]
            entry |= {"kind": "scalar", "format": code, "offset": self._place(_SIZES[code])}
        elif ty in (types.complex64, types.complex128):
            code = "f" if ty == types.complex64 else "d"
            offset = self._place(_SIZES[code])
            self._place(_SIZES[code])
            entry |= {"kind": "complex", "format": code, "offset": offset}
        elif isinstance(ty, types.CPointer | types.RawPointer):
            entry |= {"kind": "pointer", "offset": self._place(8)}
        elif isinstance(ty, types.NPDatetime | types.NPTimedelta):
            entry |= {"kind": "datetime", "dtype": numpy_support.as_dtype(ty).str, "offset": self._place(8)}
        elif isinstance(ty, types.Record):
            entry |= {"kind": "record", "dtype": _dtype_text(ty), "offset": self._place(8)}
        elif isinstance(ty, types.Array):
            entry |= self._describe_array(name, ty)
        elif isinstance(ty, types.BaseTuple):
            members = [self._describe(f"{name}[{index}]", item) for index, item in enumerate(ty)]
            entry |= {"kind": "tuple", "members": members, "offset": members[0]["offset"] if members else self.size}
        else:
            raise CompileError(self._refuse(name, ty))
        return cast("Parameter", entry)

    def _describe_array(self, name: str, ty: Any) -> dict[str, object]:
        try:
            dtype = _dtype_text(ty.dtype)
        except NotImplementedError:
            raise CompileError(self._refuse(name, ty)) from None
        words = ["zero", "zero", "items", "itemsize", "data"]
        words += [f"shape{axis}" for axis in range(ty.ndim)] + [f"stride{axis}" for axis in range(ty.ndim)]
        offsets = [self._place(8) for _ in words]
        return {
            "kind": "array",
            "offset": offsets[0],
            "dtype": dtype,
            "ndim": ty.ndim,
            "layout": ty.layout,
            "readonly": not ty.mutable,
            "words": words,
        }

    def _refuse(self, name: str, ty: Any) -> str:
        return (
            f"{self.where}: argument {name!r} is of type {spell(ty)}, which a packaged kernel cannot take; "
            "pass numbers, bool, complex, datetimes, records, pointers, arrays, or tuples of these"
        )


def _dtype_text(ty: Any) -> str:
    """The type of an array's elements as the manifest writes it.

    Raises:
        NotImplementedError: Arrays of it cannot be told apart by what they say of themselves.
    """
    if ty == types.bfloat16:
        return "bfloat16"
    dtype = numpy_support.as_dtype(ty)
    if dtype.kind not in "?biufcmMV":
        raise NotImplementedError
    return structured(dtype.str.replace("=", "<"), dtype.descr if dtype.names else None)


def c_result(ty: Any, where: str) -> str:
    """The C type in which a device function returns `ty`.

    Raises:
        CompileError: The C ABI has no such type here.
    """
    if ty in (types.none, types.void):
        return "void"
    if ty in (types.complex64, types.complex128):
        return f"aotcuda_{ty}"
    if ty in _FORMATS or isinstance(ty, types.CPointer | types.RawPointer):
        return _c_scalar(ty)
    message = (
        f"{where}: it returns {spell(ty)}, which has no type in the C ABI; return a number, bool, complex or pointer, "
        "or write through a pointer argument"
    )
    raise CompileError(message)


def c_parameters(name: str, ty: Any, where: str) -> list[tuple[str, str]]:
    """`(C type, name)` of each C parameter that one Python argument becomes.

    Raises:
        CompileError: The C ABI has no such type here.
    """
    if ty in _FORMATS or isinstance(ty, types.CPointer | types.RawPointer):
        return [(_c_scalar(ty), name)]
    if ty in (types.complex64, types.complex128):
        part = "float" if ty == types.complex64 else "double"
        return [(part, f"{name}_real"), (part, f"{name}_imag")]
    if isinstance(ty, types.BaseTuple):
        return [part for index, item in enumerate(ty) for part in c_parameters(f"{name}_{index}", item, where)]
    if isinstance(ty, types.Array) and (ty.dtype in _FORMATS or ty.dtype in (types.complex64, types.complex128)):
        head = [("void *", f"{name}_meminfo"), ("void *", f"{name}_parent")]
        head += [("long long", f"{name}_nitems"), ("long long", f"{name}_itemsize")]
        head += [(_c_scalar(types.CPointer(ty.dtype)), f"{name}_data")]
        head += [("long long", f"{name}_shape{axis}") for axis in range(ty.ndim)]
        return head + [("long long", f"{name}_stride{axis}") for axis in range(ty.ndim)]
    message = (
        f"{where}: argument {name!r} is of type {spell(ty)}, which has no type in the C ABI; take a number, bool, "
        "complex, pointer, array, or tuple of these"
    )
    raise CompileError(message)


def _c_scalar(ty: Any) -> str:
    if ty in _FORMATS:
        return _C_TYPES[_FORMATS[ty]]
    if ty in (types.complex64, types.complex128):
        return f"aotcuda_{ty}"
    pointee = getattr(ty, "dtype", None)
    known = pointee in _FORMATS or pointee in (types.complex64, types.complex128) or isinstance(pointee, types.CPointer)
    target = _c_scalar(pointee) if known else "void"
    return f"{target}*" if target.endswith("*") else f"{target} *"
