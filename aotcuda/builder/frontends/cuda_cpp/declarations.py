"""Read kernels and device functions from NVRTC's PTX: their parameters, by name, type and offset.

The PTX has debug information. Its directives define the memory layout of parameters (PTX ISA, "Kernel Function
Parameters"). DWARF describes their C++ declarations: names, types, and members of structs (DWARF 2, "Data Object and
Object List Entries", "Type Entries"). So the compiler of the kernels also parses their declarations.
"""

from __future__ import annotations

import inspect
import io
import math
import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo

from aotcuda.builder.link import ptx_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
        item: For an array, the type of its elements, through all dimensions.
        leaves: The type strings of its numbers.
        constant: True for a const type.
        problem: The reason why no argument can have the type, in words that follow its name; empty if one can.
    """

    text: str
    size: int
    form: str = ""
    dtype: str = ""
    is_complex: bool = False
    element: CppType | None = None
    item: CppType | None = None
    leaves: tuple[str, ...] = ()
    constant: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A parameter: its name (`arg0` if it has none), its type, and its offset in the parameter block.

    Attributes:
        alignment: For a pointer or reference, the alignment of the type that it points to; 0 if unknown.
    """

    name: str
    type: CppType
    offset: int
    size: int
    alignment: int = 0


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
        block: The only block that launches may have, in x, y and z; empty if the kernel takes others.
        line: The line of its declaration.
        is_variadic: True if further arguments follow its parameters (`...`).
    """

    symbol: str
    is_kernel: bool
    result: CppType
    parameters: tuple[Declared, ...]
    parameter_bytes: int
    alignment: int
    launch_bounds: tuple[int, ...]
    block: tuple[int, ...]
    line: int
    is_variadic: bool


def read(ptx: bytes, kernels: Sequence[str] = ()) -> dict[str, Declaration]:
    """Return the visible kernels and functions of a PTX module, by symbol.

    `kernels` are the symbols of the kernels whose facts `with_facts` added to the source, in its order.

    Raises:
        ValueError: It was not compiled with debug information.
    """
    text = ptx.rstrip(b"\0").decode(errors="replace")
    subprograms = _subprograms(text)
    alignments = {kernels[number]: values for number, values in _values(text).items() if number < len(kernels)}
    declarations = {}
    for match in _FUNCTION.finditer(text):
        kind, symbol, parameters, directives = match.groups()
        if symbol not in subprograms:
            continue  # a function that the compiler added
        dwarf, types = subprograms[symbol]
        fields = ptx_parameters.read(parameters or "")
        dies = [child for child in dwarf.iter_children() if child.tag == "DW_TAG_formal_parameter"]
        end = fields[-1].offset + fields[-1].size if fields else 0
        of_kernel = alignments.get(symbol) or [0] * len(dies)
        declarations[symbol] = Declaration(
            symbol=symbol,
            is_kernel=kind == "entry",
            result=types.type_of(dwarf),
            parameters=tuple(
                Declared(
                    name=_text(die, "DW_AT_name") or f"arg{at}",
                    type=types.type_of(die, plain=True),
                    offset=field.offset,
                    size=field.size,
                    alignment=alignment,
                )
                for at, (die, field, alignment) in enumerate(zip(dies, fields, of_kernel, strict=True))
            ),
            parameter_bytes=end,
            alignment=max([field.alignment for field in fields], default=1),
            launch_bounds=_bounds(directives or "") if kind == "entry" else (),
            block=_block(directives or "") if kind == "entry" else (),
            is_variadic="%VAParam" in (parameters or ""),
            line=dwarf.attributes["DW_AT_decl_line"].value if "DW_AT_decl_line" in dwarf.attributes else 0,
        )
    return declarations


# PTX ISA, "Kernel and Function Directives" and "Performance-Tuning Directives".
_FUNCTION = re.compile(
    r"^\.(?:visible|weak)\s+\.(entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)\{", re.MULTILINE
)


def _bounds(directives: str) -> tuple[int, ...]:
    """Return `Declaration.launch_bounds` from a kernel's directives."""
    threads = _numbers("(?:maxntid|reqntid)", directives)
    bounds = [math.prod(threads) if threads else 0, *(_numbers("minnctapersm", directives) or [0])]
    bounds += _numbers("maxclusterrank", directives) or [0]
    while bounds and not bounds[-1]:
        bounds.pop()
    return tuple(bounds)


