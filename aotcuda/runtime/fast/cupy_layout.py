"""Where CuPy's arrays keep what a launch reads of them.

Each attribute of an array costs a Python object, and a launch reads five of each array. They are members of one
structure in C, at the same places in every array for the life of a process, and arrays can be made over memory that is
there already. So the places can be found, not guessed: they are where all of some arrays, which differ in all of it,
have what their attributes tell. Where anything is otherwise than here, the attributes are asked.
"""

from __future__ import annotations

import ctypes  # which CuPy has imported
import struct

from aotcuda.runtime import module_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

READ = ("_c_contiguous", "data", "dtype", "ndim", "shape", "strides")
"""What stands for the members; a class that has made others of these is not read by them."""

_LEAST_ADDRESS = 1 << 16
"""Nothing lies below: what is less is a number."""

_PROBES = (("float32", (5,), "C"), ("int64", (5, 7), "F"), ("uint8", (2, 3, 4), "F"), ("float64", (11, 1, 3, 2), "C"))

_asked: list[bool] = []


def tell(module: Any, array: Any) -> bool:
    """Tell the extension the places, if they can be found; asked once, of an array that has memory.

    Returns:
        Whether it was asked by now.
    """
    if not _asked and _has_memory(array):  # over that of an empty array none can be made
        _asked.append(True)
        found = find(array)
        if found is not None:
            module.set_cupy_layout(*found)
    return bool(_asked)


def _has_memory(array: Any) -> bool:
    try:
        return bool(array.data.ptr)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (an array that has changed since it was accepted)
        return False


def find(array: Any) -> tuple[type, type, int, int, int, int, int] | None:
    """The type that has the members, the type of `data`, and places in bytes; None where they cannot be found.

    The places are those of `data.ptr`, `data` and `dtype`, then of shape and strides, which are vectors: the address of
    the first number, and behind it the one where the last ends.
    """
    try:
        kind = next(base for base in type(array).__mro__ if base.__name__ == "ndarray" and module_of(base) == "cupy")
        base = next(base for base in kind.__mro__ if all(name in base.__dict__ for name in READ))
        made = [  # each over memory of its own, by its address, and none of it is touched
            kind(shape, dtype, array.data + 256 * (at + 1), order=order)
            for at, (dtype, shape, order) in enumerate(_PROBES)
        ]
        data = [probe.data for probe in made]
        words = [_words(probe) for probe in made]
        pointer = _place([_words(item) for item in data], [item.ptr for item in data])
        places = (
            pointer,
            _place(words, [_address(item) for item in data]),
            _place(words, [_address(probe.dtype) for probe in made]),
            _vector(words, [probe.shape for probe in made]),
            _vector(words, [probe.strides for probe in made]),
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (another CuPy: all of this is its own affair)
        return None
    if None in places or len({type(item) for item in data}) > 1:
        return None
    return base, type(data[0]), *places  # type: ignore[return-value]  # None is in none of them


def _words(thing: object) -> tuple[int, ...]:
    """What an object's own memory holds."""
    return _numbers("Q", _address(thing), object.__sizeof__(thing) // 8)


def _address(thing: object) -> int:
    return ctypes.c_void_p.from_buffer(ctypes.py_object(thing)).value or 0


def _numbers(code: str, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"{count}{code}", ctypes.string_at(address, 8 * count))


def _place(objects: Sequence[Sequence[int]], values: Sequence[int]) -> int | None:
    """Where all of the objects have their values, of which there is one for each; None if that is not one place."""
    first, value = objects[0], values[0]
    found = [at for at in range(min(map(len, objects))) if first[at] == value]  # nearly all are out by this
    return _only(at for at in found if all(words[at] == each for words, each in zip(objects, values, strict=True)))


def _vector(objects: Sequence[Sequence[int]], values: Sequence[tuple[int, ...]]) -> int | None:
    """The same for numbers that a vector holds, by where they begin and end."""

    def holds(at: int) -> bool:
        ends = [(words[at], words[at + 1]) for words in objects]
        sizes = [end - begin for begin, end in ends]
        if min(ends)[0] < _LEAST_ADDRESS or sizes != [8 * len(numbers) for numbers in values]:
            return False  # before anything is read there: four differences of chance are no vectors
        return all(_numbers("q", begin, len(told)) == told for (begin, _), told in zip(ends, values, strict=True))

    first, size = objects[0], 8 * len(values[0])
    found = [at for at in range(min(map(len, objects)) - 1) if first[at + 1] - first[at] == size]  # likewise
    return _only(at for at in found if holds(at))


def _only(places: Iterable[int]) -> int | None:
    found = [*places]
    return 8 * found[0] if len(found) == 1 else None
