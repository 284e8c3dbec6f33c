"""The overloads of a kernel: which of them a launch's arguments select, and how these lie in its parameter block."""

# 1. The number of arguments must be the overload's. Each argument is read once, and what was read is held against the
#    overloads (see `aotcuda.runtime.arguments.parameters`).
# 2. An array must have the parameter's dtype and number of dimensions, and a layout that it accepts: a C or F parameter
#    takes an array that is contiguous in that order, any other takes any strides. A read-only array fits only a
#    parameter that was compiled as read-only.
# 3. Scalars adopt the parameter's type, within its range (see `aotcuda.runtime.arguments.scalars`). Tuples are taken
#    apart.
# 4. Of several overloads that fit, the nearest in its scalars is taken; of equals, the first in the configuration.
# 5. What the JIT fallback has compiled is taken for arguments of the types that it was compiled for, and only where
#    nothing that is packaged fits.
#
# The order of the candidates depends on nothing but the arguments' Python types, so it is kept for each tuple of types.
# Where candidates differ in an array's dtype or number of dimensions, they are kept in groups by these, found by one
# look-up: a kernel of many overloads takes no longer than a kernel of two.
#
# A `PackedOverload` is made once, from the manifest: one `struct` for the whole block, and for each parameter a
# function that appends an argument's numbers in the struct's order, or says that it does not take them
# (`aotcuda.runtime.arguments.parameters`). Blocks are packed into slots, which a launch borrows and gives back; the
# driver copies the block while the launch call runs.
#
# An argument that cannot be read, or that raises when it is, is an ArgumentError that names it. What an object raises
# that does not concern the launch (KeyboardInterrupt, SystemExit, MemoryError) passes.

from __future__ import annotations

import ctypes
import struct
from weakref import ref

import aotcuda
from aotcuda.runtime import arguments
from aotcuda.runtime.arguments import arrays, parameters, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from aotcuda.errors import ArgumentError
    from aotcuda.manifest import Kernel, Overload, Parameter
    from aotcuda.runtime.arguments.scalars import Read
    from aotcuda.runtime.driver import Mark

    Slot = tuple[ctypes.Array[ctypes.c_char], object, ctypes.c_size_t, ctypes.c_uint64, object, object]
    Selection = tuple["PackedOverload", Slot, list[object], list[object], int]

if not TYPE_CHECKING:
    from collections import deque

_MOST_KEPT = 1024
_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*


