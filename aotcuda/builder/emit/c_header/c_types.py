"""C types for the generated header: valid names, and structs with the layout of tuples and records.

Compiled code lays out a tuple like a C struct of its items. NumPy's records are packed, unless they were made with
`align=True`. A packed record becomes a packed struct with filled gaps, in which every offset is the same.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from aotcuda.builder.config import rules
from aotcuda.common.scalar_types import C_TYPES, FORMATS, TYPE_STRINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

SCALARS = {FORMATS[name]: C_TYPES[name] for name in FORMATS}
"""C types by `struct` character."""

COMPLEX = {"f": C_TYPES["complex64"], "d": C_TYPES["complex128"]}
"""Complex types, by the `struct` character of the parts."""

_NUMPY = {TYPE_STRINGS[name][1:]: kind for name, kind in C_TYPES.items()} | dict.fromkeys(["M8", "m8"], "long long")


_MACROS = frozenset(["linux", "unix"])
"""Names that compilers define in their own dialects, such as gnu17."""


def identifier(name: str) -> str:
    """Return `name` if it is valid in C and C++, else a similar name.

    Two names may give the same result; `Scope` distinguishes them.
    """
    ascii_name = "".join(_ascii(character) for character in name)
    if ascii_name not in _MACROS and not ascii_name.startswith("AOTCUDA_"):
        with suppress(ValueError):
            rules.c_name(ascii_name)
            return ascii_name
    stem = f"{ascii_name.strip('_') or 'x'}_"
    return f"_{stem}" if stem[0].isdigit() else stem


def _ascii(character: str) -> str:
    if character.isascii():
        return character if character.isalnum() else "_"
    return f"u{ord(character):04x}"


class Scope:
    """A scope of names in C: a struct's members, a function's parameters, a header's declarations."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Open a scope in which the names `names` are in use."""
        self._names = set(names)

    def unique(self, name: str, reserved: Collection[str] = ()) -> str:
        """Return `name`, with a number if it is in use; a name with a number is none of `reserved`."""
        unique_name = name
        if name in self._names:
            stem = name if name.endswith("_") else f"{name}_"
            numbered = (f"{stem}{number}" for number in count(2))
            unique_name = next(item for item in numbered if item not in self._names and item not in reserved)
        self._names.add(unique_name)
        return unique_name

    def identifiers(self, names: Sequence[str]) -> list[str]:
        """Return a C name for each of `names`. Valid names stay, and the others are changed."""
        candidates = [identifier(name) for name in names]
        names_in_c = list(candidates)
        for at in sorted(range(len(names)), key=lambda at: candidates[at] != names[at]):
            names_in_c[at] = self.unique(candidates[at], candidates)
        return names_in_c


def words(kinds: Iterable[str]) -> list[str]:
    """Return the words of C types. No other name may be one of them, since it would hide the type."""
    return re.findall(r"\w+", " ".join(kinds))


def comment(text: str) -> str:
    """Return `text` as a comment, whatever it contains."""
    printable = "".join(item if item.isprintable() else f"\\u{ord(item):04x}" for item in text)
    content = re.sub(r"[*](?=/)|/(?=[*])", r"\g<0> ", printable)
    return f"/* {content} */"


def declare(kind: str, name: str) -> str:
    """Return a declaration: `int x`, `float *p`."""
    return f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}"


def element(text: str) -> str:
    """Return the C type of array elements by their NumPy type string; `void` if C has none."""
    return _NUMPY.get(text.lstrip("<|=").partition("[")[0], "void")


