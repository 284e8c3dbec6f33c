"""Lay out arguments: a kernel's parameter block, and the parameters of device functions in C (see `c_abi`).

Every argument is flattened into machine-level parameters, each at its natural alignment, as PTX lays out a kernel's
parameters (PTX ISA, "Kernel Function Parameters"). The build checks the result against the linked image.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aotcuda.builder.frontends.numba.type_notation import SIZES
from aotcuda.common import scalar_types
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.frontends.numba.type_notation import Notation
    from aotcuda.manifest import Parameter

_INTEGER = "long long"


class Word(NamedTuple):
    """One of the 64-bit words that an array is passed as.

    Attributes:
        content: The content, as the `words` of a manifest spell it.
        name: The name in C prototypes.
        c_type: Its C type; empty for a pointer to the elements.
    """

    content: str
    name: str
    c_type: str = _INTEGER


class CallingConvention:
    """The rules by which one compiler lays out arguments.

    Attributes:
        nests_results: True if a nested tuple in the result of a C ABI function is a struct inside a struct.
    """

    nests_results = True
    reads_unaligned = True
    """True if kernels read records that are not `aligned`, and their arrays, byte by byte."""

    def __init__(self, notation: Notation) -> None:
        self.notation = notation

    @abstractmethod
    def array_words(self, ndim: int) -> list[Word]:
        """Return the words of an array's descriptor."""

    @abstractmethod
    def place_complex(self, layout: Layout, size: int) -> int:
        """Place a complex number of two floats of `size` bytes; return its offset."""

    @abstractmethod
    def place_type(self, layout: Layout, ty: Any) -> dict[str, object]:
        """Place an argument that is a type, such as `numpy.float32`, and return its keys in the manifest."""

    @abstractmethod
    def c_complex(self, name: str, ty: Any) -> list[tuple[str, str]]:
        """Return the C parameters of a complex argument."""

    def layout(self, where: str, names: Sequence[str], types: Sequence[Any]) -> Layout:
        """Return the parameter block of a kernel.

        Raises:
            CompileError: A packaged kernel cannot take an argument of one of the types.
        """
        layout = Layout()
        for name, ty in zip(names, types, strict=True):
            layout.parameters.append(self._describe(layout, name, ty, where))
        return layout

    def _describe(self, layout: Layout, name: str, ty: Any, where: str) -> Parameter:
        notation, types = self.notation, self.notation.types
        entry: dict[str, object] = {"name": name, "type": notation.spell(ty)}
        if ty in notation.formats:
            code = notation.formats[ty]
            entry |= {"kind": "scalar", "format": code, "offset": layout.place(SIZES[code])}
        elif notation.is_complex(ty):
            code = "f" if ty == types.complex64 else "d"
            entry |= {"kind": "complex", "format": code, "offset": self.place_complex(layout, SIZES[code])}
        elif notation.is_pointer(ty):
            entry |= {"kind": "pointer", "offset": layout.place(8)}
        elif isinstance(ty, types.NumberClass | types.DType):
            entry |= self._describe_type(layout, name, ty, where)
        elif isinstance(ty, types.NPDatetime | types.NPTimedelta):
            entry |= {"kind": "datetime", "dtype": notation.dtype_text(ty), "offset": layout.place(8)}
        elif isinstance(ty, types.Record):
            entry |= {"kind": "record", "dtype": notation.dtype_text(ty), "offset": layout.place(8)}
            entry |= {"align": self._alignment(ty)}
        elif isinstance(ty, types.Array):
            entry |= self._describe_array(layout, name, ty, where)
        elif isinstance(ty, types.BaseTuple):
            members = [self._describe(layout, f"{name}[{index}]", item, where) for index, item in enumerate(ty)]
            entry |= {"kind": "tuple", "members": members, "offset": members[0]["offset"] if members else layout.size}
        else:
            raise self._refusal(name, ty, where)
        return cast("Parameter", entry)

    def _describe_array(self, layout: Layout, name: str, ty: Any, where: str) -> dict[str, object]:
        try:
            dtype = self.notation.dtype_text(ty.dtype)
        except NotImplementedError:
            raise self._refusal(name, ty, where) from None
        words = [word.content for word in self.array_words(ty.ndim)]
        offsets = [layout.place(8) for _ in words]
        has_own = isinstance(ty.dtype, self.notation.types.Record | self.notation.types.NestedArray) or not ty.aligned
        return {
            **({"align": self._alignment(ty)} if has_own else {}),
            "kind": "array",
            "offset": offsets[0],
            "dtype": dtype,
            "ndim": ty.ndim,
            "layout": ty.layout,
            "readonly": not ty.mutable,
            "words": words,
        }

    def _alignment(self, ty: Any) -> int:
        """Return the alignment in bytes with which a kernel reads the elements of an array, or a record."""
        types = self.notation.types
        if self.reads_unaligned and not getattr(ty, "aligned", True):
            return 1
        if isinstance(ty, types.Record):
            return max((self._alignment(field.type) for field in ty.fields.values()), default=1)
        if isinstance(ty, types.Array):
            return self._alignment(ty.dtype)
        return scalar_types.alignment(self.notation.dtype_text(ty))

    def _describe_type(self, layout: Layout, name: str, ty: Any, where: str) -> dict[str, object]:
        """Describe an argument that is a type. Compiled code contains the type; the parameter block has zeros."""
        try:
            dtype = self.notation.dtype_text(ty.dtype)
        except NotImplementedError:
            raise self._refusal(name, ty, where) from None
        return {"kind": "type", "dtype": dtype, **self.place_type(layout, ty)}

    def _refusal(self, name: str, ty: Any, where: str) -> CompileError:
        return CompileError(
            f"{where}: argument {name!r} is of type {self.notation.spell(ty)}, which a packaged kernel cannot accept; "
            "pass numbers, bool, complex, datetimes, records, pointers, arrays, types, or tuples of these"
        )


@dataclass(slots=True)
class Layout:
    """A parameter block: the Python arguments, and the machine-level parameters that they become.

    Attributes:
        parameters: The arguments, as the manifest describes them.
        fields: Offset and size in bytes of each machine-level parameter.
        size: The bytes of the block.
    """

    parameters: list[Parameter] = field(default_factory=list)
    fields: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def place(self, size: int, alignment: int = 0) -> int:
        """Append one machine-level parameter, aligned to its size unless `alignment` is given; return its offset."""
        alignment = alignment or size
        offset = -(-self.size // alignment) * alignment
        self.fields.append((offset, size))
        self.size = offset + size
        return offset
