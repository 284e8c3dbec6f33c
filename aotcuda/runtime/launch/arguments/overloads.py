"""Select the overload of a kernel for the arguments of a launch."""

# 1. The overload must have as many parameters as the launch has arguments. A closure that depends only on an argument's
#    type reads the argument once. The parameters of the overloads then accept or refuse the value that was read (see
#    `arguments.parameter_kinds`).
# 2. An array must have the parameter's dtype and number of dimensions, and a layout that it accepts: a C or F parameter
#    accepts an array that is contiguous in that order, any other accepts any strides. A read-only array fits only a
#    parameter that was compiled as read-only.
# 3. Scalars adopt the parameter's type, within its range (see `arguments.scalars`). The rules apply to
#    the items of tuples, too.
# 4. If several overloads fit, the launch takes the overload whose scalar types are nearest. If several overloads are
#    equally near, it takes the first one in the configuration.
# 5. If no packaged overload fits, the launch takes an overload that the JIT fallback compiled for exactly these types.
#
# The order of the candidates depends on the arguments' Python types alone, so it is cached by them (`ArgumentTypes`).
# If candidates differ in dtypes, dimensions, divisors or constants, one look-up by a key of these finds the few that
# may fit (`Specialization`, `arguments.keys`). A launch of a kernel with many overloads therefore takes
# no longer than a launch of a kernel with two.
#
# An argument that cannot be read causes an ArgumentError that names it. Exceptions that do not concern the launch
# (KeyboardInterrupt, SystemExit, MemoryError, RecursionError) pass.

from __future__ import annotations

import struct

from ....common import scalar_types
from ... import errors
from .. import arguments
from . import arrays, keys, parameter_kinds, scalars
from .argument_layout import BLOCK, PackedOverload, item_at
from .array_view import is_aligned, overlap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ....errors import ArgumentError
    from ....manifest import Kernel, Parameter
    from ...driver import Driver, ValidityFlag
    from .argument_layout import Slot
    from .keys import Coder
    from .packing import Launch
    from .scalars import Read

    Selection = tuple[PackedOverload, Slot, list[object], list[object], int, "Specialization | None"]
    """The overload; the slot with the packed arguments; the packed numbers; the pending streams and capsules (see
    `arguments.arrays`); the launch's stream; the overload's specialization, or None if it must not be
    added to the fast path."""

_MOST_CACHED = 1024
_MOST_SPECIALIZATIONS = 1 << 14
"""The most specializations for arguments of the same types: a kernel may have thousands of variants in use."""


def _decline(*_launch: object) -> None:
    """Decline a launch."""


class Specialization:
    """The overloads that may fit arguments of some types with some key, best first, and the plan of their launches.

    Attributes:
        overloads: The overloads.
        coders: The coders of the key.
        launches: The number of checked launches. There is no lock, so launches of two threads may count as one.
        in_fast_path: The configurations and contexts for which the fast path has this specialization.
        key: The codes of the coders.
        launch: The plan, a function of `packing` that reads, packs and launches in one step. It declines until there is
            one, and the plan never changes.
        served: For an exact kernel: its counters of launches, and the index of the counter for this specialization.
    """

    __slots__ = ("coders", "in_fast_path", "key", "launch", "launches", "overloads", "served")

    def __init__(
        self, overloads: list[PackedOverload], coders: Sequence[Coder] = (), key: tuple[object, ...] = ()
    ) -> None:
        self.overloads = overloads
        self.coders = coders
        self.key = key
        self.launch: Launch = _decline
        self.launches = 0
        self.in_fast_path: set[tuple[object, int]] = set()
        self.served: tuple[Any, int] | None = getattr(overloads, "served", None)

    @property
    def is_planned(self) -> bool:
        """Return True if `launch` may launch."""
        return self.launch is not _decline

    def was_offered(self, which: object) -> bool:
        """Return True if the fast path has got this specialization for a kind of configuration, or cannot have it."""
        return (which, 0) in self.in_fast_path or not self.fits_fast_path(self.overloads[0])

    def fits_fast_path(self, overload: PackedOverload) -> bool:
        """Return True if it has `overload`, and all its overloads have arrays of the same dtypes and dimensions."""
        return overload in self.overloads and all(other.forms == overload.forms for other in self.overloads)


