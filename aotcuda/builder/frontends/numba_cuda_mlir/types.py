"""Describe the types and the calling convention of Numba-CUDA-MLIR.

An array is a memref descriptor: allocated and aligned pointer, offset, sizes, strides in elements (MLIR, "Target LLVM
IR", ranked memref types). A complex number is one parameter of two floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import sigutils
from numba_cuda_mlir.numba_cuda.np import numpy_support

from aotcuda.builder.frontends.numba.calling_convention import CallingConvention, Word
from aotcuda.builder.frontends.numba.type_notation import SIZES, Notation
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.builder.frontends.numba.calling_convention import Layout


class _Memrefs(CallingConvention):
    reads_unaligned = False
    nests_results = False  # the items of nested tuples are members of the outer struct

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

    def place_type(self, layout: Layout, ty: Any) -> dict[str, object]:
        # The parameter is a number of the type, which the kernel does not read.
        if self.notation.is_complex(ty.dtype):
            return {"offset": self.place_complex(layout, 4 if ty.dtype == types.complex64 else 8)}
        code = self.notation.formats.get(ty.dtype, "q")  # `check` refuses types that are not numbers
        return {"offset": layout.place(SIZES[code])}

    def c_complex(self, name: str, ty: Any) -> list[tuple[str, str]]:
        return [(self.notation.c_scalar(ty), name)]


# The dtype of the random number generators that `create_xoroshiro128p_states` returns.
_LIBRARY_RECORDS = {"xoroshiro128p_type": ("numba_cuda_mlir.numba_cuda.random", "xoroshiro128p_type")}

notation = Notation(types, sigutils, numpy_support, _LIBRARY_RECORDS)
convention = _Memrefs(notation)


def constants(layout: Layout) -> dict[int, int]:
    """Return the values of machine-level parameters that are constant for contiguous arrays, by parameter number.

    The compiler reads offsets and steps at run time, and multiplies each index by a step. Launches of kernels for
    contiguous arrays always pass the offset 0 and the step 1.
    """
    numbers = {offset: number for number, (offset, _) in enumerate(layout.fields)}
    values: dict[int, int] = {}
    waiting = list(layout.parameters)
    while waiting:
        parameter = waiting.pop()
        waiting += parameter.get("members", [])
        if parameter["kind"] == "array" and parameter["layout"] in "CF" and parameter["ndim"]:
            words, first = parameter["words"], numbers[parameter["offset"]]
            fastest = parameter["ndim"] - 1 if parameter["layout"] == "C" else 0
            values[first + words.index("zero")] = 0
            values[first + words.index(f"step{fastest}")] = 1
    return values


def _is_number(ty: Any) -> bool:
    return ty in notation.formats or notation.is_complex(ty)


def check(names: Iterable[str], args: Iterable[Any]) -> None:
    """Check that no argument has a type that the compiler accepts and reads wrongly.

    Raises:
        CompileError: An argument has a type that the compiler reads wrongly.
    """
    for name, ty in zip(names, args, strict=True):
        members = list(ty) if isinstance(ty, types.BaseTuple) else []
        check([f"{name}[{index}]" for index in range(len(members))], members)
        element = ty.dtype if isinstance(ty, types.Array) else None
        if isinstance(element, types.UnicodeCharSeq | types.CharSeq):
            message = (
                f"argument {name!r} is of type {notation.spell(ty)}; numba-cuda-mlir can neither read nor write the "
                "strings in it, so pass them as numbers (an array of uint8 or uint32), or compile it by numba-cuda"
            )
            raise CompileError(message)
        if isinstance(ty, types.DType) or (isinstance(ty, types.NumberClass) and not _is_number(ty.dtype)):
            message = (
                f"argument {name!r} is of type {notation.spell(ty)}, which numba-cuda-mlir cannot pass; write "
                "NumberClass(...) of a number's type, to which dtypes can be passed too"
            )
            raise CompileError(message)
