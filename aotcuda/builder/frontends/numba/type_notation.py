"""Convert types of a Numba compiler from and to signatures, element types and C types."""

from __future__ import annotations

import builtins
import importlib
import re
import struct
from contextlib import suppress
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from aotcuda.builder.config import rules
from aotcuda.builder.emit.c_header.c_types import SCALARS
from aotcuda.common import suggest
from aotcuda.common.scalar_types import FORMATS
from aotcuda.manifest.dtypes import structured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SIZES = {form: struct.calcsize(form) for form in SCALARS}
"""Bytes of each scalar, by its `struct` character."""

# Numba's printed forms of types that signatures name by their classes.
_PRINTED = (
    (re.compile(r"\[unichr x (\d+)\]"), r"UnicodeCharSeq(\1)"),
    (re.compile(r"\[char x (\d+)\]"), r"CharSeq(\1)"),
    (re.compile(r"\bclass\("), "NumberClass("),
    (re.compile(r"\bdtype\("), "DType("),
)


_DIMENSIONS = re.compile(r"\[([\s\d:,+-]*:[\s\d:,+-]*)\]")
_C_POINTER = re.compile(r"(?:\bconst\s+)?\b([A-Za-z_]\w*)\s*(?:\bconst\b\s*)?[*&]+\s*(?=[,)\w]|$)")
_C_WORD = re.compile(r"\b(?:const|unsigned|signed|long|struct|__restrict__|restrict)\b")
_CALLED = re.compile(r"\b[Aa]rray\s*\([^()]*\)")
_EXAMPLE = "as in void(float32[::1], int32)"
"""Notations that users of C and of Python's array types write, and a signature for messages."""

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_SIZED = re.compile(r"[A-Za-z_]\w*\[\s*\d*\s*\]")


def _reason(error: Exception, text: str) -> str:
    """Return the problem with `text`, whose evaluation raised `error`."""
    if match := _SIZED.search(text):
        name = match[0].partition("[")[0]
        return f"{match[0]} is not a type, since array types have no sizes; write {name}[::1], or {name}[:, ::1] in 2D"
    if match := _CALLED.search(text):
        return f"{match[0]} is not a type; write float32[::1] for contiguous elements, float32[:] for any stride"
    reason = getattr(error, "msg", None) or str(error.args[0] if error.args else "")
    remedy = f"write Numba's types with commas between them, {_EXAMPLE}"
    return f"{reason}; {remedy}" if reason else remedy


def _c_problem(text: str) -> str | None:
    """Return the problem with C's notation in a signature, or None."""
    if match := _C_POINTER.search(text):
        name = match[1]
        return f"{match[0].strip()} is C's notation; write {name}[::1] for an array, CPointer({name}) for an address"
    if match := _C_WORD.search(text):
        return f"{match[0]!r} is C's notation; write Numba's types alone, {_EXAMPLE}"
    return None


def _layout_problem(text: str) -> str | None:
    """Return the problem with brackets that are not a layout, or None; Numba reads some of them as another layout."""
    for match in _DIMENSIONS.finditer(text):
        parts = ["".join(part.split()) for part in match[1].split(",")]
        layout = [part == "::1" for part in parts]
        if not {*parts} <= {":", "::1"} or sum(layout) > 1 or (any(layout) and not layout[0] and not layout[-1]):
            if len(parts) == 1:
                return f"{match[0]} is not a layout; write [::1] for contiguous elements, [:] for any stride"
            rest = ", ".join([":"] * (len(parts) - 1))
            rows, columns = f"[{rest}, ::1]", f"[::1, {rest}]"
            return f"{match[0]} is not a layout; write {rows} (rows are contiguous), {columns} (columns), or colons"
    return None