class PackedOverload:
    """One overload of a kernel, ready to pack arguments.

    Attributes:
        record: Its entry in the manifest.
        parameters: Its parameters, likewise.
        size: Bytes of the block.
        fits: For each parameter, what appends the numbers of an argument that was read, or answers False.
        forms: What `parameters.form` says of each parameter.
        pack_into: Writes a block's numbers, in the order of the parameters, into a buffer.
        addresses: Which of those numbers are the addresses of arrays.
        apart: Pairs of arguments whose arrays must not overlap.
        slots: Free slots; take one with `take`, give it back with `slots.append`.
        made: References to the slots that there are. One whose launch was interrupted before it could give it back
            is gone with that launch, so a slot that is there and is not free is a launch under way.
        starts: Where each parameter begins, if launches hand them over one by one: the driver then copies each to where
            the GPU's code has it. Empty where they are handed the block.
        live: As `OverloadTable.live`, of the table that it belongs to.
    """

    __slots__ = (
        "addresses",
        "apart",
        "fits",
        "forms",
        "live",
        "made",
        "pack_into",
        "parameters",
        "record",
        "size",
        "slots",
        "starts",
    )

    def __init__(self, overload: Overload, where: str, live: Mark) -> None:
        self.record = overload
        self.live = live
        self.parameters = overload["parameters"]
        self.size = overload["parameter_bytes"]
        if not all(map(parameters.is_known, self.parameters)):
            from aotcuda.runtime.arguments.other_parameters import KINDS  # noqa: PLC0415 (most kernels have none)

            parameters.know(KINDS)
        try:
            fields = self._fields(zeros=True)
            block = struct.Struct(_format(fields, self.size))
            order = _order(fields)
            self.fits = tuple([parameters.of(parameter).fit(parameter) for parameter in self.parameters])
            self.apart = [(first, second) for first, second in overload.get("apart", ())]
            for at in [at for pair in self.apart for at in pair]:
                self.parameters[at]["dtype"]  # an array's
        except (LookupError, TypeError, ValueError, struct.error) as error:
            message = f"the manifest describes {overload['symbol']} of {where} wrongly ({error!r}); install it again"
            raise aotcuda.errors.ManifestError(message) from None
        self.forms = [parameters.form(parameter) for parameter in self.parameters]
        self.pack_into = block.pack_into if order is None else _reordered(block, order)
        self.addresses = [index for index, (_, _, is_address) in enumerate(fields) if is_address]
        packed = [each for each in self.parameters if each["kind"] != "constant"]
        offsets = [part["offset"] for each in packed for part in (each, *each.get("sizes", ()))]
        self.starts = sorted(offsets) if overload.get("one_by_one") else []
        self.slots: deque[Slot] = deque()  # a list that becomes empty lets go of its memory
        self.made: set[ref[_There]] = set()

    def take(self) -> Slot:
        """A free slot, or a new one."""
        try:
            return self.slots.pop()
        except IndexError:
            return self.make_slot()

    def handed(self, slot: Slot) -> tuple[Any, Any]:
        """A slot as `Driver.launch` takes it: pointers to the parameters, or the block and its size."""
        return (slot[1], None) if self.starts else (None, slot[1])

    def addresses_of(self, values: list[object]) -> list[int]:
        """The addresses of the arrays among a block's numbers."""
        return [value for index in self.addresses if isinstance(value := values[index], int)]

    def is_idle(self) -> bool:
        """Whether all slots are back: no launch is under way. It stays so once `live` is empty."""
        free = len(self.slots.copy())  # a copy waits for who changes the list; a length does not, without the GIL
        return free >= len(self.made)

    def fast_struct(self) -> tuple[struct.Struct, list[int] | None]:
        """The block without the words that are always zero: `pack_into` fills what a format leaves out with zeros.

        With it the order in which it takes the parameters' numbers, None for their own.
        """
        fields = self._fields(zeros=False)
        return struct.Struct(_format(fields, self.size)), _order(fields)

    def _fields(self, *, zeros: bool) -> list[tuple[int, str, bool]]:
        return [
            field for parameter in self.parameters for field in parameters.of(parameter).fields(parameter, zeros=zeros)
        ]

    def make_slot(self) -> Slot:
        """A slot: the buffer, a pointer to the array that tells `cuLaunchKernelEx` of it, and its size.

        That array is its `extra`, or its `kernelParams` where there are `starts`.

        Then a cell for what the driver answers to questions before a launch, a pointer to it, and what `made` tells by
        that the slot is there.
        """
        buffer = ctypes.create_string_buffer(max(self.size, 1))
        size = ctypes.c_size_t(self.size)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        if self.starts:
            start = ctypes.addressof(buffer)
            extra = (ctypes.c_void_p * len(self.starts))(*[start + offset for offset in self.starts])
        cell = ctypes.c_uint64()
        there = _There()
        self.made.add(ref(there, self.made.discard))
        # The pointers are made here, since ctypes would make them at every call.
        return buffer, ctypes.byref(extra), size, cell, ctypes.byref(cell), there


class _There:
    """Goes with the slot that has it: a tuple cannot be referred to weakly, and what ctypes makes has no hash."""

    __slots__ = ("__weakref__",)