def _block(directives: str) -> tuple[int, ...]:
    """Return `Declaration.block` from a kernel's directives."""
    numbers = _numbers("reqntid", directives)
    return (*numbers, *[1] * (3 - len(numbers))) if numbers else ()


def _numbers(name: str, directives: str) -> list[int]:
    match = re.search(rf"\.{name}\s+([\d, ]+)", directives)
    return [int(number) for number in match[1].split(",")] if match else []


_FACTS = "aotcuda_facts"
_FACTS_CODE = """
#line 1 "__nv_name_map_facts"
template <class aotcuda_T, class = void> struct aotcuda_alignment { static const unsigned aotcuda_value = 0; };
template <class aotcuda_T> struct aotcuda_alignment<aotcuda_T, decltype(void(sizeof(aotcuda_T)))> {
    static const unsigned aotcuda_value = alignof(aotcuda_T);
};
template <> struct aotcuda_alignment<void, void> { static const unsigned aotcuda_value = 0; };
template <class aotcuda_R, class... aotcuda_A> struct aotcuda_alignment<aotcuda_R(aotcuda_A...), void> {
    static const unsigned aotcuda_value = 0;
};
template <class aotcuda_T> struct aotcuda_target { static const unsigned aotcuda_value = 0; };
template <class aotcuda_T> struct aotcuda_target<aotcuda_T *> : aotcuda_alignment<aotcuda_T> {};
template <class aotcuda_T> struct aotcuda_target<aotcuda_T &> : aotcuda_alignment<aotcuda_T> {};
template <class aotcuda_T> struct aotcuda_target<aotcuda_T &&> : aotcuda_alignment<aotcuda_T> {};
template <unsigned... aotcuda_V> struct aotcuda_values {
    unsigned aotcuda_list[sizeof...(aotcuda_V)] = {aotcuda_V...};
};
template <class aotcuda_F> struct aotcuda_facts;
template <class... aotcuda_A> struct aotcuda_facts<void (*)(aotcuda_A...)> {
    typedef aotcuda_values<1, aotcuda_target<aotcuda_A>::aotcuda_value...> aotcuda_type;
};
"""
"""Code that is appended to a source. All names begin with aotcuda_, because the source's macros apply to them."""

_SIGNS_CODE = """
template <class aotcuda_T> struct aotcuda_plain { typedef aotcuda_T aotcuda_type; };
template <class aotcuda_T> struct aotcuda_plain<aotcuda_T *> : aotcuda_plain<aotcuda_T> {};
template <class aotcuda_T> struct aotcuda_plain<aotcuda_T &> : aotcuda_plain<aotcuda_T> {};
template <class aotcuda_T> struct aotcuda_plain<aotcuda_T &&> : aotcuda_plain<aotcuda_T> {};
template <class aotcuda_T, decltype(sizeof(0)) aotcuda_N> struct aotcuda_plain<aotcuda_T[aotcuda_N]>
    : aotcuda_plain<aotcuda_T> {};
template <class aotcuda_T> struct aotcuda_plain<aotcuda_T[]> : aotcuda_plain<aotcuda_T> {};
template <unsigned, class> struct aotcuda_parameter;
template <class aotcuda_T, class... aotcuda_A> struct aotcuda_parameter<0, void (*)(aotcuda_T, aotcuda_A...)>
    : aotcuda_plain<aotcuda_T> {};
template <unsigned aotcuda_N, class aotcuda_T, class... aotcuda_A>
struct aotcuda_parameter<aotcuda_N, void (*)(aotcuda_T, aotcuda_A...)>
    : aotcuda_parameter<aotcuda_N - 1, void (*)(aotcuda_A...)> {};
template <class aotcuda_T> struct aotcuda_sign {
    static const unsigned aotcuda_value = (__underlying_type(aotcuda_T))-1 < (__underlying_type(aotcuda_T))1 ? 2 : 1;
};
"""
"""Code that tells whether enumerations are signed: 2 for signed, 1 for unsigned, 0 for a member that is not public."""
_SIGN_CODE = """
template <class aotcuda_T, class = void> struct aotcuda_sign_{at} {{ static const unsigned aotcuda_value = 0; }};
template <class aotcuda_T> struct aotcuda_sign_{at}<aotcuda_T, decltype(void((*(aotcuda_T *)0){path}))>
    : aotcuda_sign<typename aotcuda_plain<decltype((*(aotcuda_T *)0){path})>::aotcuda_type> {{}};
extern "C" {{ __device__ aotcuda_values<1, aotcuda_sign_{at}<
    aotcuda_parameter<{number}, decltype(&{name})>::aotcuda_type>::aotcuda_value> {facts}_{at}; }}
"""

