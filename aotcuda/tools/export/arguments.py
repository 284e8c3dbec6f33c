"""Make arguments of recorded types, for which Triton's JIT compiles a variant without a GPU."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.builder.frontends.triton.type_notation import Type, Value

_ALIGNED, _UNALIGNED = 256, 264
"""Addresses that are divisible by 16, and that are not."""

_LEAST = {"i64": 1 << 31, "u64": 1 << 63}
"""The least multiple of 16 that Triton gives a type, for types other than i32."""

_MOST_ONES = 3
"""The most annotated integers of a kernel for which variants with 1 are made, since there are `2**n` combinations."""


class _Dtype(str):
    """The name of a dtype, with the bytes of an element, as tensor descriptors need them."""

    __slots__ = ("itemsize",)

    itemsize: int


class _Tensor:
    """An array of a dtype at an address."""

    def __init__(self, scalar: str, address: int, shape: Sequence[int] = (1,)) -> None:
        self.dtype = _Dtype(scalar)
        digits = "".join(itertools.takewhile(str.isdigit, scalar.removeprefix("bf").lstrip("fpiu")))
        self.dtype.itemsize = max(int(digits or 8) // 8, 1)
        self.shape = list(shape)
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def combinations(types: Sequence[Type], parameters: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield arguments of types for the parameters that are not constexprs; usually there is one combination.

    Triton's key distinguishes 1 from other integers also for a parameter with an annotation, although the code is the
    same, and records do not. So each annotated integer is made as 1, too.
    """
    choices: list[list[Any]] = []
    ones = 0
    for kind, parameter in zip(types, parameters, strict=True):
        values = [_argument(kind)]
        is_integer = kind.scalar[0] in "iu" and kind.scalar not in ("i1", "u1") and not kind.pointer and not kind.block
        may_be_one = is_integer and kind.hint == 0 and parameter.annotation_type and not parameter.do_not_specialize
        if may_be_one and ones < _MOST_ONES:
            values.append(1)
            ones += 1
        choices.append(values)
    for each in itertools.product(*choices):
        yield [*each]


def _argument(kind: Type) -> Any:
    if kind.scalar == "none":
        return None
    if kind.block:
        return _descriptor(kind)
    if kind.pointer:
        return _Tensor(kind.scalar, _ALIGNED if kind.hint else _UNALIGNED)
    if kind.scalar in ("i1", "u1"):
        return True
    if kind.scalar.startswith("fp"):
        return 1.5
    if kind.hint == 1:
        return 1
    return _LEAST.get(kind.scalar, 16) + (kind.hint == 0)


def _descriptor(kind: Type) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 (only workers have Triton)

    shape = [16 * extent for extent in kind.block]
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return TensorDescriptor(_Tensor(kind.scalar, _ALIGNED, shape), shape, strides, [*kind.block])


def constant(value: Value) -> Any:
    """Return a constexpr's value as an object of Triton: `tl.float32` becomes the type."""
    from aotcuda.builder.frontends.triton.compilation import triton_constant  # noqa: PLC0415 (only workers have Triton)

    return triton_constant(value)