class Group:
    """The overloads that arguments of some types, and arrays of some dtypes and dimensions, may fit; best first.

    Attributes:
        overloads: The overloads.
        live: As `OverloadTable.live`, of the loaded images that the overloads are of.
        fast: The factories of their fast paths in Python, by whether they are for a stream that is given.
        blocks: Of a group of one overload its block sizes of most occupancy, by bytes of dynamic shared memory.
    """

    # What is learnt of a group is kept here, and goes with it: a table drops its groups where programs make classes
    # of arguments as they go.
    __slots__ = ("_launches", "blocks", "fast", "live", "overloads")

    def __init__(self, overloads: list[PackedOverload], live: Mark) -> None:
        self.overloads = overloads
        self.live = live
        self.fast: dict[bool, Any] = {}
        self.blocks: dict[int, int] = {}
        self._launches = 0

    def count(self) -> int:
        """Count one more launch that went the general way; how many there were."""
        self._launches += 1  # of threads that count at once, one may be missed
        return self._launches

    def is_only(self, overload: PackedOverload) -> bool:
        """Whether `overload` is all that is in the group."""
        return len(self.overloads) == 1 and self.overloads[0] is overload

    def is_of(self, overload: PackedOverload) -> bool:
        """Whether `overload` is in the group, and all others in it are for arrays of the same dtypes and dimensions."""
        return overload in self.overloads and all(other.forms == overload.forms for other in self.overloads)


class _Ranked:
    """The overloads that arguments of some types may fit, in groups by what the deciding arrays are."""

    __slots__ = ("_deciding", "_groups", "_live", "_plans", "readers")

    def __init__(self, overloads: list[PackedOverload], readers: list[Read], live: Mark) -> None:
        self._plans = overloads
        self._live = live
        self._groups: dict[object, Group] = {None: Group(overloads, live)}
        # One that takes any dimensions decides too, since fast paths are for arrays of some number of them.
        forms = [{overload.forms[at] for overload in overloads} for at in range(len(readers))]
        self._deciding = [at for at, found in enumerate(forms) if len(found) > 1 or any(map(_takes_any, found))]
        self.readers = readers

    def guess(self, args: tuple[object, ...]) -> Group:
        """The group that arguments seem to belong to, without reading all of them."""
        if not self._deciding:
            return self._groups[None]
        found = [arrays.identity(args[at]) for at in self._deciding]
        group = self._groups.get(tuple(found))
        if group is None:
            group = self._group(tuple(found), [arrays.form(item) for item in found])
        return group

    def group(self, reads: Sequence[Any]) -> Group:
        """The group that arguments belong to of which this was read."""
        if not self._deciding:
            return self._groups[None]
        views = [reads[at] for at in self._deciding]
        forms = [(view[0], len(view[2])) if view is not None else None for view in views]
        return self._groups.get(tuple(forms)) or self._group(tuple(forms), forms)

    def _group(self, key: tuple[object, ...], wanted: list[Any]) -> Group:
        if None in wanted or len(self._groups) >= _MOST_KEPT:
            return self._groups[None]
        pairs = list(zip(self._deciding, wanted, strict=True))
        # A parameter that takes arrays and is none, a record, decides for itself.
        overloads = [
            overload for overload in self._plans if all(_takes(overload.forms[at], form) for at, form in pairs)
        ]
        # Each library has its own names for one dtype; the group is the same.
        group = self._groups.get(tuple(wanted)) or Group(overloads, self._live)
        self._groups[tuple(wanted)] = self._groups[key] = group
        return group