_VALUES = re.compile(rf"\.b8 {_FACTS}_(\d+)\[(\d+)\] = \{{([\d, ]+)\}}")


def with_facts(source: bytes, names: Sequence[str]) -> bytes:
    """Return a source that also tells the alignments that the parameters of kernels point to.

    `names` has the C++ name expressions of the kernels.
    """
    lines = [
        f'extern "C" {{ __device__ aotcuda_facts<decltype(&{name})>::aotcuda_type {_FACTS}_{at}; }}'
        for at, name in enumerate(names)
    ]
    return b"\n".join([source, _FACTS_CODE.encode(), *(line.encode() for line in lines), b""])


def with_signs(source: bytes, names: Sequence[str], enumerations: Sequence[Enumeration]) -> bytes:
    """Return a source that also tells the signs of enumerations, which debug information lacks."""
    lines = [
        _SIGN_CODE.format(at=at, path=path, number=number, name=names[kernel], facts=_FACTS)
        for at, (_, kernel, number, path) in enumerate(enumerations)
    ]
    return b"".join([source, _FACTS_CODE.encode(), _SIGNS_CODE.encode(), *(line.encode() for line in lines)])


def mark_signs(ptx: bytes, of_signs: bytes, enumerations: Sequence[Enumeration]) -> bytes:
    """Return PTX with a comment that has the signs from the PTX of `with_signs`."""
    values = _values(of_signs.decode(errors="replace"))
    signs = [f"{entry.offset}:{values[at][0]}" for at, entry in enumerate(enumerations) if at in values]
    return ptx.rstrip(b"\0") + f"\n{_SIGNS} {' '.join(signs)}\n".encode()


_SIGNS = "// signs of enumerations:"


def _values(text: str) -> dict[int, list[int]]:
    """Return the numbers that facts in PTX tell, by the facts' places in the source."""
    found = {}
    for number, size, digits in _VALUES.findall(text):
        data = bytes(int(digit) for digit in digits.split(",")).ljust(int(size), b"\0")  # PTX omits zeros at the end
        found[int(number)] = [*struct.unpack(f"<{len(data) // 4}I", data)][1:]
    return found


class Enumeration(NamedTuple):
    """An enumeration in debug information: its offset there, and the kernel, parameter and path of a value."""

    offset: int
    kernel: int
    parameter: int
    path: str


def enumerations(ptx: bytes, kernels: Sequence[str]) -> list[Enumeration]:
    """Return the enumerations that the parameters of kernels have, point to, or have as members, each once."""
    subprograms = _subprograms(ptx.rstrip(b"\0").decode(errors="replace"))
    found: dict[int, Enumeration] = {}
    for kernel, symbol in enumerate(kernels):
        die, _ = subprograms.get(symbol, (None, None))
        parameters = [child for child in die.iter_children() if child.tag == "DW_TAG_formal_parameter"] if die else []
        for number, parameter in enumerate(parameters):
            for offset, path in _enumerations_in(parameter, ""):
                found.setdefault(offset, Enumeration(offset, kernel, number, path))
    return list(found.values())


