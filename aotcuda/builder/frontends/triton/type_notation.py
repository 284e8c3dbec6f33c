"""Triton's notation of types and constants, as tables and files of variants write it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from aotcuda import arch
from aotcuda.builder.config import keys
from aotcuda.builder.frontends.variants import stable
from aotcuda.common.scalar_types import FORMATS, TRITON, TYPE_STRINGS

_TYPE = re.compile(r"(\*k?)?([a-z]\w*)(?::(16|1))?")
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[(\d+(?:, ?\d+){0,4})\]>")

NOTHING = "none"
"""The type of an argument that is None."""

NONE = "None"
"""The constexpr None, for which TOML has no value."""

Value = int | float | bool | str | None | tuple["Value", ...]
"""The value of a constexpr; a type is `tl.float16` or `torch.float16`. Tables have no tuples."""

DTYPES = (
    *("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8e4nv", "float8e4b8", "float8e4b15", "float8e5", "float8e5b16"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Types of `triton.language` that a constexpr may be; `tl.float32` in tables, and as a string in launches."""

_DTYPE_PATH = re.compile(r"(tl|triton\.language|torch)\.(\w+)")
_TORCH_DTYPE = re.compile(r"torch\.[a-z]\w*\d+\w*|torch\.(bool|half|float|double|short|int|long)")

TYPE_PREFIXES = ("tl.", "torch.")
"""The beginnings of strings that stand for types of Triton and of PyTorch."""

_NAMES = {"i1": "bool", "u1": "bool", **TRITON}

SCALARS = {triton: FORMATS[name] for triton, name in _NAMES.items() if name in FORMATS and triton != "fp16"}
"""Triton's names of numbers that are passed by value, with their `struct` characters."""

_OF_AMD = {"fp8e4b8": "*fp8e4nv", "fp8e5b16": "*fp8e5"}
"""Triton's types that it compiles for no GPU of NVIDIA, each with the nearest one that it compiles."""

ELEMENTS = {
    **{triton: TYPE_STRINGS[name] for triton, name in _NAMES.items() if triton not in _OF_AMD},
    "fp8e4b15": "|u1",  # only Triton has this type; arrays pass it as bytes: `triton.reinterpret(x, tl.float8e4b15)`
}
"""Triton's names of numbers that arrays hold, with NumPy's type strings."""

_DESCRIPTOR_ELEMENTS = ELEMENTS.keys() - {"i1", "u1", "fp8e4b15"}
"""The elements of tensor descriptors. Arrays have no dtype for fp8e4b15."""

PLAIN = re.compile(r"[\w.+-]*")
"""A string that needs no escapes in C comments and in Python."""

_UNSUPPORTED = {
    "fp16": "a number in half precision; declare the parameter as fp32",
    "bf16": "a number in half precision; declare the parameter as fp32",
    "nvTmaDesc": "a tensor map, which the host would have to make; pass a pointer and strides",
    **{name: f"a type of AMD's GPUs; write {other}" for name, other in _OF_AMD.items()},
}


