"""Where Numba's arrays, and the memory that they refer to, keep what a launch reads of them.

They are objects of Python: each attribute is looked for in the class, then in the object, and the address is that of
the third object down. CPython keeps the attributes of an object in a row, at the same places in all objects of a class.
So the places can be found, not guessed: they are where some objects, which are made for it, have what was put into
them. A class has a number that changes with the class and its bases; as long as it is the same, an object has of its
attributes what is in its row. Where anything is otherwise than here, the attributes are asked.

Somebody may ask for an object's dictionary; Numba's own launches do, by a cached property. It gets the row, then, and
shares its keys with those of other objects, until it is given keys that they have no room for.
"""

from __future__ import annotations

import ctypes  # which Numba has imported
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Members = tuple[type, int, int, bytes, int]
    """A class, its number, the bytes of an object before its row, the attributes' places in that, as C's ints, and the
    address of what the dictionaries of its objects have as their keys, as long as those are in a row; 0 for none."""

_ARRAY = ("dtype", "shape", "strides", "gpu_data", "stream")
_OWNER = ("_view",)
_MEMORY = ("device_pointer",)

_POINTED, _TAGGED, _INLINE = 1, 2, 3
_FORMS = {(3, 11): _POINTED, (3, 12): _TAGGED, (3, 13): _INLINE, (3, 14): _INLINE}
"""How an object leads to its row: by a pointer before it, by one that is marked as such, or by lying before it."""

_MOST = 30
"""Attributes that a row has room for."""

_MOST_CLASSES = 16
_asked: list[type] = []


def tell(module: Any, array: Any) -> None:
    """Tell the extension the places, if they can be found; it is looked for once for each class."""
    kind = type(array)
    if kind not in _asked and len(_asked) < _MOST_CLASSES:
        _asked.append(kind)
        found = find(kind)
        if found is not None:
            module.add_numba_layout(*found)


def find(kind: type) -> tuple[Any, ...] | None:
    """What `add_numba_layout` takes, for arrays of this class alone; None where it cannot be found."""
    try:
        form = _FORMS.get(sys.version_info[:2], 0) if sys.implementation.name == "cpython" else 0
        driver = sys.modules[f"{kind.__module__.rpartition('.')[0]}.driver"]
        number = _place_of_number()
        if not form or number is None:
            return None
        keys, row = _places_in_dictionaries(form)
        members = [
            _members(form, number, keys, row, *named)
            for named in (
                (kind, _ARRAY),
                (driver.OwnedPointer, _OWNER),
                (driver.AutoFreePointer, _MEMORY),
                (driver.MemoryPointer, _MEMORY),
            )
        ]
        pointer = driver.binding.CUdeviceptr
        referent, place = _place_of_referent(driver.MemoryPointer), _place_of_address(pointer)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (another Numba, or another Python: all of this is their own affair)
        return None
    if None in members or referent is None or place is None:
        return None
    return form, number, keys, row, *members, weakref.ProxyType, referent, pointer, place


def _members(form: int, number: int, keys: int, row: int, kind: type, names: Sequence[str]) -> Members | None:
    """Where the objects of a class have attributes of these names, which the class itself must not have."""
    version = _number_of(kind, number)
    if not _has_row(form, kind) or any(
        name in base.__dict__ for base in kind.__mro__[:-1] for name in (*names, "__getattribute__")
    ):
        return None
    probes: list[Any] = [object.__new__(kind) for _ in range(2)]
    kept = [[object() for _ in names] for _ in probes]
    for probe, values in zip(probes, kept, strict=True):
        for name, value in zip(names, values, strict=True):
            object.__setattr__(probe, name, value)
    first, second = (_row(form, probe) for probe in probes)
    if not first or not second:
        return None  # its objects have too many attributes, or they are kept otherwise
    places = [_place(first, value) for value in kept[0]]
    found = [at for at in places if at is not None]
    if len(found) < len(names) or [_word(second + at) for at in found] != [*map(_address, kept[1])]:
        return None
    object.__delattr__(probes[0], names[0])  # what is not there is empty
    object.__setattr__(probes[1], "__dict__", {})  # and a dictionary of the user's own is not in the row
    if _row(form, probes[0]) != first or _word(first + found[0]) or _row(form, probes[1]):
        return None
    shared = _shared_keys(form, keys, row, kind, names) if keys else 0
    if not version or _number_of(kind, number) != version:
        return None
    return kind, version, kind.__basicsize__, b"".join(at.to_bytes(4, "little") for at in found), shared


