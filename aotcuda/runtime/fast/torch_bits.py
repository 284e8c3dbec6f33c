"""Where PyTorch's tensors keep the bits that say that one shows other numbers than its memory holds.

A tensor that was negated or conjugated lazily must not be launched with, and DLPack's exchange in C does not tell.
`is_neg()` does, at 80 ns a tensor, most of it for letting go of the GIL to read one bit of a word: the tensor's set of
dispatch keys, whose value PyTorch tells as a number (`_dispatch_keys`). So the word can be found, not guessed: it is
where all of some tensors, lazy ones among them, have that number. The layout of an object of C++ is one for the life of
a process. Where anything is otherwise than here, the methods are asked.
"""

from __future__ import annotations

import ctypes  # which PyTorch has imported
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MOST = 256
"""Bytes of a tensor in C++ in which the word is looked for; the search ends where it is found."""

_asked: list[bool] = []


def tell(module: Any) -> None:
    """Tell the extension where the bits are, if that can be found; asked once."""
    if not _asked:
        _asked.append(True)
        found = find()
        if found is not None:
            module.set_torch_bits(*found)


def find() -> tuple[type, int, int, int] | None:
    """The type whose objects have a pointer to the word, the places of pointer and word in bytes, and the bits in it.

    None where they cannot be found.
    """
    try:
        torch: Any = sys.modules["torch"]
        base: type = torch._C.TensorBase  # noqa: SLF001 (PyTorch has no public names for any of this)
        number = torch.empty(1, device="cpu")
        conjugate = torch.empty(1, dtype=torch.complex64, device="cpu").conj()
        tensors = [number, torch._neg_view(number), conjugate, conjugate.imag]  # noqa: SLF001
        keys = [torch._C._dispatch_keys(tensor).raw_repr() for tensor in tensors]  # noqa: SLF001
        negative, conjugated = (
            torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()  # noqa: SLF001
            for name in ("Negative", "Conjugate")
        )
        told = [(tensor.is_neg(), tensor.is_conj()) for tensor in tensors]
        implementations = [tensor._cdata for tensor in tensors]  # noqa: SLF001
        objects = [ctypes.c_void_p.from_buffer(ctypes.py_object(tensor)).value or 0 for tensor in tensors]
        pointer = _place(objects, implementations, base.__basicsize__)
        word = _place(implementations, keys, _MOST)
        same = [(bool(key & negative), bool(key & conjugated)) for key in keys] == told
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (another PyTorch: all of this is its own affair)
        return None
    if not same or len(set(told)) < 3 or pointer is None or word is None:
        return None
    return base, pointer, word, negative | conjugated


def _place(addresses: Sequence[int], values: Sequence[int], size: int) -> int | None:
    """How far behind all of the addresses the values are, of which there is one for each; None if they are not."""
    for place in range(0, size - 7, 8):
        read = (ctypes.c_uint64.from_address(address + place).value for address in addresses)
        if all(found == value for found, value in zip(read, values, strict=True)):
            return place
    return None