_MORE = ", a pointer to numbers, *fp32, tensordesc<fp16[64, 64]> for a tensor descriptor, or none for None"
_MORE_POINTERS = ", and with k, *kfp32, for an array that the kernel only reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of one argument.

    Attributes:
        scalar: Triton's name of the number, or of the elements of an array or a tensor descriptor: `fp32`.
        pointer: True for the address of an array's first element.
        const: True if the array is only read.
        hint: 16 for an argument that is divisible by 16, 1 for an argument that equals 1, 0 for any argument.
        block: The block shape of a tensor descriptor; empty for other types.
    """

    scalar: str
    pointer: bool = False
    const: bool = False
    hint: int = 0
    block: tuple[int, ...] = ()

    @property
    def plain(self) -> str:
        """Return the type as Triton writes it, without a hint: `*fp32`."""
        if self.block:
            return f"tensordesc<{self.scalar}[{', '.join(map(str, self.block))}]>"
        return f"{'*' if self.pointer else ''}{'k' if self.const else ''}{self.scalar}"

    def __str__(self) -> str:
        return f"{self.plain}:{self.hint}" if self.hint else self.plain

    @property
    def takes_hints(self) -> bool:
        """Return True if Triton specialises arguments of this type."""
        return self.pointer or (not self.block and self.scalar[0] in "iu" and self.scalar not in ("i1", "u1"))


def parse_signature(text: str) -> tuple[Type, ...]:
    """Return the types in a signature, `*fp32:16, *fp32, i32`.

    Raises:
        ValueError: A type in the signature is invalid; the text has the fact and the remedy.
    """
    return tuple(_type(part.strip()) for part in split(text))


def split(text: str) -> list[str]:
    """Return the types in a signature as text; commas in `tensordesc<fp16[64, 64]>` do not separate types."""
    return re.split(r",\s*(?![^\[]*\])", text.strip()) if text.strip() else []


def _type(text: str) -> Type:
    if text == NOTHING:
        return Type(scalar=NOTHING)
    match = _TYPE.fullmatch(text)
    name = match[2] if match else re.split(r"[<\[]", text.lstrip("*"))[0]
    if name == "tensordesc":
        return _descriptor(text)
    pointer = bool(match and match[1])
    if name in _UNSUPPORTED and not (pointer and name in ELEMENTS):
        message = f"{keys.string(text)} is {_UNSUPPORTED[name]}"
        raise ValueError(message)
    names = ELEMENTS if pointer else SCALARS
    if match is None or name not in names:
        prefix = "*" if pointer else ""
        message = (
            f"{keys.string(text)} is not a type; write {', '.join(prefix + item for item in names)}"
            f"{_MORE_POINTERS if pointer else _MORE}, and, where an argument is always divisible by 16 or equal to 1, "
            ":16 or :1 after it"
        )
        raise ValueError(message)
    hint = int(match[3] or 0)
    result = Type(scalar=name, pointer=pointer, const=match[1] == "*k", hint=hint)
    if hint and (not result.takes_hints or (pointer and hint == 1)):
        message = f"{keys.string(text)} has a hint, which {result.plain} cannot have; leave :{hint} out"
        raise ValueError(message)
    return result


def _descriptor(text: str) -> Type:
    match = _DESCRIPTOR.fullmatch(text)
    block = tuple(map(int, match[2].split(","))) if match else ()
    if (
        match is None
        or match[1] not in _DESCRIPTOR_ELEMENTS
        or not all(each > 0 and each & (each - 1) == 0 for each in block)
    ):
        message = (
            f"{keys.string(text)} is not a type of a tensor descriptor; write its elements and block shape, one to "
            "five powers of two: tensordesc<fp16[64, 64]>"
        )
        raise ValueError(message)
    return Type(scalar=match[1], block=block)


CONSTANT = (
    'a number, true or false, or a string of letters, digits and ._+- ("None" is None, "tl.float32" and '
    '"torch.float32" are types)'
)
"""The value of a constexpr in a table."""


def table_constant(value: float | str) -> Value:
    """Return the value of a constexpr in a table.

    Raises:
        ValueError: A table cannot have this value; the text has the fact and the remedy.
    """
    match = _DTYPE_PATH.fullmatch(value) if isinstance(value, str) else None
    is_torch = isinstance(value, str) and _TORCH_DTYPE.fullmatch(value)
    if match and not is_torch and (match[1] != "tl" or match[2] not in DTYPES):
        near = difflib.get_close_matches(match[2], DTYPES, n=1)
        hint = f"did you mean tl.{near[0]}?" if near else f"write {', '.join(f'tl.{name}' for name in DTYPES)}"
        message = f"{keys.string(match[0])} is not a type that a constexpr can be; {hint}"
        raise ValueError(message)
    if isinstance(value, str) and not PLAIN.fullmatch(value):
        message = f"{value!r} is not {CONSTANT}"
        raise ValueError(message)
    return None if value == NONE else stable(value)


def is_torch_dtype(text: str) -> bool:
    """Return True for the name of a type of PyTorch: `torch.float16`."""
    return _TORCH_DTYPE.fullmatch(text) is not None


def is_same(value: object, other: object) -> bool:
    """Return True if two values are the same constexpr; 1, 1.0 and True differ, as do 0.0 and -0.0."""
    return repr(value) == repr(other)


def target(wanted: arch.Target) -> arch.Target:
    """Implement Tables.target: from compute capability 9.0 on, Triton's code runs on one GPU architecture only.

    Raises:
        ValueError: Triton has no code for the target; the text names another target.
    """
    if wanted.suffix == "f":
        message = "Triton compiles for one architecture or for all later ones, not for a family; leave the f out"
        raise ValueError(message)
    if wanted.capability < (9, 0) or wanted.suffix:
        return wanted
    if wanted.kind == "ptx":
        message = (
            "Triton's PTX for 9.0 and later is for one GPU architecture, and drivers cannot compile it for later GPUs; "
            "write compute_89 or a lower target"
        )
        raise ValueError(message)
    return arch.Target(wanted.kind, wanted.major, wanted.minor, "a")


def code_target(text: str) -> arch.Target:
    """Return the `sm_*` target of the code that an image for a target contains.

    Raises:
        ValueError: The text is not a target, or Triton has no code for it.
    """
    image = target(arch.parse(text))
    return arch.Target("sass", image.major, image.minor, image.suffix)
