"""Describe a kernel's arguments for the manifest, from its declaration and the table.

| C++ | argument |
|---|---|
| numbers, enumerations, `__half`, complex numbers of libcu++ and Thrust | a number |
| `__nv_bfloat16`, `__nv_fp8_e4m3`, `__nv_fp8_e5m2` | a number, rounded as ml_dtypes rounds it |
| a pointer or reference to these types, or to a struct or array of them | a C-contiguous array of that dtype |
| the same to `const` | such an array, also read-only |
| `void *`, a pointer to a pointer, to a function, to an undefined type | an address |
| a struct, a union | a NumPy record with the same members at the same offsets |
| `CUtensorMap` | a tensor map |
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NamedTuple, cast

from aotcuda.common.scalar_types import NAMED
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.frontends.cuda_cpp.config import Stated
    from aotcuda.builder.frontends.cuda_cpp.declarations import CppType, Declaration, Declared
    from aotcuda.manifest import Parameter, Size

SCALARS = frozenset(["bfloat16", "float8_e4m3fn", "float8_e5m2"])
"""The types among `NAMED` that are passed by value; a float8_e8m0fnu has no zero and no sign."""

_BYTES = ("|i1", "|u1")
"""Element types of pointers that C++ code uses for memory of any type."""


class Arguments(NamedTuple):
    """The arguments of a kernel: the manifest's parameters, and the signature that names their types."""

    parameters: tuple[Parameter, ...]
    signature: str


def make_arguments(declaration: Declaration, stated: Mapping[str, Stated], key: str) -> Arguments:
    """Return the arguments of a kernel.

    Args:
        declaration: The kernel.
        stated: The table's entries for parameters, by name.
        key: The kernel's key.

    Raises:
        CompileError: The table contradicts the declaration.
    """
    where = f"{key}.parameters"
    names = [item.name for item in declaration.parameters]
    for name in stated:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names) or 'none'}"
            message = f"{where}.{name}: the kernel is declared with no parameter of that name; {hint}"
            raise CompileError(message)
    sizes: dict[str, list[Size]] = {}
    arguments: list[Parameter] = []  # the parameters of a pack have one name
    for item in declaration.parameters:
        entry = stated.get(item.name)
        if entry is not None and entry.array:
            sizes.setdefault(entry.array, []).append(_size(item, entry, names, f"{where}.{item.name}"))
        else:
            arguments.append(_parameter(item, entry, f"{where}.{item.name}"))
    by_name = {parameter["name"]: parameter for parameter in arguments}
    for array, of_array in sizes.items():
        _add_sizes(array, by_name.get(array), of_array, stated, where)
    signature = ", ".join(_parameter_text(parameter, stated.get(parameter["name"])) for parameter in arguments)
    return Arguments(tuple(arguments), f"void({signature})")


def _parameter_text(parameter: Parameter, entry: Stated | None) -> str:
    return f"{parameter['type']} as {entry.text}" if entry is not None else parameter["type"]


def _parameter(item: Declared, entry: Stated | None, where: str) -> Parameter:
    kind = item.type
    described: dict[str, object] = {"name": item.name, "type": kind.text, "offset": item.offset}
    if kind.element is not None:
        described |= _pointer(kind.element, entry, where, kind)
        if described["kind"] != "pointer" and item.alignment:
            described["align"] = item.alignment
    elif kind.problem:
        message = f"{where}: {kind.text} {kind.problem}"
        raise CompileError(message)
    elif re.search("[{,]__vptr:", kind.dtype):  # CUDA C++ Programming Guide, "Virtual Functions"
        message = f"{where}: {kind.text} has virtual functions, which arguments cannot have; pass a pointer to it"
        raise CompileError(message)
    elif kind.size != item.size:
        message = (
            f"{where}: {kind.text} has {item.size} bytes in the code and {kind.size} in the compiler's description; "
            "pass a pointer to it"
        )
        raise CompileError(message)
    elif entry is not None and (entry.ndim is not None or entry.dtype == "pointer" or entry.dtype != kind.dtype):
        raise _contradiction(where, entry, kind)
    elif kind.is_complex:
        described |= {"kind": "complex", "format": kind.form}
    elif kind.form:
        described |= {"kind": "scalar", "format": kind.form}
    elif kind.dtype in SCALARS:
        described |= {"kind": "small", "dtype": kind.dtype}
    else:
        dtype = kind.dtype if kind.dtype.startswith("|V") else f"|V{item.size}"
        described |= {"kind": "struct", "dtype": dtype, "bytes": item.size}
    return cast("Parameter", described)


