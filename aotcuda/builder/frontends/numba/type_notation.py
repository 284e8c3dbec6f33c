"""Types of a Numba compiler as the rest of aotcuda needs them: signatures, element types, C types."""

from __future__ import annotations

import builtins
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from aotcuda.builder.c_header.c_types import SCALARS
from aotcuda.dtypes import structured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "e": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}
"""Bytes of each scalar, by its `struct` character."""

_NAMES = {
    "?": "boolean",
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
}

# How Numba prints types of which the notation has only the classes.
_PRINTED = (
    (re.compile(r"\[unichr x (\d+)\]"), r"UnicodeCharSeq(\1)"),
    (re.compile(r"\[char x (\d+)\]"), r"CharSeq(\1)"),
    (re.compile(r"\bclass\("), "NumberClass("),
    (re.compile(r"\bdtype\("), "DType("),
)
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*(?:\.\w+)*")


class Notation:
    """The types of one compiler.

    Attributes:
        types: The module that holds them.
        formats: The `struct` character of each scalar type.
    """

    def __init__(self, types: Any, sigutils: Any, numpy_support: Any) -> None:
        self.types = types
        self.formats: dict[Any, str] = {getattr(types, name): code for code, name in _NAMES.items()}
        self._sigutils = sigutils
        self._numpy = numpy_support

    def parse(self, text: str, namespace: Mapping[str, object]) -> tuple[tuple[Any, ...], Any]:
        """Argument types and return type (None if the text gives none) of a signature in Numba's notation.

        Args:
            text: The signature.
            namespace: What the source module and the function's own have names for. Numba types and NumPy dtypes
                among it may be named in the signature, which is how records are written.

        Raises:
            ValueError: The text is no signature; the message says why.
        """
        own = {
            name: self._numpy.from_dtype(value) if isinstance(value, np.dtype) else value
            for name, value in namespace.items()
            if isinstance(value, self.types.Type | np.dtype)
        }
        if (foreign := self._foreign(text, namespace)) is not None:
            raise ValueError(foreign)
        written = text
        for pattern, replacement in _PRINTED:
            written = pattern.sub(replacement, written)
        try:
            parsed = eval(written, {}, {**own, **vars(self.types)})  # noqa: S307 (as Numba does; the text is the project's)
            args, result = self._sigutils.normalize_signature(parsed)
        except Exception as error:
            reason = getattr(error, "msg", None) or str(error.args[0] if error.args else "")
            if isinstance(error, NameError):
                reason = f"{getattr(error, 'name', reason)!r} is no Numba type"
            raise ValueError(reason or "it must be made of Numba types, as void(float32[::1], int32)") from error
        return tuple(args), result

    def _foreign(self, text: str, namespace: Mapping[str, object]) -> str | None:
        """What to write for a name in a signature that is no Numba type, but NumPy's or Python's name for one."""
        for name in _NAME.findall(text):
            first, *rest = name.split(".")
            if isinstance(getattr(self.types, first, None), self.types.Type | type):
                continue
            value = namespace.get(first, np if first in ("np", "numpy") else getattr(builtins, first, None))
            for part in rest:
                value = getattr(value, part, None) if isinstance(value, ModuleType) else None
            if not isinstance(value, type) or not issubclass(value, np.generic | bool | int | float | complex):
                continue
            try:
                own = self.spell(self._numpy.from_dtype(np.dtype(value)))
            except Exception:  # noqa: BLE001, S112 (Numba has no such type either)
                continue
            whose = "NumPy's" if issubclass(value, np.generic) else "Python's"
            return f"{name} is {whose} type, and a signature has Numba's; write {own}"
        return None

    def spell(self, ty: Any) -> str:
        """A type in the notation that signatures are written in."""
        types = self.types
        if isinstance(ty, types.Array):
            return self._spell_array(ty)
        if isinstance(ty, types.UniTuple):
            return f"UniTuple({self.spell(ty.dtype)}, {ty.count})"
        if isinstance(ty, types.Tuple):
            return f"Tuple(({', '.join(self.spell(item) for item in ty)}{',' if len(ty) == 1 else ''}))"
        if isinstance(ty, types.CPointer):
            return f"CPointer({self.spell(ty.dtype)})"
        if isinstance(ty, types.Record):
            fields = (f"{name}: {self.spell(field.type)}" for name, field in ty.fields.items())
            return f"Record({', '.join(fields)})"
        if isinstance(ty, types.NumberClass | types.DType):
            return f"{type(ty).__name__}({self.spell(ty.dtype)})"
        if isinstance(ty, types.UnicodeCharSeq | types.CharSeq):
            return f"{type(ty).__name__}({ty.count})"
        if ty == getattr(types, "bfloat16", None):
            return "bfloat16"
        return "void" if ty == types.none else str(ty)

    def _spell_array(self, ty: Any) -> str:
        if not ty.mutable or not ty.aligned:
            readonly = "" if ty.mutable else ", readonly=True"
            return f"Array({self.spell(ty.dtype)}, {ty.ndim}, {ty.layout!r}{readonly})"
        if ty.ndim == 0:
            return f"Array({self.spell(ty.dtype)}, 0, {ty.layout!r})"
        dims = {"C": [":"] * (ty.ndim - 1) + ["::1"], "F": ["::1"] + [":"] * (ty.ndim - 1)}.get(
            ty.layout, [":"] * ty.ndim
        )
        return f"{self.spell(ty.dtype)}[{', '.join(dims)}]"

    def spell_signature(self, result: Any, args: Sequence[Any]) -> str:
        """A signature in that notation."""
        return f"{self.spell(result)}({', '.join(map(self.spell, args))})"

    def is_complex(self, ty: Any) -> bool:
        """Whether `ty` is one of the two complex types."""
        return ty in (self.types.complex64, self.types.complex128)

    def is_pointer(self, ty: Any) -> bool:
        """Whether `ty` is an address."""
        return isinstance(ty, self.types.CPointer | self.types.RawPointer)

    def dtype_text(self, ty: Any) -> str:
        """A type as the manifest writes it: that of an array's elements, of a datetime or record, or one passed itself.

        Raises:
            NotImplementedError: Arrays of it cannot be told apart by what they say of themselves.
        """
        if ty == getattr(self.types, "bfloat16", None):
            return "bfloat16"
        try:
            dtype = self._numpy.as_dtype(ty)
        except Exception:  # noqa: BLE001 (each kind of type has its own)
            raise NotImplementedError from None
        if dtype.kind not in "?biufcmMVSU":
            raise NotImplementedError
        return structured(dtype.str.replace("=", "<"), dtype.descr if dtype.names else None)

    def dtype(self, ty: Any) -> np.dtype[Any]:
        """NumPy's type for a record.

        Raises:
            NotImplementedError: There is none.
        """
        found: np.dtype[Any] = self._numpy.as_dtype(ty)
        return found

    def c_scalar(self, ty: Any) -> str:
        """The C type of a scalar, a complex number or a pointer."""
        if ty in self.formats:
            return SCALARS[self.formats[ty]]
        if self.is_complex(ty):
            return f"aotcuda_{ty}"
        pointee = getattr(ty, "dtype", None)
        known = pointee in self.formats or self.is_complex(pointee) or isinstance(pointee, self.types.CPointer)
        target = self.c_scalar(pointee) if known else "void"
        return f"{target}*" if target.endswith("*") else f"{target} *"
