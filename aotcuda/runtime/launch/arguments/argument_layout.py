"""The argument layout of one overload: the places of the numbers of its arguments in the parameter block."""

# A `PackedOverload` is made once, from the manifest. It has one `struct` for the whole block, and for each parameter a
# closure that appends an argument's numbers in the order of the struct, or returns False for an argument that the
# parameter does not accept (`arguments.parameter_kinds`). A launch borrows a slot, packs the block into
# it and returns it. The driver copies the block during the launch call.

from __future__ import annotations

import ctypes
import struct
from collections import deque

from ... import errors
from . import parameter_kinds, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ....manifest import Overload, Parameter
    from ...driver import ValidityFlag

    Alignment = tuple[tuple[int, ...], int, bool]
    Attributes = ctypes.Array[ctypes.c_char]

BLOCK = 64
"""The offset of the parameter block in a slot; a `CUlaunchConfig` is before it."""

_CONFIG = "8IQQI12x"
"""A `CUlaunchConfig`: grid, block and shared memory of a launch, its threads in the padding, the handle of its stream,
the address of its attributes, and their number."""

_pack_config = struct.Struct("<" + _CONFIG).pack_into
_ATTRIBUTE_BYTES = 72  # sizeof(CUlaunchAttribute)

_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*


def encode_config(buffer: Any, numbers: tuple[int, ...], stream: int, attributes: Attributes | None) -> None:
    """Write a `CUlaunchConfig` into a buffer; the caller keeps the attributes alive.

    Args:
        buffer: At least `BLOCK` bytes.
        numbers: As `Configuration.numbers`.
        stream: The handle of the stream.
        attributes: The result of `LaunchAttributes.encoded`; None for none.
    """
    _pack_config(buffer, 0, *numbers, stream, *address_of_attributes(attributes))


