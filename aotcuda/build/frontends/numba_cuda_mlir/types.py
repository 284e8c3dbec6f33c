"""Numba-CUDA-MLIR's types, and how it passes arguments.

An array is a memref descriptor: allocated and aligned pointer, offset, sizes, strides in elements (MLIR, "Target LLVM
IR", ranked memref types). A complex number is one parameter of two floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import sigutils
from numba_cuda_mlir.numba_cuda.np import numpy_support

from aotcuda.build.frontends.numba_like.notation import Notation
from aotcuda.build.frontends.numba_like.passing import Passing, Word
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.build.frontends.numba_like.passing import Layout


class _Memrefs(Passing):
    nests_results = False  # their items are members of the one struct

    def array_words(self, ndim: int) -> list[Word]:
        return [
            Word("data", "allocated", ""),
            Word("data", "data", ""),
            Word("zero", "offset"),
            *(Word(f"shape{axis}", f"shape{axis}") for axis in range(ndim)),
            *(Word(f"step{axis}", f"step{axis}") for axis in range(ndim)),
        ]

    def place_complex(self, layout: Layout, size: int) -> int:
        return layout.place(2 * size, size)

    def c_complex(self, name: str, ty: Any) -> list[tuple[str, str]]:
        return [(self.notation.c_scalar(ty), name)]


notation = Notation(types, sigutils, numpy_support)
passing = _Memrefs(notation)


def check(names: Iterable[str], args: Iterable[Any]) -> None:
    """Refuse arguments that the compiler takes and reads wrongly.

    Raises:
        CompileError: One of them is such.
    """
    for name, ty in zip(names, args, strict=True):
        members = list(ty) if isinstance(ty, types.BaseTuple) else []
        check([f"{name}[{index}]" for index in range(len(members))], members)
        if isinstance(ty, types.Array) and isinstance(ty.dtype, types.Record) and ty.layout != "C":
            message = (
                f"argument {name!r} is of type {notation.spell(ty)}; numba-cuda-mlir reads arrays of records as if "
                "they were contiguous, so write [::1]"
            )
            raise CompileError(message)
