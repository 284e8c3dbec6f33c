"""Types of a Numba compiler as the rest of aotcuda needs them: signatures, element types, C types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotcuda.build.c_types import SCALARS
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
            namespace: The source module's globals. Numba types and NumPy dtypes among them may be named in the
                signature, which is how records are written.

        Raises:
            ValueError: The text is no signature; the message says why.
        """
        own = {
            name: self._numpy.from_dtype(value) if isinstance(value, np.dtype) else value
            for name, value in namespace.items()
            if isinstance(value, self.types.Type | np.dtype)
        }
        try:
            parsed = eval(text, {}, {**own, **vars(self.types)})  # noqa: S307 (as Numba does; the text is the project's)
            args, result = self._sigutils.normalize_signature(parsed)
        except Exception as error:
            reason = getattr(error, "msg", None) or str(error.args[0] if error.args else "")
            if isinstance(error, NameError):
                reason = f"{getattr(error, 'name', reason)!r} is no Numba type"
            raise ValueError(reason or "it must be made of Numba types, as void(float32[::1], int32)") from error
        return tuple(args), result

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
        """The type of an array's elements, or of a datetime or record, as the manifest writes it.

        Raises:
            NotImplementedError: Arrays of it cannot be told apart by what they say of themselves.
        """
        if ty == getattr(self.types, "bfloat16", None):
            return "bfloat16"
        dtype = self._numpy.as_dtype(ty)
        if dtype.kind not in "?biufcmMV":
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
