"""Where PyTorch's tensors keep what a launch reads of them.

DLPack's exchange in C tells it, at 45 ns a tensor, and more where the processor has its code not at hand. It does
not tell that a tensor was negated or conjugated lazily, so that it shows other numbers than its memory holds. All of
this is in a tensor's own memory, at the same places in every tensor for the life of a process, and tensors can be made
that differ in it. So the places can be found, not guessed: they are where all of some tensors, lazy ones among them,
have what they tell. Where anything is otherwise than here, of one tensor or of all, the exchange is asked.
"""

from __future__ import annotations

import ctypes  # which PyTorch has imported
import struct
import sys

from aotcuda.runtime.arguments import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MOST = 256
"""Bytes of a tensor in C++ in which the word of its dispatch keys is looked for; the search ends where it is found."""

_STORAGE = 96
"""Bytes of a storage in C++ in which is looked for what is read of it."""

_CODES = {"i": 0, "u": 1, "f": 2, "bfloat16": 4, "c": 5, "b": 6}
"""DLPack's, by what a type string has behind its byte order."""
MOST_DTYPES = 64
DIMENSIONS = 5
"""So many sizes lie in a tensor itself, for which one with as many is asked."""

_asked: list[bool] = []


def tell(module: Any, tensor: Any) -> bool:
    """Tell the extension the places, as far as they can be found; asked once, of a tensor on a GPU.

    Another one is an argument that a launch is about to refuse: what is found with it would be said of tensors like it.

    Returns:
        Whether it was asked by now.
    """
    if not _asked and _is_on_gpu(tensor):
        _asked.append(True)
        bits = find_bits()
        if bits is not None:
            module.set_torch_bits(*bits)
            places = find(bits, tensor)
            if places is not None:
                module.set_torch_layout(*places)
    return bool(_asked)


def _is_on_gpu(tensor: Any) -> bool:
    try:
        return tensor.is_cuda is True
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (a tensor that has changed since it was accepted)
        return False


def find_bits() -> tuple[type, int, int, int] | None:
    """The type whose objects have a pointer to a word, the places of both in bytes, and the bits in it of lazy views.

    The word is a tensor's dispatch keys, whose value PyTorch tells as a number. None where the places cannot be found.
    """
    try:
        torch: Any = sys.modules["torch"]
        base: type = torch._C.TensorBase  # noqa: SLF001 (PyTorch has no public names for any of this)
        number = torch.empty(1, device="cpu")
        conjugate = torch.empty(1, dtype=torch.complex64, device="cpu").conj()
        tensors = [number, torch._neg_view(number), conjugate, conjugate.imag]  # noqa: SLF001
        keys = [_keys(torch, tensor) for tensor in tensors]
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
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (another PyTorch: all of this is its own affair)
        return None
    if not same or len(set(told)) < 3 or pointer is None or word is None:
        return None
    return base, pointer, word, negative | conjugated


def find(bits: tuple[type, int, int, int], tensor: Any) -> tuple[Any, ...] | None:
    """What `set_torch_layout` takes; None where it cannot be found.

    It holds for tensors of the class in C++ that a plain one on the same device is of, with its dispatch keys: whatever
    decides by other rules what it tells has other keys. In inference mode some are missing.

    Args:
        bits: What `find_bits` has found.
        tensor: A tensor on a GPU.
    """
    try:
        torch: Any = sys.modules["torch"]
        with torch.inference_mode(mode=False):  # whatever the launch is in
            plain = torch.empty(0, device=tensor.device)
        with torch.inference_mode():
            fewer = _keys(torch, torch.empty(0, device=tensor.device))
        buffer = torch.frombuffer(bytearray(2048), dtype=torch.uint8)
        flat, other = buffer.view(torch.float32), torch.empty(256, dtype=torch.float32, device="cpu")
        made = [
            flat,
            flat.as_strided((2, 3, 5, 7, 11)[:DIMENSIONS], (6, 5, 4, 3, 2)[:DIMENSIONS], 13),
            other.as_strided((3, 4), (9, 2), 5),
            other.as_strided((6,), (3,), 17),
        ]
        size = bits[2] + 8  # nothing lies behind the dispatch keys
        words = [_words(item._cdata, size) for item in made]  # noqa: SLF001
        storages = [item.untyped_storage() for item in made]
        kept = [_words(storage._cdata, _STORAGE) for storage in storages]  # noqa: SLF001
        places = (
            _only(words, [(storage._cdata,) for storage in storages]),  # noqa: SLF001
            _only(kept, [(storage.data_ptr(),) for storage in storages]),
            _flag(torch, storages),
            _only(words, [(item.storage_offset(),) for item in made]),
            _only(words, [(item.dim(), *item.shape) for item in made]),
            _only(words, [item.stride() for item in made]),
        )
        dtypes = _dtypes(torch, buffer, size)
        classes = {word[0] for word in (*words, _words(plain._cdata, 8))}  # noqa: SLF001
        keys = _keys(torch, plain)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (as there)
        return None
    if None in places or dtypes is None or len(classes) > 1:
        return None
    return *places, *dtypes, *classes, keys, keys ^ fewer


