"""Parse signatures in Numba's notation, and decide if a packaged one accepts the arguments of a launch.

The front ends evaluate signatures with Numba's types. This module does not need Numba. A name that Numba does not have,
such as that of a record, is a type by itself.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda.common.scalar_types import NUMBA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SCALARS = {
    **{other: "boolean" if name == "bool" else name for other, name in NUMBA.items()},
    **{other: other for other in ("void", "bfloat16", "voidptr")},
    "none": "void",
}
"""Names of types with their widths, by all of Numba's names."""
_ADOPTED = {
    "int64": ("int", "uint", "float", "complex"),
    "float64": ("float", "complex"),
    "complex128": ("complex",),
}
"""By Numba's type for a Python number, the kinds of parameters that accept the number by conversion."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type.

    Attributes:
        name: Numba's name of a scalar; `array`, `tuple` or `pointer`; for another type the text in the signature.
        members: The element type of an array, the members of a tuple.
        ndim: Dimensions of an array.
        layout: `C`, `F` or `A`.
        readonly: True for an array that the kernel does not write.
    """

    name: str
    members: tuple[Type, ...] = ()
    ndim: int = 0
    layout: str = ""
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """Argument types, and the type of the result."""

    args: tuple[Type, ...]
    result: Type


def is_scalar(name: str) -> bool:
    """Return True if Numba has a scalar type or `none` under this name."""
    return name in _SCALARS


def parse(text: str, names: Mapping[str, str]) -> Signature:
    """Read a signature.

    Args:
        text: The signature.
        names: The project's names for types (`[tool.aotcuda] types`).

    Raises:
        ValueError: `text` is not a signature.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(error.msg) from error
    if isinstance(node, ast.Tuple):  # for Numba, (int32, int32) is a signature without a result
        return Signature(tuple(_type(item, names) for item in node.elts), Type("void"))
    if not isinstance(node, ast.Call) or node.keywords:
        message = f"{text!r} is no signature"
        raise ValueError(message)
    return Signature(tuple(_type(item, names) for item in node.args), _type(node.func, names))


def accepts(packaged: Signature, launched: Signature, *, adopt: bool) -> bool:
    """Return True if a launch with the types of one signature may run the overload of a packaged one.

    Args:
        packaged: The signature in the table.
        launched: The signature of the launch.
        adopt: True if Python's numbers take the parameter's type, as in modules that are not packaged in place.
    """
    return _accept(packaged.args, launched.args, adopt=adopt)


def _accept(packaged: Sequence[Type], launched: Sequence[Type], *, adopt: bool) -> bool:
    return len(packaged) == len(launched) and all(
        _accepts(parameter, argument, adopt=adopt) for parameter, argument in zip(packaged, launched, strict=True)
    )


def _accepts(packaged: Type, launched: Type, *, adopt: bool) -> bool:
    if packaged.name == launched.name == "array":
        layout = packaged.layout in ("A", launched.layout) or packaged.ndim == 0
        shape = packaged.ndim == launched.ndim and packaged.members == launched.members
        return shape and layout and (packaged.readonly or not launched.readonly)
    if packaged.name == launched.name == "tuple":
        return _accept(packaged.members, launched.members, adopt=adopt)
    if adopt and launched.name in _ADOPTED:
        return packaged.name.rstrip("0123456789") in _ADOPTED[launched.name]
    return packaged == launched


def _type(node: ast.expr, names: Mapping[str, str]) -> Type:
    if isinstance(node, ast.Attribute):  # types.float32
        return _type(ast.Name(node.attr), names)
    if isinstance(node, ast.Name):
        if node.id in names:
            module, colon, attribute = names[node.id].strip().partition(":")
            if colon and module.replace(".", "").isidentifier():  # the name of a record's dtype
                return Type(attribute)
            inner = ast.parse(names[node.id].strip(), mode="eval").body
            return _type(inner, {name: text for name, text in names.items() if name != node.id})
        return Type(_SCALARS.get(node.id, node.id))
    if isinstance(node, ast.Subscript):
        return _subscript(node, names)
    if isinstance(node, ast.Call):
        return _call(node, names) or Type(ast.unparse(node))
    return Type(ast.unparse(node))


def _subscript(node: ast.Subscript, names: Mapping[str, str]) -> Type:
    dims = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if not all(isinstance(dim, ast.Slice) for dim in dims):
        return Type(ast.unparse(node))
    contiguous = [ast.unparse(dim) == "::1" for dim in dims]
    layout = "C" if contiguous[-1] else "F" if contiguous[0] else "A"
    return Type("array", (_type(node.value, names),), len(dims), layout)


def _call(node: ast.Call, names: Mapping[str, str]) -> Type | None:
    kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    values = [item.value if isinstance(item, ast.Constant) else None for item in node.args]
    if kind == "Array" and len(node.args) >= 3:
        flags = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        ndim, layout = values[1], values[2]
        if isinstance(ndim, int) and isinstance(layout, str):
            return Type("array", (_type(node.args[0], names),), ndim, layout, bool(flags.get("readonly")))
    if kind == "UniTuple" and len(values) == 2 and isinstance(values[1], int):
        return Type("tuple", (_type(node.args[0], names),) * values[1])
    if kind == "Tuple" and len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List):
        return Type("tuple", tuple(_type(item, names) for item in node.args[0].elts))
    if kind == "CPointer" and len(node.args) == 1:
        return Type("pointer", (_type(node.args[0], names),))
    return None