def _enumerations_in(die: Any, path: str) -> Iterator[tuple[int, str]]:
    """Yield offset and path of each enumeration in a parameter or member; pointers count in parameters alone."""
    target = die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None
    if target is None:
        return
    if target.tag == "DW_TAG_enumeration_type":
        yield target.offset, path
    elif target.tag in _STRUCTS:
        for member in target.iter_children():
            if member.tag in ("DW_TAG_member", "DW_TAG_inheritance"):
                yield from _enumerations_in(
                    member, path if _is_base(member) else f"{path}.{_text(member, 'DW_AT_name')}"
                )
    elif target.tag == "DW_TAG_array_type" and path:
        extents = [child for child in target.iter_children() if child.tag == "DW_TAG_subrange_type"]
        yield from _enumerations_in(target, path + "[0]" * len(extents))
    elif target.tag not in _POINTERS or not path:
        yield from _enumerations_in(target, path)


_SIGN = re.compile(r"\b(\d+):([12])\b")


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
    _, _, signs = text.rpartition(_SIGNS)
    subprograms = {}
    for unit in dwarf.iter_CUs():
        types = _Types({int(offset): value for offset, value in _SIGN.findall(signs)})
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
_FLOAT = 4
_KINDS = {2: "b", _FLOAT: "f", 5: "i", 6: "i", 7: "u", 8: "u", 16: "u"}
"""NumPy's kinds by DWARF's encodings: boolean, float, signed, signed char, unsigned, unsigned char, UTF."""

_FORMS = {"b1": "?", "f4": "f", "f8": "d"} | {
    f"{kind}{size}": form
    for kind, forms in (("i", "bhiq"), ("u", "BHIQ"))
    for size, form in zip((1, 2, 4, 8), forms, strict=True)
}
_Members = tuple[tuple[str, str, int], ...]
"""Name, type string and offset of each member of a struct."""


def _complex_members(width: int) -> tuple[_Members, ...]:
    """Return the members of complex numbers whose parts have `width` bytes: of libcu++, and of Thrust."""
    part = f"<f{width}"
    return ((("__re_", part, 0), ("__im_", part, width)), (("data", f"{{x:{part}@0,y:{part}@{width}}}", 0),))


_BITS16, _BITS8 = ((("__x", "<u2", 0),),), ((("__x", "|u1", 0),),)
_TOOLKIT: dict[str, tuple[int, tuple[_Members, ...], dict[str, Any]]] = {
    "__half": (2, _BITS16, {"form": "e", "dtype": "<f2"}),
    "__nv_bfloat16": (2, _BITS16, {"dtype": "bfloat16"}),
    "__nv_fp8_e4m3": (1, _BITS8, {"dtype": "float8_e4m3fn"}),
    "__nv_fp8_e5m2": (1, _BITS8, {"dtype": "float8_e5m2"}),
    "__nv_fp8_e8m0": (1, _BITS8, {"dtype": "float8_e8m0fnu"}),
    "complex<float>": (8, _complex_members(4), {"form": "f", "dtype": "<c8", "is_complex": True, "leaves": ("<f4",)}),
    "complex<double>": (
        16,
        _complex_members(8),
        {"form": "d", "dtype": "<c16", "is_complex": True, "leaves": ("<f8",)},
    ),
    "CUtensorMap_st": (
        128,
        ((("opaque", "<u8*16", 0),),),
        {"text": "CUtensorMap", "dtype": TENSOR_MAP, "leaves": ("<u8",)},
    ),
}
_TOOLKIT["CUtensorMap"] = _TOOLKIT["CUtensorMap_st"]
"""Types of the toolkit's headers that launches know: by name their size, the forms of their members, and attributes.

Debug information has no namespaces, so a type of the project may have such a name.
"""