class Structs:
    """The structs in one function's prototype.

    Attributes:
        definitions: `typedef`s by name, in the required order.
        records: NumPy's description of every record, for JSON, by its spelling in signatures.
    """

    def __init__(self, symbol: str, module: str, dtypes: dict[str, Any]) -> None:
        """Collect the structs of function `symbol` of `module`; `dtypes` are the NumPy dtypes that its source names."""
        self.definitions: dict[str, str] = {}
        self.records: dict[str, object] = {}
        self._symbol = symbol
        prefix = module.replace(".", "_")
        names = [f"{prefix}_{name}" for name in Scope().identifiers([*dtypes])]
        self._named = dict(zip(names, dtypes.values(), strict=True))
        self._made: dict[str, str] = {}  # by the description
        self._scope = Scope()

    def result(self, members: Sequence[str]) -> str:
        """Return the name of the struct that the function returns; `members` are C declarations without semicolons."""
        name = self._scope.unique(f"{self._symbol}_result")
        self.definitions[name] = f"typedef struct {{ {' '.join(f'{member};' for member in members)} }} {name};"
        return name

    def record(self, dtype: Any, spelling: str) -> str:
        """Return the name of the struct with the layout of the structured `dtype`.

        Raises:
            NotImplementedError: C lacks the type of a field.
        """
        description = describe(dtype)
        key = json.dumps(description)
        if key not in self._made:
            packed = not _is_natural(dtype)
            members = _members(dtype, packed=packed, indent=4)
            source_name = next((name for name, value in self._named.items() if value == dtype), None)
            name = self._scope.unique(source_name or f"{self._symbol}_record{len(self._made)}")
            body = f"typedef struct {{\n{members}}} {name};"
            self.definitions[name] = f"#pragma pack(push, 1)\n{body}\n#pragma pack(pop)" if packed else body
            self._made[key] = name
        self.records[spelling] = description
        return self._made[key]


def tuple_member(items: Sequence[str], name: str) -> str:
    """Return the declaration of a tuple member; `items` declare its items, named `item0`, `item1`..."""
    return f"struct {{ {' '.join(f'{item};' for item in items)} }} {name}"


def describe(dtype: Any) -> Any:
    """Return a NumPy dtype for JSON, in the form that `numpy.dtype` accepts."""
    if dtype.subdtype is not None:
        element_type, shape = dtype.subdtype
        return [describe(element_type), list(shape)]
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
    fields = sorted(((name, *dtype.fields[name][:2]) for name in dtype.names), key=lambda field: field[2])
    bases = [kind.base for _, kind, _ in fields]
    scope = Scope(COMPLEX.values())  # a member would hide the type from later members
    names = scope.identifiers([name for name, _, _ in fields])
    for name, base, (_, kind, offset) in zip(names, bases, fields, strict=True):
        if packed and offset > end:
            lines.append(f"{space}unsigned char {scope.unique(f'aotcuda_gap{gaps}')}[{offset - end}];\n")
            gaps += 1
        end = offset + kind.itemsize
        extents = "".join(f"[{extent}]" for extent in kind.shape)
        if base.names is not None:
            members = _members(base, packed=packed, indent=indent + 4)
            lines.append(f"{space}struct {{\n{members}{space}}} {name}{extents};\n")
        else:
            lines.append(f"{space}{_scalar(base)} {name}{extents};\n")
    if packed and dtype.itemsize > end:
        lines.append(f"{space}unsigned char {scope.unique(f'aotcuda_gap{gaps}')}[{dtype.itemsize - end}];\n")
    return "".join(lines)


def _scalar(dtype: Any) -> str:
    key = dtype.kind + ("8" if dtype.kind in "mM" else str(dtype.itemsize))
    if key not in _NUMPY or not dtype.isnative:
        raise NotImplementedError(str(dtype))
    return _NUMPY[key]


def _alignment(dtype: Any) -> int:
    """Return the alignment of `dtype` in C."""
    base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    if base.names is not None:
        return max((_alignment(base.fields[name][0]) for name in base.names), default=1)
    return int(base.itemsize // 2 if base.kind == "c" else base.itemsize)


def _is_natural(dtype: Any) -> bool:
    """Return True if a C compiler gives the fields the same layout by itself."""
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
