"""C types for the generated header: names that C and C++ take, and structs with the layout of tuples and records.

Compiled code lays a tuple out as C does a struct of its items. Records are NumPy's: packed unless they were made with
`align=True`, and a packed one becomes a packed struct, with its gaps filled, in which every offset is the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aotcuda.builder.config import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

SCALARS = {
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
"""By `struct` character. C has no name for 16-bit floating point that all compilers know; its bits travel."""

COMPLEX = {"f": "aotcuda_complex64", "d": "aotcuda_complex128"}
"""By the `struct` character of the parts."""

_NUMPY = {
    "b1": "bool",
    "i1": "signed char",
    "u1": "unsigned char",
    "i2": "short",
    "u2": "unsigned short",
    "i4": "int",
    "u4": "unsigned int",
    "i8": "long long",
    "u8": "unsigned long long",
    "f2": "unsigned short",
    "f4": "float",
    "f8": "double",
    "c8": "aotcuda_complex64",
    "c16": "aotcuda_complex128",
    "M8": "long long",
    "m8": "long long",
}


def identifier(name: str) -> str:
    """`name` if a C or C++ compiler takes it for a parameter or a member, and something close to it otherwise."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    try:
        rules.c_name(plain)
    except ValueError:
        return f"{plain.strip('_')}_"
    return plain


def declare(kind: str, name: str) -> str:
    """`int x`, `float *p`."""
    return f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}"


def element(text: str) -> str:
    """The C type of the elements of an array whose NumPy type string is `text`; `void` where C has none."""
    return _NUMPY.get(text.lstrip("<|=").partition("[")[0], "void")


class Structs:
    """The structs that one function's prototype names.

    Attributes:
        definitions: `typedef`s by name, in the order in which they must stand.
        records: NumPy's description of every record met, as JSON can hold it, by its spelling in signatures.
    """

    def __init__(self, symbol: str, module: str, named: dict[str, Any]) -> None:
        """Structs of function `symbol` of `module`; `named` are the NumPy dtypes that its source has names for."""
        self.definitions: dict[str, str] = {}
        self.records: dict[str, object] = {}
        self._symbol = symbol
        self._prefix = module.replace(".", "_")
        self._named = named

    def result(self, members: Sequence[str]) -> str:
        """The name of the struct that the function returns; `members` are C declarations without their semicolons."""
        name = f"{self._symbol}_result"
        self.definitions[name] = f"typedef struct {{ {' '.join(f'{member};' for member in members)} }} {name};"
        return name

    def record(self, dtype: Any, spelling: str) -> str:
        """The name of the struct that is laid out as the structured `dtype`.

        Raises:
            NotImplementedError: A field has a type that C has not.
        """
        known = next((name for name, value in self._named.items() if value == dtype), None)
        name = f"{self._prefix}_{identifier(known)}" if known else f"{self._symbol}_record{len(self.records)}"
        found = next((other for other, text in self.records.items() if text == describe(dtype)), None)
        if found is None or known:
            packed = not _is_natural(dtype)
            body = f"typedef struct {{\n{_members(dtype, packed=packed, indent=4)}}} {name};"
            self.definitions[name] = f"#pragma pack(push, 1)\n{body}\n#pragma pack(pop)" if packed else body
        self.records[spelling] = describe(dtype)
        return name


def tuple_member(items: Sequence[str], name: str) -> str:
    """The declaration of a member that is a tuple; `items` are those of its items, named `item0`, `item1`..."""
    return f"struct {{ {' '.join(f'{item};' for item in items)} }} {name}"


def describe(dtype: Any) -> Any:
    """A NumPy dtype in the form that `numpy.dtype` takes, of what JSON has."""
    if dtype.subdtype is not None:
        inner, shape = dtype.subdtype
        return [describe(inner), list(shape)]
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [describe(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": bool(dtype.isalignedstruct),
    }


def _members(dtype: Any, *, packed: bool, indent: int) -> str:
    lines = []
    end = gaps = 0
    space = " " * indent
    for name in sorted(dtype.names, key=lambda item: dtype.fields[item][1]):
        kind, offset = dtype.fields[name][:2]
        if packed and offset > end:
            lines.append(f"{space}unsigned char aotcuda_gap{gaps}[{offset - end}];\n")
            gaps += 1
        end = offset + kind.itemsize
        base, shape = kind.subdtype or (kind, ())
        extents = "".join(f"[{extent}]" for extent in shape)
        if base.names is not None:
            inner = _members(base, packed=packed, indent=indent + 4)
            lines.append(f"{space}struct {{\n{inner}{space}}} {identifier(name)}{extents};\n")
        else:
            lines.append(f"{space}{_scalar(base)} {identifier(name)}{extents};\n")
    if packed and dtype.itemsize > end:
        lines.append(f"{space}unsigned char aotcuda_gap{gaps}[{dtype.itemsize - end}];\n")
    return "".join(lines)


def _scalar(dtype: Any) -> str:
    key = dtype.kind + ("8" if dtype.kind in "mM" else str(dtype.itemsize))
    if key not in _NUMPY or not dtype.isnative:
        raise NotImplementedError(str(dtype))
    return _NUMPY[key]


def _alignment(dtype: Any) -> int:
    """How a C compiler aligns what corresponds to `dtype`."""
    base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    if base.names is not None:
        return max((_alignment(base.fields[name][0]) for name in base.names), default=1)
    return int(base.itemsize // 2 if base.kind == "c" else base.itemsize)


def _is_natural(dtype: Any) -> bool:
    """Whether a C compiler would lay the fields out in the same way by itself."""
    base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    if base.names is None:
        return True
    end = 0
    for name in sorted(base.names, key=lambda item: base.fields[item][1]):
        kind, offset = base.fields[name][:2]
        if not _is_natural(kind) or offset != _rounded(end, _alignment(kind)):
            return False
        end = offset + kind.itemsize
    return bool(base.itemsize == _rounded(end, _alignment(base)))


def _rounded(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