class ArgumentTypes:
    """The overloads that may fit arguments of some Python types, and the readers of these arguments.

    Attributes:
        overloads: The overloads, best first.
        readers: For each argument the closure that reads it; None for a number that needs no reader.
        leader: The library whose current stream a launch uses, `"cupy"` or `"torch"`; None for the default stream. It
            is `"torch"` for tensors that are not on a GPU and for all tensor descriptors, too; `stream` decides then.
        coders: The coders of the arguments that decide which overloads may fit.
        plain: The specialization of all overloads, for launches without coders.
        last: The last specialization in use whose launches take one step; None for none.
    """

    __slots__ = (
        "_find",
        "_key",
        "_specializations",
        "coders",
        "last",
        "leader",
        "overloads",
        "plain",
        "readers",
    )

    def __init__(
        self,
        overloads: list[PackedOverload],
        readers: list[Read],
        args: tuple[object, ...],
        coders: list[Coder] | None = None,
        find: Callable[[tuple[object, ...]], list[PackedOverload]] | None = None,
    ) -> None:
        """Store the overloads and readers for arguments of the types of `args`.

        `find` returns the overloads for a key of `coders`. If both are omitted, they are derived from `overloads`.
        """
        self.overloads = overloads
        self.readers = [None if read is scalars.read_plain else read for read in readers]
        self.plain = Specialization(overloads)
        self._specializations: dict[object, Specialization] = {}
        self.last: Specialization | None = None
        self.coders = keys.coders(overloads, args) if coders is None else coders
        self._key = keys.key_of(self.coders)
        self._find = find or self._filter
        families = [[_leading_family(leaf) for leaf in _leaves((arg,))] for arg in args]
        self.leader = next((found for each in families for found in each if found in ("cupy", "torch")), None)
        at = next((at for at, each in enumerate(families) if "cupy" in each), -1)
        if at >= 0 and arrays.orders_cupy_stream():
            self.readers[at] = arrays.waiting(readers[at], arrays.cupy_stream(), mutual=True)

    def specialization(self, reads: Sequence[Any]) -> Specialization:
        """Return the specialization for the values that were read."""
        key = self._key(reads)
        return self._specializations.get(key) or self._cache(key)

    def _cache(self, key: tuple[object, ...]) -> Specialization:
        """Find the overloads for a key, and cache them."""
        if len(self._specializations) >= _MOST_SPECIALIZATIONS:
            self._specializations.clear()
        return self._specializations.setdefault(key, Specialization(self._find(key), self.coders, key))

    def _filter(self, key: tuple[object, ...]) -> list[PackedOverload]:
        pairs = [*zip(self.coders, key, strict=True)]
        return [
            overload
            for overload in self.overloads
            if all(coder.accepts(overload.parameters[coder.at], code) for coder, code in pairs)
        ]