class _Types:
    """The types of a compilation unit."""

    def __init__(self, signs: Mapping[int, str]) -> None:
        self._known: dict[int, CppType] = {}
        self._signs = signs

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
            sign = self._signs.get(die.offset) or ("2" if any(value < 0 for value in values) else "1")
            encoding = 5 if sign == "2" else 7
            return _base(_text(die, "DW_AT_name") or "enum", encoding, _number(die, "DW_AT_byte_size"))
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
        return CppType(
            text=text,
            size=size,
            dtype=f"{_field(inner)}{shape}" if inner.dtype else "",
            item=inner.item or inner,
            leaves=inner.leaves,
            constant=inner.constant,
            problem=f"has elements {inner.text}, which {inner.problem}" if inner.problem else "",
        )

    def _struct(self, die: Any) -> CppType:
        name, size = _text(die, "DW_AT_name"), _number(die, "DW_AT_byte_size")
        text = name if name and not name.startswith("_Z") else "struct"
        if not size:
            return CppType(text=text, size=0)
        members = self._members(die)
        if members is None:
            return CppType(text=text, size=size, dtype=f"|V{size}")
        described = tuple((member.name, _field(member.type), member.start) for member in members)
        known_size, forms, attributes = _TOOLKIT.get(name, (0, (), {}))
        if known_size == size and described in forms:
            return CppType(**{"text": text, "size": size, "leaves": (attributes["dtype"],), **attributes})
        fields = ",".join(f"{name}:{kind}@{start}" for name, kind, start in described)
        return CppType(
            text=text,
            size=size,
            dtype=f"|V{size}{{{fields}}}" if fields else f"|V{size}",
            leaves=tuple(dict.fromkeys(leaf for member in members for leaf in member.type.leaves)),
            problem=_problem_of(members),
        )

    def _members(self, die: Any) -> list[_Member] | None:
        """Return the members of a struct, those of base classes among them; None if some have no bytes of their own."""
        members: list[_Member] = []
        for child in die.iter_children():
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance") or "DW_AT_data_member_location" not in (
                child.attributes
            ):
                continue
            kind, start = self.type_of(child), _location(child)
            name = _text(child, "DW_AT_name")
            if _is_base(child):
                of_base = self._members(child.get_DIE_from_attribute("DW_AT_type"))
                if of_base is None:
                    return None
                members += [replace(member, start=member.start + start) for member in of_base]
            elif "DW_AT_bit_size" in child.attributes or (not kind.dtype and not kind.problem):
                return None
            else:
                members.append(_Member(name, kind if kind.leaves else replace(kind, leaves=(kind.dtype,)), start))
        return members


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a struct, at an offset in bytes."""

    name: str
    type: CppType
    start: int


def _is_base(member: Any) -> bool:
    """Return True for a base class."""
    return member.tag == "DW_TAG_inheritance" or _text(member, "DW_AT_name").startswith("__b_")


def _problem_of(members: Sequence[_Member]) -> str:
    """Return `CppType.problem` of a struct: a NumPy dtype needs one name for each member."""
    names = [member.name for member in members]
    for member in members:
        if member.type.problem:
            return f"has a member {member.name} of type {member.type.text}, which {member.type.problem}"
        if not member.name:
            return "has a member without a name, which no NumPy dtype can describe; give the member a name"
        if names.count(member.name) > 1:
            return (
                f"has several members {member.name}, also from its base classes, which no NumPy dtype can describe; "
                "give each another name"
            )
    return ""


def _field(kind: CppType) -> str:
    """Return the type string of a member: for a struct its fields, nested as in NumPy's description."""
    _, brace, fields = kind.dtype.partition("{")
    return f"{{{fields}" if brace and kind.dtype.startswith("|V") else kind.dtype


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
    if encoding == _FLOAT and size not in (4, 8):
        problem = "has 8 bytes in GPU code and another size elsewhere; declare it double"
        return CppType(text=f"long {name}" if name == "double" else name, size=size, problem=problem)
    key = f"{_KINDS.get(encoding, 'V')}{size}"
    form = _FORMS.get(key, "")
    dtype = f"{'|' if size == 1 else '<'}{key}" if form else f"|V{size}"
    return CppType(text=name, size=size, form=form, dtype=dtype, leaves=(dtype,))