class Notation:
    """The types of one compiler.

    Attributes:
        types: The compiler's module of types.
        formats: The `struct` character of each scalar type.
    """

    def __init__(
        self, types: Any, sigutils: Any, numpy_support: Any, named: Mapping[str, tuple[str, str]] = MappingProxyType({})
    ) -> None:
        """Wrap the compiler's modules; `named` has the module and the name of each type that is not in `types`."""
        self.types = types
        self._named = named
        self.formats: dict[Any, str] = {
            getattr(types, "boolean" if name == "bool" else name): form for name, form in FORMATS.items()
        }
        self._sigutils = sigutils
        self._numpy = numpy_support

    def parse(
        self, text: str, namespace: Mapping[str, object], names: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[tuple[Any, ...], Any]:
        """Return argument types and return type (None if the text gives none) of a signature in Numba's notation.

        Args:
            text: The signature.
            namespace: The globals of the source module and of the function's module. A signature may name the Numba
                types and NumPy dtypes among them, such as records.
            names: The names of `tool.aotcuda.types` with their types; they take precedence over the namespace.

        Raises:
            ValueError: The text is not a signature; the message has the reason.
        """
        # A module may have dtypes for its own use that Numba does not support, and a thousand kernels.
        named = [name for part in (text, *names.values()) for name in rules.names_in_type(part)]
        types_by_name = {
            name: self._type(namespace[name], name)
            for name in named
            if isinstance(namespace.get(name), self.types.Type | np.dtype)
        }
        for name in named:
            if name in self._named:
                module, attribute = self._named[name]
                types_by_name.setdefault(name, getattr(importlib.import_module(module), attribute))
        for name in self._in_order(text, names):
            types_by_name[name] = self._named_type(name, names, {**namespace, **types_by_name}, types_by_name)
        try:
            args, result = self._sigutils.normalize_signature(
                self._evaluate(text, {**namespace, **types_by_name}, types_by_name, names)
            )
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(_reason(error, text)) from error
        return tuple(args), result

    def _in_order(self, text: str, names: Mapping[str, str]) -> list[str]:
        """Return the members of `names` that a text needs, each after the names that its own text needs."""
        ordered: list[str] = []
        for name in rules.names_in_type(text):
            if name in names and name not in ordered:
                ordered += [item for item in (*self._in_order(names[name], names), name) if item not in ordered]
        return ordered

    def _named_type(
        self, name: str, names: Mapping[str, str], namespace: Mapping[str, object], types_by_name: Mapping[str, object]
    ) -> object:
        """Return the type that a name of `tool.aotcuda.types` represents."""
        where, text = f"tool.aotcuda.types.{name}", names[name]
        if hasattr(self.types, name):
            message = f"{where}: Numba has a type of this name; choose another one"
            raise ValueError(message)
        try:
            if rules.ELSEWHERE.fullmatch(text):
                module, _, attribute = text.partition(":")
                value = self._type(getattr(importlib.import_module(module), attribute), attribute)
            elif _DOTTED.fullmatch(text) and self._type_problem(text, namespace) is None:
                module, _, attribute = text.rpartition(".")
                message = f'{text} is no type of Numba; for one of a module write "{module}:{attribute}"'
                raise ValueError(message)  # noqa: TRY301 (the handler adds the key)
            else:
                value = self._evaluate(text, namespace, types_by_name, names)
        except ValueError as error:
            message = f"{where}, {text!r}: {error}"
            raise ValueError(message) from error
        except (ImportError, AttributeError) as error:
            owner = getattr(error, "obj", None)
            near = self._names_of_types(vars(owner)) if isinstance(owner, ModuleType) else ()
            otherwise = 'write "package.module:name" of a NumPy dtype or a Numba type'
            message = f"{where}, {text!r}: {error}; {suggest.did_you_mean(error.name or '', near, otherwise)}"
            raise ValueError(message) from error
        except Exception as error:
            message = f"{where}, {text!r}: {_reason(error, text)}"
            raise ValueError(message) from error
        if not isinstance(value, self.types.Type):
            message = f"{where}: {text!r} is not a type but {type(value).__name__}; write one, as in float32[::1]"
            raise ValueError(message)  # noqa: TRY004 (all problems of signatures are ValueErrors)
        return value

    def _names_of_types(self, namespace: Mapping[str, object]) -> list[str]:
        """Return the names of Numba's types and of NumPy's dtypes, such as records."""
        return [name for name, value in namespace.items() if isinstance(value, self.types.Type | np.dtype)]

    def _type(self, value: Any, name: str) -> Any:
        """Return Numba's type for a dtype, and other values unchanged."""
        if not isinstance(value, np.dtype):
            return value
        try:
            return self._numpy.from_dtype(value)
        except Exception as error:
            message = f"{name} is {value!r}, and Numba has no type for it; use a dtype in native byte order, of numbers"
            raise ValueError(message) from error

    def _evaluate(
        self, text: str, namespace: Mapping[str, object], types_by_name: Mapping[str, object], names: Iterable[str]
    ) -> Any:
        """Evaluate a text that may name types alone: `types_by_name`, `names` and the compiler's types."""
        problem = _c_problem(text) or self._type_problem(text, namespace) or _layout_problem(text)
        if problem is not None:
            raise ValueError(problem)
        for pattern, replacement in _PRINTED:
            text = pattern.sub(replacement, text)
        allowed = {**types_by_name, **vars(self.types)}
        try:
            return eval(text, {}, allowed)  # noqa: S307 (as Numba does; the text is the project's)
        except NameError as error:
            types = [name for name, value in allowed.items() if isinstance(value, self.types.Type | type)]
            types += self._names_of_types(namespace)
            name = error.name or ""
            if match := _CALLED.search(text):
                raise ValueError(_reason(error, match[0])) from error
            otherwise = (
                f'for a record, name its NumPy dtype in tool.aotcuda: types = {{ {name} = "package.module:{name}" }}; '
                f"else write one of Numba's types, {_EXAMPLE}"
            )
            message = f"{name!r} is not a Numba type; {suggest.did_you_mean(name, [*names, *types], otherwise)}"
            raise ValueError(message) from error

    def _type_problem(self, text: str, namespace: Mapping[str, object]) -> str | None:
        """Return the problem with NumPy's or Python's name of a type in a signature, or None."""
        for name in rules.names_in_type(text):
            first, *rest = name.split(".")
            if rest and rest[-1] in ("ndarray", "Tensor"):
                return f"{name} is a class of arrays; write float32[::1], with the type of the elements"
            if isinstance(getattr(self.types, first, None), self.types.Type | type):
                continue
            value = namespace.get(first, np if first in ("np", "numpy") else getattr(builtins, first, None))
            for part in rest:
                value = getattr(value, part, None) if isinstance(value, ModuleType) else None
            if not isinstance(value, type) or not issubclass(value, np.generic | bool | int | float | complex):
                continue
            plain = next((base for base in (bool, int, float, complex) if issubclass(value, base)), value)
            try:
                own = self.spell(self._numpy.from_dtype(np.dtype(value if issubclass(value, np.generic) else plain)))
            except Exception:  # noqa: BLE001, S112 (Numba has no such type either)
                continue
            if own == "pyobject":
                continue
            whose = "NumPy's" if issubclass(value, np.generic) else "Python's"
            return f"{name} is {whose} type, and a signature has Numba's; write {own}"
        return None

    def spell(self, ty: Any) -> str:
        """Return a type in the notation of signatures."""
        types = self.types
        if isinstance(ty, types.NestedArray):
            return f"{self.spell(ty.dtype)}[{', '.join(map(str, ty.shape))}]"
        if isinstance(ty, types.Array):
            return self._spell_array(ty)
        if isinstance(ty, types.UniTuple):
            return f"UniTuple({self.spell(ty.dtype)}, {ty.count})"
        if isinstance(ty, types.Tuple):
            return f"Tuple(({', '.join(self.spell(item) for item in ty)}{',' if len(ty) == 1 else ''}))"
        if isinstance(ty, types.CPointer):
            return f"CPointer({self.spell(ty.dtype)})"
        if isinstance(ty, types.Record):
            return self._spell_record(ty)
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

    def _spell_record(self, ty: Any) -> str:
        """Return a record's fields, with the offsets of fields after gaps, and the size if bytes follow the fields."""
        fields = []
        end = 0
        for name, field in ty.fields.items():
            at = "" if field.offset == end else f"@{field.offset}"
            fields.append(f"{name}: {self.spell(field.type)}{at}")
            end = field.offset
            with suppress(Exception):  # NumPy does not have all types
                end += self._numpy.as_dtype(field.type).itemsize
        return f"Record({', '.join(fields)}{'' if ty.size == end else f'; {ty.size} bytes'})"

    def spell_signature(self, result: Any, args: Sequence[Any]) -> str:
        """Return a signature in Numba's notation."""
        return f"{self.spell(result)}({', '.join(map(self.spell, args))})"

    def is_complex(self, ty: Any) -> bool:
        """Return True if `ty` is one of the two complex types."""
        return ty in (self.types.complex64, self.types.complex128)

    def is_pointer(self, ty: Any) -> bool:
        """Return True if `ty` is an address."""
        return isinstance(ty, self.types.CPointer | self.types.RawPointer)

    def dtype_text(self, ty: Any) -> str:
        """Return the manifest's text for a type of elements, datetimes or records, or for a type that is an argument.

        Raises:
            NotImplementedError: The array interface cannot distinguish arrays of this type.
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
        """Return NumPy's type for a record."""
        dtype: np.dtype[Any] = self._numpy.as_dtype(ty)
        return dtype

    def c_scalar(self, ty: Any) -> str:
        """Return the C type of a scalar, a complex number or a pointer."""
        if ty in self.formats:
            return SCALARS[self.formats[ty]]
        if self.is_complex(ty):
            return f"aotcuda_{ty}"
        pointee = getattr(ty, "dtype", None)
        is_in_c = pointee in self.formats or self.is_complex(pointee) or isinstance(pointee, self.types.CPointer)
        target = self.c_scalar(pointee) if is_in_c else "void"
        return f"{target}*" if target.endswith("*") else f"{target} *"
