"""How one overload's arguments lie in its parameter block.

A `PackedOverload` is made once, from the manifest: one `struct` for the whole block, and for each parameter a
function that appends an argument's numbers in the struct's order, or says that it does not take them
(`aotcuda.runtime.arguments.parameters`). Blocks are packed into slots, which a launch borrows and gives back; the
driver copies the block while the launch call runs.
"""

from __future__ import annotations

import struct

from aotcuda.errors import ManifestError
from aotcuda.runtime import c_types as ctypes
from aotcuda.runtime.arguments import parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.manifest import Overload
    from aotcuda.runtime.driver import Mark

    Slot = tuple[ctypes.Array[ctypes.c_char], object, ctypes.c_size_t, ctypes.c_uint64, object]

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
        made: An item for each slot that there is.
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
            raise ManifestError(message) from None
        self.forms = [parameters.form(parameter) for parameter in self.parameters]
        self.pack_into = block.pack_into if order is None else _reordered(block, order)
        self.addresses = [index for index, (_, _, is_address) in enumerate(fields) if is_address]
        packed = [each for each in self.parameters if each["kind"] != "constant"]
        offsets = [part["offset"] for each in packed for part in (each, *each.get("sizes", ()))]
        self.starts = sorted(offsets) if overload.get("one_by_one") else []
        self.slots: list[Slot] = []
        self.made: list[None] = []

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

    def given(self, block: bytes) -> list[str]:
        """What a kernel was given, in words, a line for each argument: from its block, as they may be gone."""
        return [
            f"argument {number}, {parameter['name']}: {parameters.of(parameter).given(parameter, block)}"
            for number, parameter in enumerate(self.parameters, 1)
        ]

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

        Then a cell for what the driver answers to questions before a launch, and a pointer to it.
        """
        self.made.append(None)
        buffer = ctypes.create_string_buffer(max(self.size, 1))
        size = ctypes.c_size_t(self.size)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        if self.starts:
            start = ctypes.addressof(buffer)
            extra = (ctypes.c_void_p * len(self.starts))(*[start + offset for offset in self.starts])
        cell = ctypes.c_uint64()
        # The pointers are made here, since ctypes would make them at every call.
        return buffer, ctypes.byref(extra), size, cell, ctypes.byref(cell)


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