def _pointer(element: CppType, entry: Stated | None, where: str, kind: CppType) -> dict[str, object]:
    item = element.item or element  # of `float (*)[4]`, float
    base = _in_array(item.dtype)
    plain = item.element is None and item.size and base
    readonly = {"readonly": True} if element.constant else {}
    if entry is not None and entry.dtype == "pointer":
        return {"kind": "pointer"}
    if item.problem:
        name = where.rpartition(".")[2]
        message = f'{where}: {item.text} {item.problem}, or write parameters.{name} = "pointer" to take an address'
        raise CompileError(message)
    if entry is None:
        return {"kind": "buffer", "dtype": base, **readonly} if plain else {"kind": "pointer"}
    if entry.ndim is None or (plain and not _fits(element, base, entry.dtype)):
        raise _contradiction(where, entry, kind)
    if entry.ndim < 0:
        return {"kind": "buffer", "dtype": entry.dtype, **readonly}
    words = {"ndim": entry.ndim, "layout": entry.layout, "words": ["data"]}
    return {"kind": "array", "dtype": entry.dtype, **words, **readonly}


_IN_DESCR = {"bfloat16": "<V2", "float8_e4m3fn": "<V1", "float8_e5m2": "<f1", "float8_e8m0fnu": "<V1"}
"""The type strings of ml_dtypes' types as members of an array's `descr`, in which they have no names."""


def _in_array(dtype: str) -> str:
    """Return a type string as arrays give it: the small floats in a struct have no names there."""
    if "{" not in dtype:
        return dtype
    return re.sub("|".join(_IN_DESCR), lambda match: _IN_DESCR[match[0]], dtype)


def _fits(element: CppType, base: str, dtype: str) -> bool:
    """Return True if an array of a dtype may hold elements of a type: `float2` fits float32 and complex64."""
    if dtype == base or base in _BYTES:
        return True
    parts = {"<c8": "<f4", "<c16": "<f8"}
    size = NAMED.get(dtype) or int(dtype[2:])
    return set(element.leaves) == {parts.get(dtype, dtype)} and element.size % size == 0


def _contradiction(where: str, entry: Stated, kind: CppType) -> CompileError:
    return CompileError(
        f'{where}: the table says "{entry.text}", and the kernel declares {kind.text}; make the two agree, or leave '
        "the parameter out of the table"
    )


def _size(item: Declared, entry: Stated, names: Sequence[str], where: str) -> Size:
    if entry.array not in names:
        near = difflib.get_close_matches(entry.array, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"
        message = f'{where}: "{entry.text}" is taken from {entry.array}, and the kernel has no such parameter; {hint}'
        raise CompileError(message)
    if item.type.element is not None or item.type.form not in tuple("bBhHiIqQ"):
        message = f'{where}: "{entry.text}" is an integer, and the kernel declares {item.type.text}; declare one there'
        raise CompileError(message)
    return {
        "name": item.name,
        "type": item.type.text,
        "word": entry.word,
        "format": item.type.form,
        "offset": item.offset,
    }


def _add_sizes(
    array: str, parameter: Parameter | None, sizes: list[Size], stated: Mapping[str, Stated], where: str
) -> None:
    """Add the sizes that come from an array to the array's parameter; None if `array` is not an argument."""
    heads = [f'{where}.{size["name"]}: "{stated[size["name"]].text}"' for size in sizes]
    if parameter is None or parameter["kind"] not in ("array", "buffer"):
        message = f'{heads[0]} is taken from {array}, which takes no array; name its type: {array} = "float32[...]"'
        raise CompileError(message)
    for head, size in zip(heads, sizes, strict=True):
        axis = size["word"].lstrip("abcdefghijklmnopqrstuvwxyz")
        ndim = parameter["ndim"] if parameter["kind"] == "array" else 0
        if axis and int(axis) >= ndim:
            extent = f"has {ndim} dimensions" if ndim else "may have any dimensions"
            example = f"float32[{', '.join([':'] * int(axis) + ['::1'])}]"
            message = (
                f"{head} is of dimension {axis} of {array}, which {extent}; "
                f'write how many dimensions it has: {array} = "{example}"'
            )
            raise CompileError(message)
    parameter["sizes"] = sizes