def _keys(torch: Any, tensor: Any) -> int:
    """A tensor's dispatch keys as a number."""
    return torch._C._dispatch_keys(tensor).raw_repr()  # type: ignore[no-any-return]  # noqa: SLF001


def _place(addresses: Sequence[int], values: Sequence[int], size: int) -> int | None:
    """How far behind all of the addresses the values are, of which there is one for each; None if they are not."""
    for place in range(0, size - 7, 8):
        read = (ctypes.c_uint64.from_address(address + place).value for address in addresses)
        if all(found == value for found, value in zip(read, values, strict=True)):
            return place
    return None


def _words(address: int, size: int) -> tuple[int, ...]:
    return struct.unpack(f"{size // 8}q", ctypes.string_at(address, size // 8 * 8))


def _only(objects: Sequence[tuple[int, ...]], values: Sequence[tuple[int, ...]]) -> int | None:
    """Where all of the objects have their values, each a row of words; None if that is not one place."""
    most = len(objects[0]) - max(map(len, values)) + 1
    first = [words.index(told[0]) if told[0] in words else most for words, told in zip(objects, values, strict=True)]
    found = [
        at
        for at in range(max(first), most)
        if all(words[at : at + len(told)] == told for words, told in zip(objects, values, strict=True))
    ]
    return 8 * found[0] if len(found) == 1 else None


def _flag(torch: Any, plain: Sequence[Any]) -> int | None:
    """Where a storage has the byte that says that its address has to be asked for: it copies itself to be written to.

    It is among other flags, of which a plain storage has one; what is all empty there is a pointer. None if there is
    not one such byte.
    """
    number = torch.empty(256, dtype=torch.uint8, device="cpu")
    clone = torch._lazy_clone(number)  # noqa: SLF001
    lazy = [item.untyped_storage() for item in (number, clone)]
    texts = [ctypes.string_at(item._cdata, _STORAGE) for item in (*plain, *lazy)]  # noqa: SLF001
    says = (0,) * len(plain) + (1,) * len(lazy)
    found = [at for at, read in enumerate(zip(*texts, strict=True)) if read == says]
    found = [at for at in found if any(map(any, (text[at & -8 : (at & -8) + 8] for text in texts[: len(plain)])))]
    return found[0] if len(found) == 1 else None


def _dtypes(torch: Any, buffer: Any, size: int) -> tuple[int, bytes] | None:
    """Where a tensor has the number of its dtype, in two bytes; for each number DLPack's code and bits."""
    tensors = [(text, buffer.view(getattr(torch, name.rpartition(".")[2]))) for name, text in arrays.TORCH.items()]
    read = [struct.unpack(f"{size // 2}H", ctypes.string_at(tensor._cdata, size)) for _, tensor in tensors]  # noqa: SLF001
    numbers = [*zip(*read, strict=True)]
    found = [at for at, each in enumerate(numbers) if max(each) < MOST_DTYPES and len({*each}) == len(each)]
    if len(found) != 1:
        return None
    codes = bytearray(2 * MOST_DTYPES)
    for number, (text, tensor) in zip(numbers[found[0]], tensors, strict=True):
        code, bits = _CODES[text if text in _CODES else text[1]], 8 * tensor.element_size()
        if arrays.element((code, bits)) != arrays.element(text):
            return None
        codes[2 * number : 2 * number + 2] = code, bits
    return 2 * found[0], bytes(codes)