def _shared_keys(form: int, keys: int, row: int, kind: type, names: Sequence[str]) -> int:
    """The address of the keys that the dictionaries of a class' objects share; 0 if they do not."""
    found = set()
    for _ in range(2):
        probe: Any = object.__new__(kind)
        for name in names:
            object.__setattr__(probe, name, None)
        before, dictionary = _row(form, probe), object.__getattribute__(probe, "__dict__")
        found.add(_word(_address(dictionary) + keys) if before and _word(_address(dictionary) + row) == before else 0)
    return found.pop() if len(found) == 1 else 0


def _places_in_dictionaries(form: int) -> tuple[int, int]:
    """Where an object's dictionary has its keys, and its row, in bytes; zeros where its object keeps the row."""

    class Probe:
        pass

    class Other:
        pass

    things: list[Any] = [Probe(), Probe(), Other()]
    for thing in things:
        thing.attribute = None
    rows = [_row(form, thing) for thing in things]
    dictionaries = [_address(thing.__dict__) for thing in things]
    if form == _INLINE or [_word(_address(thing) - 24) for thing in things] != dictionaries:
        return 0, 0
    places = range(16, dict.__basicsize__, 8)
    words = {at: [_word(dictionary + at) for dictionary in dictionaries] for at in places}
    keys = [at for at, (first, second, other) in words.items() if first == second != other]
    found = [at for at, each in words.items() if each == rows]
    return (keys[0], found[0]) if len(keys) == len(found) == 1 and all(rows) else (0, 0)


def _has_row(form: int, kind: type) -> bool:
    """Whether a class' objects have the words that lead to a row; without them, these would be another object's."""
    flags = kind.__flags__
    return bool(flags & 1 << 4 and flags & 1 << 14 and (form != _INLINE or flags & 1 << 2))


def _row(form: int, thing: object) -> int:
    """The address of an object's row; 0 if its attributes are kept in a dictionary."""
    address = _address(thing)
    if form == _POINTED:
        return _word(address - 32)
    if form == _TAGGED:
        word = _word(address - 24)
        return word + 1 if word & 1 else 0
    row = address + type(thing).__basicsize__
    return row if ctypes.c_uint8.from_address(row + 3).value else 0


def _place(row: int, value: object) -> int | None:
    """Where a row has an object, in bytes; it is read no further than that."""
    return next((at for at in range(0, 8 * _MOST + 8, 8) if _word(row + at) == _address(value)), None)


def _address(thing: object) -> int:
    return ctypes.c_void_p.from_buffer(ctypes.py_object(thing)).value or 0


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _number_of(kind: type, place: int) -> int:
    getattr(kind, "any", None)  # it gets its number when it is looked into
    return ctypes.c_uint32.from_address(_address(kind) + place).value


def _place_of_number() -> int | None:
    """Where a class has the number that changes with it and with its bases, in bytes; None if that is not one place."""

    class Base:
        pass

    class Probe(Base):
        pass

    classes: Any = type

    def read() -> tuple[int, ...]:
        text = ctypes.string_at(_address(Probe), classes.__basicsize__ // 4 * 4)
        return (*memoryview(text).cast("I"),)

    def looked_into() -> tuple[int, ...]:
        getattr(Probe, "any", None)
        return read()

    before = looked_into()
    places = set(range(len(before)))
    for turn in range(6):
        changes: Any = (Probe, Base)[turn % 2]
        changes.changed = turn
        changed, after, again = read(), looked_into(), looked_into()
        places = {at for at in places if changed[at] != before[at] < after[at] == again[at] < 1 << 31}
        before = after
    return 4 * places.pop() if len(places) == 1 else None


def _place_of_referent(kind: type) -> int | None:
    """Where a proxy has the address of its object, in bytes: that of None if there is none any more."""
    things: list[Any] = [object.__new__(kind) for _ in range(2)]
    proxies = [*map(weakref.proxy, things)]
    places = range(16, weakref.ProxyType.__basicsize__, 8)
    found = [at for at in places if [_word(_address(proxy) + at) for proxy in proxies] == [*map(_address, things)]]
    things.clear()
    left = [at for at in found if all(_word(_address(proxy) + at) == _address(None) for proxy in proxies)]
    return left[0] if len(left) == 1 else None


def _place_of_address(pointer: Any) -> int | None:
    """Where an object that holds an address has the address of that, in bytes."""
    probes = [pointer(1 << 40), pointer()]
    ctypes.memmove(probes[1].getPtr(), (3 << 40).to_bytes(8, "little"), 8)  # as Numba makes one
    if [*map(int, probes)] != [1 << 40, 3 << 40] or any(_word(probe.getPtr()) != int(probe) for probe in probes):
        return None
    places = range(0, pointer.__basicsize__, 8)
    found = [at for at in places if all(_word(_address(probe) + at) == probe.getPtr() for probe in probes)]
    return found[0] if len(found) == 1 else None