class OverloadTable:
    """The overloads of one kernel.

    Attributes:
        overloads: One for each overload, in the configuration's order.
        live: The validity flag of fast paths: empty once the images are unloaded, or the process forked.
    """

    __slots__ = ("_compiled", "_nested", "_open", "_ranked", "_tells_large", "_where", "live", "overloads")

    def __init__(self, kernel: Kernel, where: str, live: Mark) -> None:
        self._where = where
        self.live = live
        self.overloads = [PackedOverload(overload, where, self.live) for overload in kernel["overloads"]]
        self._nested = any(map(_has_tuple, self.overloads))
        self._tells_large = any(_tells_large(overload.parameters) for overload in self.overloads)
        self._open: frozenset[type] = frozenset()
        self._compiled: dict[object, list[PackedOverload]] = {}
        self._ranked: dict[object, _Ranked] = {}

    def group(self, args: tuple[object, ...]) -> Group | None:
        """The overloads that the arguments seem to fit, None if there are none; `select` takes a closer look.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        ranked = self._find(args)
        return ranked.guess(args) if ranked is not None else None

    def select(self, args: tuple[object, ...], stream: int) -> Selection | None:
        """The overload for these arguments, a slot that holds them packed, their numbers, what is pending, the stream.

        None if no overload takes them. `pending` is described in `aotcuda.runtime.arguments.arrays`. The caller gives
        the slot back.

        Args:
            args: The arguments.
            stream: The launch's stream.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        ranked = self._find(args)
        found = self._fit(ranked, args, stream) if ranked is not None else None
        if found is None and self._tells_large:
            large = scalars.told_apart(args)  # nothing is learnt of these: `group` is never told of them
            ranked = self._find(large) if large is not args else None
            found = self._fit(ranked, large, stream) if ranked is not None else None
        return found

    def refusal(self, args: tuple[object, ...]) -> ArgumentError:
        """The error for arguments that no overload takes."""
        from aotcuda.runtime.arguments.mismatch import refusal  # noqa: PLC0415 (only errors come here)

        return refusal(self._where, self.overloads, args)

    def unreadable(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> ArgumentError:
        """The error for arguments of which one cannot be read, which raised this: the one at `at`, if that is known."""
        from aotcuda.runtime.arguments.mismatch import unreadable  # noqa: PLC0415 (only errors come here)

        return unreadable(self._where, self.overloads, args, at, error)

    def is_idle(self) -> bool:
        """Whether no launch has one of their slots; it stays so once `live` is empty."""
        return all(overload.is_idle() for overload in self.overloads)

    def _find(self, args: tuple[object, ...]) -> _Ranked | None:
        try:
            key = self._key(args)
            found = self._ranked.get(key)
        except (aotcuda.errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:  # a class whose own class says that it has no hash, or raises
            raise self.unreadable(args, error) from error
        return found or self._rank(key, args)

    def _key(self, args: tuple[object, ...]) -> object:
        types = _types(args) if self._nested else tuple(map(type, args))
        if self._open:
            leaves = _leaves(args) if self._nested else args
            if not self._open.isdisjoint(map(type, leaves)):
                try:
                    return (types, *[arrays.family(arg) for arg in leaves])
                except (MemoryError, RecursionError):
                    raise
                except Exception as error:
                    raise self.unreadable(args, error) from error
        return types

    def _fit(self, ranked: _Ranked, args: tuple[object, ...], stream: int) -> Selection | None:
        """The first overload that takes the arguments, and the arguments packed for it."""
        pending: list[object] = []
        reads: list[object] = []
        try:
            for read, arg in zip(ranked.readers, args):  # noqa: B905 (as many; strict costs time)
                reads.append(read(arg, pending, stream))
        except aotcuda.errors.UnreadableError as error:
            raise self.unreadable(args, error, len(reads)) from error.__cause__
        except (aotcuda.errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.unreadable(args, error, len(reads)) from error
        for overload in ranked.group(reads).overloads:
            values: list[object] = []
            for fit, item in zip(overload.fits, reads):  # noqa: B905 (likewise)
                if not fit(item, values):
                    break
            else:
                if overload.apart and _overlap(overload, reads):
                    continue
                slot = overload.take()
                try:
                    overload.pack_into(slot[0], 0, *values)
                except (struct.error, OverflowError):  # a number is out of its parameter's range
                    overload.slots.append(slot)
                    continue
                return overload, slot, values, pending, stream
        return None

    def keep(self, args: tuple[object, ...], overload: PackedOverload) -> None:
        """From now on find an overload that was JIT-compiled for these arguments without asking for it again."""
        pairs = zip(overload.parameters, args, strict=True)
        if not all(parameters.of(parameter).is_exact(parameter, arg) for parameter, arg in pairs):
            return
        if not self._nested and _has_tuple(overload):
            self._nested = True
            self._ranked.clear()
        key = self._key(args)
        if len(self._compiled) >= _MOST_KEPT and key not in self._compiled:
            return
        kept = self._compiled.setdefault(key, [])
        if overload not in kept:
            kept.append(overload)
            self._ranked.pop(key, None)

    def _rank(self, key: object, args: tuple[object, ...]) -> _Ranked | None:
        """The overloads that arguments of these types may fit, best first; None if there are none."""
        overloads = [
            overload
            for overload in (*self.overloads, *self._compiled.get(key, ()))
            if len(overload.parameters) == len(args)
        ]
        if not overloads:
            return None
        readers: list[Read | None] = []
        found = []
        try:
            opened = frozenset([kind for kind in map(type, _leaves(args)) if arrays.is_open(kind)])
            if not opened <= self._open:
                self._open = opened if len(self._open) >= _MOST_KEPT else self._open | opened
                self._ranked.clear()  # of what was ranked by types alone
                return self._find(args)
            for arg in args:
                readers.append(arguments.reader(arg))  # noqa: PERF401 (as in _fit)
            if None in readers:
                return None
            for index, overload in enumerate(overloads):
                pairs = zip(overload.parameters, args, strict=True)
                ranks = [parameters.of(parameter).rank(parameter, arg) for parameter, arg in pairs]
                if None not in ranks:
                    found.append((overload not in self.overloads, sum(part or 0 for part in ranks), index, overload))
        except (aotcuda.errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.unreadable(args, error, len(readers) if len(readers) < len(args) else None) from error
        if not found:
            return None
        found.sort(key=lambda item: item[:3])
        if len(self._ranked) >= _MOST_KEPT:
            self._ranked.clear()
        chosen = [read for read in readers if read is not None]
        ranked = self._ranked[key] = _Ranked([item[3] for item in found], chosen, self.live)
        return ranked


def _takes_any(form: tuple[str, int | None] | None) -> bool:
    """Whether a parameter of this form takes arrays of any number of dimensions."""
    return form is not None and form[1] is None


def _takes(form: tuple[str, int | None] | None, found: tuple[str, int]) -> bool:
    """Whether a parameter of a form may take arrays of such dtype and dimensions."""
    return form is None or form == found or (form[1] is None and form[0] == found[0])


def _overlap(overload: PackedOverload, reads: list[Any]) -> bool:
    """Whether arrays overlap that must not, of arguments of which this was read."""
    from aotcuda.runtime.arguments.overlap import overlap  # noqa: PLC0415 (few kernels ask for it)

    return any(overlap(reads[first], reads[second]) for first, second in overload.apart)


def _has_tuple(overload: PackedOverload) -> bool:
    return any(parameter["kind"] == "tuple" for parameter in overload.parameters)


def _tells_large(found: Iterable[Parameter]) -> bool:
    """Whether a Python int beyond int64 has another parameter among these than a smaller one."""
    return any(
        _tells_large(parameter["members"])
        if parameter["kind"] == "tuple"
        else parameter.get("exact", False) and parameter["format"] == "Q"
        for parameter in found
    )


def _leaves(args: tuple[object, ...]) -> list[object]:
    """The arguments, tuples taken apart."""
    return [leaf for arg in args for leaf in (_leaves(arg) if isinstance(arg, tuple) else (arg,))]


def _types(args: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments' types, tuples taken apart."""
    return tuple([(type(arg), _types(arg)) if isinstance(arg, tuple) else type(arg) for arg in args])


def _order(fields: list[tuple[int, str, bool]]) -> list[int] | None:
    """The order in which fields lie in the block; None if that is their own, as it is without an array's sizes."""
    order = sorted(range(len(fields)), key=lambda at: fields[at][0])
    return None if order == list(range(len(fields))) else order


def _reordered(block: struct.Struct, order: list[int]) -> Callable[..., None]:
    def pack_into(buffer: Any, offset: int, *values: object) -> None:
        block.pack_into(buffer, offset, *[values[at] for at in order])

    return pack_into


def _format(fields: list[tuple[int, str, bool]], size: int) -> str:
    """The whole block as a `struct` format, with the gaps spelled out."""
    parts = ["<"]
    position = 0
    for offset, form, _ in [*sorted(fields, key=lambda field: field[0]), (size, "", False)]:
        if offset < position:
            message = f"a parameter at byte {offset} overlaps the one before it"
            raise ValueError(message)
        if offset > position:
            parts.append(f"{offset - position}x")
        parts.append(form)
        position = offset + (struct.calcsize("<" + form) if form else 0)
    return "".join(parts)
