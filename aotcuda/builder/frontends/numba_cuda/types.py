"""Describe the types and the calling convention of Numba-CUDA.

The source is `numba.cuda.dispatcher._Kernel._prepare_args` with Numba's data models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.cuda import types
from numba.cuda.core import sigutils
from numba.cuda.np import numpy_support

from aotcuda.builder.frontends.numba.calling_convention import CallingConvention, Word
from aotcuda.builder.frontends.numba.type_notation import Notation

if TYPE_CHECKING:
    from aotcuda.builder.frontends.numba.calling_convention import Layout


class _DataModels(CallingConvention):
    def array_words(self, ndim: int) -> list[Word]:
        return [
            Word("zero", "meminfo", "void *"),
            Word("zero", "parent", "void *"),
            Word("items", "nitems"),
            Word("itemsize", "itemsize"),
            Word("data", "data", ""),
            *(Word(f"shape{axis}", f"shape{axis}") for axis in range(ndim)),
            *(Word(f"stride{axis}", f"stride{axis}") for axis in range(ndim)),
        ]

    def place_complex(self, layout: Layout, size: int) -> int:
        offset = layout.place(size)
        layout.place(size)
        return offset

    def place_type(self, layout: Layout, ty: Any) -> dict[str, object]:
        del ty
        return {"offset": layout.place(8), "words": ["zero"]}  # an opaque pointer

    def c_complex(self, name: str, ty: Any) -> list[tuple[str, str]]:
        part = "float" if ty == types.complex64 else "double"
        return [(part, f"{name}_real"), (part, f"{name}_imag")]


# The states of `create_xoroshiro128p_states`.
_NAMED = {"xoroshiro128p_type": ("numba.cuda.random", "xoroshiro128p_type")}

notation = Notation(types, sigutils, numpy_support, _NAMED)
convention = _DataModels(notation)