class OverloadTable:
    """The overloads of one kernel, with its specializations.

    Attributes:
        overloads: The overloads, in the configuration's order.
        live: The validity flag: empty once the images are unloaded, or the process forked.
    """

    __slots__ = (
        "_argument_types",
        "_compiled",
        "_device",
        "_has_tuples",
        "_open_types",
        "_separates_large",
        "_where",
        "live",
        "overloads",
    )

    def __init__(
        self, kernel: Kernel, where: str, live: ValidityFlag, device: Callable[[], int | None] = lambda: None
    ) -> None:
        """Make the table of a kernel.

        Args:
            kernel: The kernel's entry in the manifest.
            where: The kernel's name with its module, for errors.
            live: The validity flag.
            device: Returns the ordinal of the GPU of a launch; None for the GPU of the first array.
        """
        self._where = where
        self._device = device
        self.live = live
        self.overloads = [PackedOverload(overload, where, self.live) for overload in kernel["overloads"]]
        self._has_tuples = any(map(_has_tuple, self.overloads))
        self._separates_large = any(_has_large(overload.parameters) for overload in self.overloads)
        self._open_types: frozenset[type] = frozenset()
        self._compiled: dict[object, list[PackedOverload]] = {}
        self._argument_types: dict[object, ArgumentTypes] = {}

    def find(self, args: tuple[object, ...]) -> Specialization | None:
        """Return the last specialization of arguments of these types, if launches by it take one step; else None."""
        try:
            types = self._argument_types.get((*map(type, args),))  # the key of most arguments
            if types is None and (self._has_tuples or self._open_types):
                types = self._argument_types.get(self._key(args))
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (`argument_types` raises it as an error of the argument)
            return None
        return None if types is None else types.last

    def select(self, args: tuple[object, ...], handle: int | None) -> Selection | None:
        """Select the overload for these arguments and pack them; return None if no overload accepts them.

        The caller gives the slot back.

        Args:
            args: The arguments.
            handle: The handle of the launch's stream; None for the current stream.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        types = self.argument_types(args)
        selection = self._fit(types, args, handle) if types is not None else None
        if selection is None and self._separates_large:
            large = scalars.separate_large(args)
            types = self.argument_types(large) if large is not args else None
            selection = self._fit(types, large, handle) if types is not None else None
            if selection is not None:
                selection = (*selection[:5], None)  # the fast path does not support `Large`
        return selection

    def plan_launch(self, selection: Selection, args: tuple[object, ...], driver: Driver) -> None:
        """Let later launches like a selected one take one step, if `packing` supports the overload."""
        overload, _, _, _, _, specialization = selection
        types = self.argument_types(args)
        if types is None or specialization is None or overload is not specialization.overloads[0] or overload.apart:
            return
        from . import packing  # noqa: PLC0415 (many kernels are launched once)

        pairs = zip(specialization.coders, specialization.key, strict=True)
        codes: dict[int, tuple[Coder, object]] = {coder.at: (coder, code) for coder, code in pairs}
        families = set(map(arrays.family, _leaves(args)))
        find, current = packing.find_streams(types.leader, families)
        steps = packing.steps(overload, args, types.readers, codes, current)
        specialization.launch = packing.make_launch(
            overload, steps, find, self.stream, self._where, specialization.served, driver, driver.launch
        )
        types.last = specialization

    def stream(self, args: tuple[object, ...], handle: int | None) -> int:
        """Return the handle of a launch's stream: `handle`, or that of the arguments' library if `handle` is None.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        if handle is not None:
            return handle
        try:
            return arrays.current_stream(args, self._device())
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.read_error(args, error) from error

    @property
    def is_exact(self) -> bool:
        """Return True if overloads are launched only for the arguments for which Triton would compile them."""
        return False

    def all_overloads(self) -> list[PackedOverload]:
        """Return all overloads; `overloads` of an exact kernel is empty."""
        return self.overloads

    def refusal(self, args: tuple[object, ...]) -> ArgumentError:
        """Return the error for arguments that no overload accepts."""
        from .explain import refusal  # noqa: PLC0415 (only errors come here)

        return refusal(self._where, self.overloads, args)

    def read_error(self, args: tuple[object, ...], error: Exception, at: int | None = None) -> ArgumentError:
        """Return the error for an argument whose reader raised `error`; `at` is its index, or None if it is unknown."""
        from .explain import read_error  # noqa: PLC0415 (only errors come here)

        return read_error(self._where, self.overloads, args, at, error)

    def argument_types(self, args: tuple[object, ...]) -> ArgumentTypes | None:
        """Return the overloads that may fit arguments of these types; None if there are none.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        try:
            key = self._key(args) if self._has_tuples or self._open_types else (*map(type, args),)
            found = self._argument_types.get(key)
        except (errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:  # a class whose metaclass has no hash, or whose hash raises
            raise self.read_error(args, error) from error
        return found or self._rank(key, args)

    def _key(self, args: tuple[object, ...]) -> object:
        types = _types(args) if self._has_tuples else tuple(map(type, args))
        if self._open_types:
            leaves = _leaves(args) if self._has_tuples else args
            if not self._open_types.isdisjoint(map(type, leaves)):
                try:
                    return (types, *[arrays.family(arg) for arg in leaves])
                except (MemoryError, RecursionError):
                    raise
                except Exception as error:
                    raise self.read_error(args, error) from error
        return types

    def _fit(  # noqa: PLR0912 (one more call would take a twentieth of a launch)
        self, types: ArgumentTypes, args: tuple[object, ...], handle: int | None
    ) -> Selection | None:
        """Read the arguments once, and pack them for the first overload that accepts them."""
        pending: list[object] = []
        reads: list[object] = []
        stream = handle or 0 if types.leader is None else self.stream(args, handle)
        try:
            for read, arg in zip(types.readers, args):  # noqa: B905 (equal lengths; strict costs time)
                reads.append(arg if read is None else read(arg, pending, stream))
        except errors.UnreadableError as error:
            raise self.read_error(args, error, len(reads)) from error.__cause__
        except (errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.read_error(args, error, len(reads)) from error
        if self.is_exact:  # an argument that is not aligned for its own type is no miss, for which Triton compiles
            self._check_own_alignments(args, reads)
        specialization = types.specialization(reads) if types.coders else types.plain
        for overload in specialization.overloads:
            values: list[object] = []
            for fit, item in zip(overload.fits, reads):  # noqa: B905 (as above)
                if fit is None:
                    values.append(item)
                elif not fit(item, values):
                    break
            else:
                if overload.apart and _overlap(overload, reads):
                    continue
                if overload.alignments:
                    self._check_alignments(overload, args, reads)
                slot = overload.take()
                try:
                    overload.pack_into(slot.buffer, BLOCK, *values)
                except (struct.error, OverflowError):  # a number is out of its parameter's range
                    overload.slots.append(slot)
                    continue
                types.last = specialization if specialization.is_planned else types.last
                return overload, slot, values, pending, stream, specialization
        return None

    def _check_alignments(self, overload: PackedOverload, args: tuple[object, ...], reads: list[Any]) -> None:
        """Refuse arrays that are not aligned for the overload: neither another overload nor the JIT may launch them.

        Raises:
            AlignmentError: One is not.
        """
        for path, alignment, with_strides in overload.alignments:
            read = item_at(reads, path)
            if not is_aligned(read, alignment, with_strides=with_strides):
                from . import explain  # noqa: PLC0415 (only errors come here)

                raise explain.alignment_error(self._where, overload, args, path, read, alignment)

    def _check_own_alignments(self, args: tuple[object, ...], reads: list[Any]) -> None:
        """Refuse arrays that are not aligned for their own type of elements.

        Raises:
            AlignmentError: One is not.
        """
        for at, (arg, view) in enumerate(zip(args, reads, strict=False)):
            if view is not None and view is not arg and arrays.family(arg) is not None:  # a constexpr is not read
                alignment = scalar_types.alignment(view[0])
                if not is_aligned(view, alignment, with_strides=False):
                    from . import explain  # noqa: PLC0415 (only errors come here)

                    raise explain.alignment_error(self._where, None, args, (at,), view, alignment)

    def add_compiled(self, args: tuple[object, ...], overload: PackedOverload) -> None:
        """Add an overload that was JIT-compiled for these arguments, for later launches."""
        pairs = zip(overload.parameters, args, strict=True)
        if not all(parameter_kinds.kind_of(parameter).is_exact(parameter, arg) for parameter, arg in pairs):
            return
        if not self._has_tuples and _has_tuple(overload):
            self._has_tuples = True
            self._argument_types.clear()
        key = self._key(args)
        if len(self._compiled) >= _MOST_CACHED and key not in self._compiled:
            return
        compiled = self._compiled.setdefault(key, [])
        if overload not in compiled:
            compiled.append(overload)
            self._argument_types.pop(key, None)

    def _add_open_types(self, args: tuple[object, ...]) -> bool:
        """Add the types of arguments whose family the object decides; return True if there were new ones."""
        open_types = frozenset([kind for kind in map(type, _leaves(args)) if arrays.is_open(kind)])
        if open_types <= self._open_types:
            return False
        self._open_types = open_types if len(self._open_types) >= _MOST_CACHED else self._open_types | open_types
        self._argument_types.clear()  # their keys lack the families
        return True

    def _rank(self, key: object, args: tuple[object, ...]) -> ArgumentTypes | None:
        """Find the overloads that may fit arguments of these types, best first; return None if there are none."""
        overloads = [
            overload
            for overload in (*self.overloads, *self._compiled.get(key, ()))
            if len(overload.parameters) == len(args)
        ]
        if not overloads:
            return None
        readers: list[Read | None] = []
        ranked = []
        try:
            if self._add_open_types(args):
                return self.argument_types(args)
            for arg in args:
                readers.append(arguments.reader(arg))  # noqa: PERF401 (as in _fit)
            if None in readers:
                return None
            for index, overload in enumerate(overloads):
                pairs = zip(overload.parameters, args, strict=True)
                ranks = [parameter_kinds.kind_of(parameter).rank(parameter, arg) for parameter, arg in pairs]
                if None not in ranks:
                    rank = sum(part or 0 for part in ranks)
                    ranked.append((overload not in self.overloads, rank, index, overload))
            if not ranked:
                return None
            ranked.sort(key=lambda item: item[:3])
            types = ArgumentTypes([item[3] for item in ranked], [read for read in readers if read is not None], args)
        except (errors.AotcudaError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.read_error(args, error, len(readers) if len(readers) < len(args) else None) from error
        if len(self._argument_types) >= _MOST_CACHED:
            self._argument_types.clear()
        self._argument_types[key] = types
        return types


def _overlap(overload: PackedOverload, reads: list[Any]) -> bool:
    """Return True if two arrays overlap that must not overlap."""
    return any(overlap(reads[first], reads[second]) for first, second in overload.apart)


def _has_tuple(overload: PackedOverload) -> bool:
    return any(parameter["kind"] == "tuple" for parameter in overload.parameters)


def _has_large(parameters: Iterable[Parameter]) -> bool:
    """Return True if one of these parameters accepts only Python ints beyond int64."""
    return any(
        _has_large(parameter["members"])
        if parameter["kind"] == "tuple"
        else parameter.get("exact", False) and parameter["format"] == "Q"
        for parameter in parameters
    )


def _leading_family(arg: object) -> str | None:
    return "torch" if arrays.is_descriptor(type(arg)) else arrays.family(arg)


def _leaves(args: tuple[object, ...]) -> list[object]:
    """Return the arguments, with the items of tuples in place of tuples."""
    return [leaf for arg in args for leaf in (_leaves(arg) if isinstance(arg, tuple) else (arg,))]


def _types(args: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments' types; for a tuple, its type and the types of its items."""
    return tuple([(type(arg), _types(arg)) if isinstance(arg, tuple) else type(arg) for arg in args])
