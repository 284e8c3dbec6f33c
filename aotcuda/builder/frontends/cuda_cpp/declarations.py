"""Read kernels and device functions from NVRTC's PTX: their parameters, by name, type and offset.

The PTX has debug information. Its directives define the memory layout of parameters (PTX ISA, "Kernel Function
Parameters"). DWARF describes their C++ declarations: names, types, and members of structs (DWARF 2, "Data Object and
Object List Entries", "Type Entries"). So the compiler of the kernels also parses their declarations.
"""

from __future__ import annotations

import inspect
import io
import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

TENSOR_MAP = "|V128{opaque:<u8*16@0}"
"""The form in which launches read a `CUtensorMap`, whose only member is opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CppType:
    """A type.

    Attributes:
        text: Its C++ name, with typedefs resolved.
        size: Its size in bytes; 0 if unknown.
        form: The `struct` character of a number, or of the parts of a complex number.
        dtype: NumPy's type string, with a struct's fields as `manifest.dtypes` has them; empty if there is none.
        is_complex: True for a complex number of libcu++ or Thrust.
        element: The type that a pointer points to.
        leaves: The type strings of its numbers.
        constant: True for a const type.
    """

    text: str
    size: int
    form: str = ""
    dtype: str = ""
    is_complex: bool = False
    element: CppType | None = None
    leaves: tuple[str, ...] = ()
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A parameter: its name (`arg0` if it has none), its type, and its offset in the parameter block."""

    name: str
    type: CppType
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A kernel or a device function.

    Attributes:
        symbol: Its name in PTX.
        is_kernel: True for a kernel, False for a device function.
        result: The type of its result, `void` for kernels.
        parameters: Its parameters.
        parameter_bytes: The size of the whole block.
        alignment: The largest of its parameters' alignments.
        launch_bounds: Maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster; may be empty.
        line: The line of its declaration.
    """

    symbol: str
    is_kernel: bool
    result: CppType
    parameters: tuple[Declared, ...]
    parameter_bytes: int
    alignment: int
    launch_bounds: tuple[int, ...]
    line: int


def read(ptx: bytes) -> dict[str, Declaration]:
    """Return the visible kernels and functions of a PTX module, by symbol.

    Raises:
        ValueError: It was not compiled with debug information.
    """
    text = ptx.rstrip(b"\0").decode(errors="replace")
    subprograms = _subprograms(text)
    declarations = {}
    for match in _FUNCTION.finditer(text):
        kind, symbol, parameters, directives = match.groups()
        if symbol not in subprograms:
            continue  # a function that the compiler added
        dwarf, types = subprograms[symbol]
        places = [*_offsets(parameters or "")]
        dies = [child for child in dwarf.iter_children() if child.tag == "DW_TAG_formal_parameter"]
        end = places[-1][0] + places[-1][1] if places else 0
        declarations[symbol] = Declaration(
            symbol=symbol,
            is_kernel=kind == "entry",
            result=types.type_of(dwarf),
            parameters=tuple(
                Declared(
                    name=_text(die, "DW_AT_name") or f"arg{at}",
                    type=types.type_of(die, plain=True),
                    offset=offset,
                    size=size,
                )
                for at, (die, (offset, size)) in enumerate(zip(dies, places, strict=True))
            ),
            parameter_bytes=end,
            alignment=max([int(number or 1) for number, *_ in _PARAMETER.findall(parameters or "")], default=1),
            launch_bounds=_bounds(directives or "") if kind == "entry" else (),
            line=dwarf.attributes["DW_AT_decl_line"].value if "DW_AT_decl_line" in dwarf.attributes else 0,
        )
    return declarations


# PTX ISA, "Kernel and Function Directives" and "Performance-Tuning Directives".
_FUNCTION = re.compile(
    r"^\.(?:visible|weak)\s+\.(entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)\{", re.MULTILINE
)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)\s+(?:\.ptr[^,]*\s)?[\w$]+(?:\[(\d+)\])?")


def _offsets(parameters: str) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each parameter."""
    end = 0
    for alignment, bits, count in _PARAMETER.findall(parameters):
        size = int(bits) // 8 * int(count or 1)
        unit = int(alignment or int(bits) // 8)
        offset = -(-end // unit) * unit
        end = offset + size
        yield offset, size


def _bounds(directives: str) -> tuple[int, ...]:
    """Return `Declaration.launch_bounds` from a kernel's directives."""

    def numbers(name: str) -> list[int]:
        match = re.search(rf"\.{name}\s+([\d, ]+)", directives)
        return [int(number) for number in match[1].split(",")] if match else []

    threads = 1
    for number in numbers("(?:maxntid|reqntid)"):
        threads *= number
    bounds = [threads if numbers("(?:maxntid|reqntid)") else 0, *(numbers("minnctapersm") or [0])]
    bounds += numbers("maxclusterrank") or [0]
    while bounds and not bounds[-1]:
        bounds.pop()
    return tuple(bounds)


def _subprograms(text: str) -> dict[str, tuple[Any, _Types]]:
    """Return the functions in the debug information by symbol: entry and types of their compilation units."""
    sections = {
        f"{name}_sec": DebugSectionDescriptor(
            io.BytesIO(data), name=f".{name}", global_offset=0, size=len(data), address=0
        )
        for name in ("debug_info", "debug_abbrev")
        if (data := _section(text, f".{name}"))
    }
    config = DwarfConfig(little_endian=True, machine_arch="x64", default_address_size=8)
    # PTX has no other sections of DWARF.
    dwarf = DWARFInfo(**{**dict.fromkeys(inspect.signature(DWARFInfo).parameters), **sections, "config": config})
    subprograms = {}
    for unit in dwarf.iter_CUs():
        types = _Types()
        for die in unit.get_top_DIE().iter_children():
            if die.tag == "DW_TAG_subprogram":
                symbol = _text(die, "DW_AT_MIPS_linkage_name") or _text(die, "DW_AT_name")
                subprograms[symbol] = die, types
    return subprograms


_NUMBER = re.compile(r"\s*-?(0x[0-9a-fA-F]+|0|[1-9][0-9]*)\s*")
"""The form of NVRTC's numbers. A word of letters from a to f is a name in the file."""


def _section(text: str, name: str) -> bytes:
    """Return the bytes of a section; its addresses are zero, because nothing is linked yet."""
    match = re.search(rf"^\s*\.section\s+{re.escape(name)}\s*\{{(.*?)^\s*\}}", text, re.DOTALL | re.MULTILINE)
    if match is None:
        message = f"the PTX has no section {name}"
        raise ValueError(message)
    data = bytearray()
    for line in match[1].splitlines():
        kind, _, items = line.strip().partition(" ")
        if not kind.startswith(".b"):
            continue
        size = int(kind[2:]) // 8
        for item in items.split(","):
            value = int(item, 0) if _NUMBER.fullmatch(item) else 0
            data += (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _text(die: Any, name: str) -> str:
    attribute = die.attributes.get(name)
    return attribute.value.decode(errors="replace") if attribute is not None else ""


def _number(die: Any, name: str) -> int:
    attribute = die.attributes.get(name)
    return int(attribute.value) if attribute is not None and isinstance(attribute.value, int) else 0


_WRAPPERS = frozenset(f"DW_TAG_{kind}_type" for kind in ("volatile", "restrict", "atomic", "packed")) | {
    "DW_TAG_typedef"
}
_POINTERS = frozenset(f"DW_TAG_{kind}_type" for kind in ("pointer", "reference", "rvalue_reference"))
_STRUCTS = frozenset(f"DW_TAG_{kind}_type" for kind in ("structure", "class"))
_KINDS = {2: "b", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u", 16: "u"}
"""NumPy's kinds by DWARF's encodings: boolean, float, signed, signed char, unsigned, unsigned char, UTF."""

_FORMS = {"b1": "?", "f4": "f", "f8": "d"} | {
    f"{kind}{size}": form
    for kind, forms in (("i", "bhiq"), ("u", "BHIQ"))
    for size, form in zip((1, 2, 4, 8), forms, strict=True)
}
_SMALL = {
    "__half": "<f2",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_e8m0": "float8_e8m0fnu",
}
"""Type strings of the small floats of `cuda_fp16.h`, `cuda_bf16.h` and `cuda_fp8.h`."""
_COMPLEX = re.compile(r"complex<(float|double)>")


class _Types:
    """The types of a compilation unit."""

    def __init__(self) -> None:
        self._known: dict[int, CppType] = {}

    def type_of(self, die: Any, *, plain: bool = False) -> CppType:
        """Return the type that `die` describes; `plain` drops const, which does not matter for arguments."""
        target = die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None
        while plain and target is not None and target.tag == "DW_TAG_const_type" and "DW_AT_type" in target.attributes:
            target = target.get_DIE_from_attribute("DW_AT_type")
        return self._read(target)

    def _read(self, die: Any) -> CppType:
        if die is None or die.tag == "DW_TAG_unspecified_type":
            return CppType(text="void", size=0)
        if die.offset not in self._known:
            self._known[die.offset] = CppType(text="...", size=0)  # for a struct with a pointer to its own type
            self._known[die.offset] = self._new_type(die)
        return self._known[die.offset]

    def _new_type(self, die: Any) -> CppType:
        if die.tag == "DW_TAG_const_type":
            inner = self.type_of(die)
            if inner.constant:
                return inner
            text = f"{inner.text} const" if inner.element is not None else f"const {inner.text}"
            return replace(inner, text=text, constant=True)
        if die.tag in _WRAPPERS:
            return self.type_of(die)
        if die.tag in _POINTERS:
            element = self.type_of(die)
            mark = "*" if die.tag == "DW_TAG_pointer_type" else "&"
            text = f"{element.text}{'' if element.text.endswith('*') else ' '}{mark}"
            return CppType(text=text, size=8, form="Q", dtype="<u8", element=element, leaves=("<u8",))
        if die.tag == "DW_TAG_base_type":
            return _base(_text(die, "DW_AT_name"), _number(die, "DW_AT_encoding"), _number(die, "DW_AT_byte_size"))
        if die.tag == "DW_TAG_enumeration_type":
            values = [_number(child, "DW_AT_const_value") for child in die.iter_children()]
            kind = 5 if any(value < 0 for value in values) else 7
            return _base(_text(die, "DW_AT_name") or "enum", kind, _number(die, "DW_AT_byte_size"))
        if die.tag == "DW_TAG_array_type":
            return self._array(die)
        if die.tag in _STRUCTS:
            return self._struct(die)
        size = _number(die, "DW_AT_byte_size")
        return CppType(
            text=_text(die, "DW_AT_name") or ("a function" if "subroutine" in die.tag else "a type"),
            size=size,
            dtype=f"|V{size}" if size else "",
        )

    def _array(self, die: Any) -> CppType:
        """Return the type of an array in a struct, or of an array that a pointer points to."""
        inner = self.type_of(die)
        extents = [
            _number(child, "DW_AT_count") or _number(child, "DW_AT_upper_bound") + 1
            for child in die.iter_children()
            if child.tag == "DW_TAG_subrange_type"
        ]
        size = inner.size
        for extent in extents:
            size *= extent
        shape = "".join(f"*{extent}" for extent in extents)
        text = inner.text + "".join(f"[{extent}]" for extent in extents)
        dtype = f"{_field(inner)}{shape}" if inner.dtype else ""
        return CppType(text=text, size=size, dtype=dtype, leaves=inner.leaves, constant=inner.constant)

    def _struct(self, die: Any) -> CppType:
        name, size = _text(die, "DW_AT_name"), _number(die, "DW_AT_byte_size")
        text = name if name and not name.startswith("_Z") else "struct"
        if name in _SMALL:
            form = "e" if name == "__half" else ""
            return CppType(text=text, size=size, form=form, dtype=_SMALL[name], leaves=(_SMALL[name],))
        if match := _COMPLEX.fullmatch(name):
            part = "f" if match[1] == "float" else "d"
            width = struct.calcsize(part)
            return CppType(
                text=text, size=2 * width, form=part, dtype=f"<c{2 * width}", is_complex=True, leaves=(f"<f{width}",)
            )
        if name in ("CUtensorMap_st", "CUtensorMap") and size == 128:
            return CppType(text="CUtensorMap", size=size, dtype=TENSOR_MAP, leaves=("<u8",))
        if not size:
            return CppType(text=text, size=0)
        fields, leaves = self._fields(die) or ([], ())
        dtype = f"|V{size}" + (f"{{{','.join(fields)}}}" if fields else "")
        return CppType(text=text, size=size, dtype=dtype, leaves=leaves)

    def _fields(self, die: Any) -> tuple[list[str], tuple[str, ...]] | None:
        """Return the members as `aotcuda.manifest.dtypes` writes fields, and their leaves; None for bit-fields."""
        fields: list[str] = []
        leaves: dict[str, None] = {}
        for member in die.iter_children():
            if member.tag not in ("DW_TAG_member", "DW_TAG_inheritance") or "DW_AT_data_member_location" not in (
                member.attributes
            ):
                continue
            kind, start = self.type_of(member), _location(member)
            if "DW_AT_bit_size" in member.attributes or not kind.dtype:
                return None
            leaves |= dict.fromkeys(kind.leaves or (kind.dtype,))
            name = _text(member, "DW_AT_name")
            if name.startswith("__b_") or member.tag == "DW_TAG_inheritance":  # a base class
                base = self._fields(member.get_DIE_from_attribute("DW_AT_type"))
                if base is None:
                    return None
                fields += [_move_field(text, start) for text in base[0]]
            else:
                fields.append(f"{name}:{_field(kind)}@{start}")
        return fields, tuple(leaves)


def _field(kind: CppType) -> str:
    """Return the type string of a member: for a struct its fields, nested as in NumPy's description."""
    _, brace, fields = kind.dtype.partition("{")
    return f"{{{fields}" if brace and kind.dtype.startswith("|V") else kind.dtype


def _move_field(text: str, start: int) -> str:
    """Return a field of a base class at its offset in the derived struct, whose base is at `start`."""
    head, _, offset = text.rpartition("@")
    return f"{head}@{int(offset) + start}"


def _location(member: Any) -> int:
    """Return the offset of a member: a number, or DWARF's expression `DW_OP_plus_uconst` with a LEB128 number."""
    value = member.attributes["DW_AT_data_member_location"].value
    if isinstance(value, int):
        return value
    number = 0
    for at, byte in enumerate(value[1:]):
        number |= (byte & 0x7F) << 7 * at
    return number


def _base(name: str, encoding: int, size: int) -> CppType:
    key = f"{_KINDS.get(encoding, 'V')}{size}"
    form = _FORMS.get(key, "")
    dtype = f"{'|' if size == 1 else '<'}{key}" if form else f"|V{size}"
    return CppType(text=name, size=size, form=form, dtype=dtype, leaves=(dtype,))