def address_of_attributes(attributes: Attributes | None) -> tuple[int, int]:
    """Return the address and the number of encoded attributes; None has none."""
    return (0, 0) if attributes is None else (ctypes.addressof(attributes), len(attributes) // _ATTRIBUTE_BYTES)


class Slot:
    """A `CUlaunchConfig` and a parameter block that one launch borrows.

    Attributes:
        buffer: Both; the block begins at `BLOCK`.
        pointers: Both as `Driver.launch` takes them: the configuration, then `kernelParams` and `extra`.
    """

    __slots__ = ("__weakref__", "_size", "buffer", "pointers")

    def __init__(self, size: int, starts: list[int]) -> None:
        """Make a block of `size` bytes; `starts` are the offsets of parameters that are passed one by one."""
        self.buffer = ctypes.create_string_buffer(BLOCK + size)
        self._size = ctypes.c_size_t(size)
        config, start = ctypes.byref(self.buffer), ctypes.addressof(self.buffer) + BLOCK
        if starts:
            pointers = (ctypes.c_void_p * len(starts))(*[start + offset for offset in starts])
            self.pointers: tuple[Any, Any, Any] = config, ctypes.byref(pointers), None
        else:
            extra = (_BUFFER_POINTER, start, _BUFFER_SIZE, ctypes.addressof(self._size), _END)
            self.pointers = config, None, ctypes.byref((ctypes.c_void_p * 5)(*extra))


class PackedOverload:
    """One overload of a kernel, ready to pack arguments, with its specializations.

    Attributes:
        record: The overload's entry in the manifest.
        parameters: The entries of its parameters.
        size: Bytes of the block.
        fits: For each parameter the closure that appends the numbers of an argument, or returns False; None for a
            number that is appended unchanged.
        forms: `parameters.form` of each parameter.
        pack_into: Writes a block's numbers, in the order of the parameters, into a buffer.
        addresses: Indices of those numbers that are the addresses of arrays.
        alignments: For each parameter with arrays whose elements have an alignment: the indices that lead to the
            parameter (several within tuples), the alignment in bytes, and True if strides have it, too.
        apart: Pairs of arguments whose arrays must not overlap.
        starts: The offset of each parameter, if launches pass a pointer for each; the driver then copies each parameter
            to its place on the GPU. Empty if launches pass the block.
        live: `OverloadTable.live` of the overload's table.
        slots: The free slots. `take` takes one, and `slots.append` returns it.
        fast_layout: The layout for the fast path in C; None before the first use, False if C does not support it.
        kernels: The overload's `DeviceKernel` by the GPU's ordinal, if launches may use it without further checks.
        ready: The overload's kernel on the only GPU as a `launch_config.Ready`, after a launch; None before, and for
            kernels that need more at each launch.
    """

    __slots__ = (
        "addresses",
        "alignments",
        "apart",
        "fast_layout",
        "fits",
        "forms",
        "kernels",
        "live",
        "pack_into",
        "parameters",
        "ready",
        "record",
        "size",
        "slots",
        "starts",
    )

    def __init__(self, overload: Overload, where: str, live: ValidityFlag, *, is_exact: bool = False) -> None:
        """Prepare a manifest's overload. The key of an exact overload implies that constants fit."""
        self.record = overload
        self.live = live
        self.parameters = overload["parameters"]
        self.size = overload["parameter_bytes"]
        if not all(map(parameter_kinds.is_known, self.parameters)):
            from .other_kinds import KINDS  # noqa: PLC0415 (few kernels have them)

            parameter_kinds.add_kinds(KINDS)
        try:
            fields = self._fields()
            self.pack_into = _packer(fields, self.size)
            fits = [
                _accept if is_exact and each["kind"] == "constant" else parameter_kinds.kind_of(each).fit(each)
                for each in self.parameters
            ]
            self.fits = tuple([None if fit is scalars.fit_plain else fit for fit in fits])
            self.apart = [(first, second) for first, second in overload.get("apart", ())]
            for index in [index for pair in self.apart for index in pair]:
                self.parameters[index]["dtype"]  # a KeyError if it is no array
        except (LookupError, TypeError, ValueError, struct.error) as error:
            message = f"the manifest describes {overload['symbol']} of {where} wrongly ({error!r}); install it again"
            raise errors.ManifestError(message) from None
        self.forms = [parameter_kinds.form(parameter) for parameter in self.parameters]
        self.addresses = [index for index, (_, _, is_address) in enumerate(fields) if is_address]
        self.alignments = [*_alignments(self.parameters, ())]
        in_block = [each for each in self.parameters if each["kind"] != "constant"]
        offsets = [part["offset"] for each in in_block for part in (each, *each.get("sizes", ()))]
        offsets += [place for each in in_block for place in each.get("places", ())[1:]]  # the first is the offset
        self.starts = sorted([*offsets, *overload.get("reserved", ())]) if overload.get("one_by_one") else []
        self.slots: deque[Slot] = deque()  # an empty list would free its memory
        self.fast_layout: object = None
        self.kernels: dict[int, Any] = {}
        self.ready: Any = None

    def _fields(self) -> list[tuple[int, str, bool]]:
        return [field for each in self.parameters for field in parameter_kinds.kind_of(each).fields(each)]

    def launch_packer(self) -> Callable[..., None]:
        """Return `pack_into` for a whole slot: the numbers of `_CONFIG` before those of the block."""
        return _packer(self._fields(), self.size, _CONFIG)

    def take(self) -> Slot:
        """Return a free slot, or a new one."""
        try:
            return self.slots.pop()
        except IndexError:
            return Slot(self.size, self.starts)

    def addresses_of(self, values: list[object]) -> list[int]:
        """Return the addresses of the arrays among a block's numbers."""
        return [value for index in self.addresses if isinstance(value := values[index], int)]


def item_at(read: Any, path: tuple[int, ...]) -> Any:
    """Return the item to which the indices of a path lead, or what was read itself."""
    for at in path:
        read = read[at]
    return read


def _alignments(parameters: list[Parameter], before: tuple[int, ...]) -> Iterator[Alignment]:
    for at, parameter in enumerate(parameters):
        if parameter["kind"] == "tuple":
            yield from _alignments(parameter["members"], (*before, at))
        elif (alignment := parameter_kinds.alignment(parameter)) > 1:
            yield (*before, at), alignment, parameter["kind"] != "elements"  # a kernel of Triton gets no strides


def _accept(_read: object, _values: list[object]) -> bool:
    return True


def _packer(fields: list[tuple[int, str, bool]], size: int, before: str = "") -> Callable[..., None]:
    """Return the function that packs the numbers of `fields` into a block of `size` bytes, after those of `before`."""
    block = struct.Struct("<" + before + _format(fields, size))
    order = sorted(range(len(fields)), key=lambda at: fields[at][0])
    if order == list(range(len(fields))):
        return block.pack_into
    first = len(struct.unpack("<" + before, bytes(struct.calcsize("<" + before))))
    places = [*range(first), *[first + at for at in order]]

    def pack_into(buffer: Any, offset: int, *values: object) -> None:
        block.pack_into(buffer, offset, *[values[at] for at in places])

    return pack_into


def _format(fields: list[tuple[int, str, bool]], size: int) -> str:
    """Return the `struct` format of the whole block, with padding in the gaps."""
    parts = []
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
