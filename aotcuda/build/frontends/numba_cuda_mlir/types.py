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

if TYPE_CHECKING:
    from aotcuda.build.frontends.numba_like.passing import Layout


class _Memrefs(Passing):
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
