"""How one overload's arguments lie in its parameter block.

The plan of an overload is made once, from the manifest: one `struct` for the whole block, and for each parameter a
converter that appends an argument's numbers in the struct's order. A converter returns False for an argument that the
parameter does not take. Blocks are packed into slots, which a launch borrows and gives back; the driver copies the
block while the launch call runs.
"""

from __future__ import annotations

import ctypes
import struct
from _operator import itemgetter

from aotcuda.errors import ManifestError
from aotcuda.runtime import arrays, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import Overload, Parameter
    from aotcuda.runtime.arrays import Reader
    from aotcuda.runtime.program import Entry
    from aotcuda.runtime.scalars import Convert

    Slot = tuple[ctypes.Array[ctypes.c_char], object, ctypes.c_size_t, ctypes.c_uint64, object]
    Fill = Callable[[list[object], int, tuple[int, ...], tuple[int, ...]], None]

_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*


class Plan:
    """One overload of a kernel, ready to pack arguments.

    Attributes:
        overload: Its entry in the manifest.
        parameters: Its parameters, likewise.
        size: Bytes of the block.
        forms: Dtype and number of dimensions of each parameter that is an array, None for the others.
        pack_into: Writes a block's numbers into a buffer.
        addresses: Which of those numbers are the addresses of arrays.
        slots: Free slots; take one with `take`, give it back with `slots.append`.
        entries: What `aotcuda.runtime.program` keeps for each GPU.
        compiled: What `aotcuda.runtime.accelerate` keeps.
        limits_by_gpu: What `limits` gives, by the GPU's ordinal.
    """

    __slots__ = (
        "addresses",
        "compiled",
        "entries",
        "forms",
        "limits_by_gpu",
        "overload",
        "pack_into",
        "parameters",
        "size",
        "slots",
    )

    def __init__(self, overload: Overload, where: str) -> None:
        self.overload = overload
        self.parameters = overload["parameters"]
        self.size = overload["parameter_bytes"]
        try:
            fields = [field for parameter in self.parameters for field in _fields(parameter)]
            block = struct.Struct(_format(fields, self.size))
        except (LookupError, TypeError, ValueError, struct.error) as error:
            message = f"the manifest describes {overload['symbol']} of {where} wrongly ({error!r}); install it again"
            raise ManifestError(message) from None
        self.forms = [
            (parameter["dtype"], parameter["ndim"]) if parameter["kind"] == "array" else None
            for parameter in self.parameters
        ]
        self.pack_into = block.pack_into
        self.addresses = [index for index, (_, _, is_address) in enumerate(fields) if is_address]
        self.slots: list[Slot] = []
        self.entries: dict[int, Entry] = {}
        self.compiled: object = None
        self.limits_by_gpu: dict[int, tuple[int, ...]] = {}

    def limits(self, entry: Entry) -> tuple[int, ...]:
        """What a launch may have unasked on a GPU: grid and block in x, y, z, shared memory, threads a block."""
        device = entry.device
        found = self.limits_by_gpu.get(device.index)
        if found is None:
            extents = [device.limit(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
            bounds = self.overload["launch_bounds"]
            bound = bounds[0] if bounds and bounds[0] > 0 else entry.threads
            threads = min(device.limit("threads"), entry.threads, bound)
            found = (*extents, max(device.limit("shared") - entry.static_shared, 0), threads)
            self.limits_by_gpu[device.index] = found
        return found

    def take(self) -> Slot:
        """A free slot, or a new one."""
        try:
            return self.slots.pop()
        except IndexError:
            return self.make_slot()

    def quick_struct(self) -> struct.Struct:
        """The block without the words that are always zero: `pack_into` fills what a format leaves out with zeros."""
        fields = [field for parameter in self.parameters for field in _fields(parameter, zeros=False)]
        return struct.Struct(_format(fields, self.size))

    def make_slot(self) -> Slot:
        """A slot: the buffer, a pointer to the `extra` array that tells `cuLaunchKernelEx` of it, and its size.

        Then a cell for what the driver answers to questions before a launch, and a pointer to it.
        """
        buffer = ctypes.create_string_buffer(max(self.size, 1))
        size = ctypes.c_size_t(self.size)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        cell = ctypes.c_uint64()
        # The pointers are made here, since ctypes would make them at every call.
        return buffer, ctypes.byref(extra), size, cell, ctypes.byref(cell)


def rank(parameter: Parameter, value: object) -> int | None:
    """How near a parameter is to a value's type: 0 is best; None means it never takes such a value.

    Arrays of every dtype have one type: whether an array fits is for its converter to say.
    """
    kind = parameter["kind"]
    if kind in ("array", "record"):
        return None if arrays.reader(value) is None else 0
    if kind == "datetime":
        return scalars.datetime_rank(value)
    if kind == "type":
        return scalars.type_rank(value)
    if kind == "tuple":
        members = parameter["members"]
        if not isinstance(value, tuple) or len(value) != len(members):
            return None
        ranks = [rank(member, item) for member, item in zip(members, value, strict=True)]
        return None if None in ranks else sum(part for part in ranks if part is not None)
    return scalars.pointer_rank(value) if kind == "pointer" else scalars.rank(parameter, value)


def converter(parameter: Parameter, value: object) -> Convert:
    """The converter for arguments of the type of `value`, which the parameter has a rank for."""
    kind = parameter["kind"]
    if kind in ("array", "record"):
        found = arrays.reader(value)
        assert found is not None  # noqa: S101 (rank() has said so)
        return _array(parameter, found) if kind == "array" else _record(parameter, found)
    if kind == "datetime":
        return scalars.datetime_converter(parameter)
    if kind == "type":
        return scalars.type_converter(parameter)
    if kind == "tuple":
        assert isinstance(value, tuple)  # noqa: S101 (likewise)
        return _tuple([converter(member, item) for member, item in zip(parameter["members"], value, strict=True)])
    return scalars.pointer if kind == "pointer" else scalars.converter(parameter, value)


def _array(parameter: Parameter, read: Reader) -> Convert:
    dtype, ndim, layout = parameter["dtype"], parameter["ndim"], parameter["layout"]
    if ndim == 1 and layout != "A":
        return _line(parameter, read)
    writable = not parameter.get("readonly", False)
    itemsize = arrays.item_bytes(dtype)
    fill = _fill(parameter["words"], itemsize, ndim, layout)

    def convert(value: object, values: list[object], pending: list[object], stream: int) -> bool:
        view = read(value, pending, stream)
        if view is None:
            return False
        typestr, address, shape, strides, readonly = view
        if (typestr != dtype and arrays.canonical(typestr) != dtype) or len(shape) != ndim or (readonly and writable):
            return False
        if strides is None:  # C-contiguous
            strides = arrays.contiguous_strides(shape, itemsize, "C")
        if layout != "A" and not arrays.is_contiguous(shape, strides, itemsize, layout):
            return False
        fill(values, address, shape, strides)
        return True

    return convert


def _line(parameter: Parameter, read: Reader) -> Convert:
    """As `_array`, for contiguous arrays of one dimension: the most frequent ones, made the quickest."""
    dtype = parameter["dtype"]
    writable = not parameter.get("readonly", False)
    itemsize = arrays.item_bytes(dtype)
    numbers = {"zero": 0, "itemsize": 1, "stride0": 1, "step0": 2, "data": 3, "items": 4, "shape0": 4}
    pick = _picker([numbers[word] for word in parameter["words"]])

    def convert(value: object, values: list[object], pending: list[object], stream: int) -> bool:
        view = read(value, pending, stream)
        if view is None:
            return False
        typestr, address, shape, strides, readonly = view
        if (typestr != dtype and arrays.canonical(typestr) != dtype) or len(shape) != 1 or (readonly and writable):
            return False
        extent = shape[0]
        if strides is not None and strides[0] != itemsize and extent > 1:
            return False
        values += pick((0, itemsize, 1, address, extent))
        return True

    return convert


def _record(parameter: Parameter, read: Reader) -> Convert:
    """One structured element on the GPU: an array of a single one, whose address is passed."""
    dtype = parameter["dtype"]

    def convert(value: object, values: list[object], pending: list[object], stream: int) -> bool:
        view = read(value, pending, stream)
        if view is None or view[0] != dtype or any(extent != 1 for extent in view[2]):
            return False
        values.append(view[1])
        return True

    return convert


def _tuple(converters: list[Convert]) -> Convert:
    def convert(value: object, values: list[object], pending: list[object], stream: int) -> bool:
        assert isinstance(value, tuple)  # noqa: S101 (converters are chosen by the argument's type)
        pairs = zip(converters, value, strict=True)
        return all(member(item, values, pending, stream) for member, item in pairs)

    return convert


def _fill(words: list[str], itemsize: int, ndim: int, layout: str) -> Fill:
    """A function that appends an array's words: they are picked from its numbers, laid out in one tuple."""
    names = ["zero", "itemsize", "one", "data", "items"]
    names += [f"shape{axis}" for axis in range(ndim)] + [f"stride{axis}" for axis in range(ndim)]
    names += [f"step{axis}" for axis in range(ndim)]
    pick = _picker([names.index(word) for word in words])

    def fill(values: list[object], address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        if layout != "A":  # without whatever strides stand for dimensions of one element
            strides = arrays.contiguous_strides(shape, itemsize, layout)
        items = 1
        for extent in shape:
            items *= extent
        steps = [stride // itemsize for stride in strides]
        values += pick((0, itemsize, 1, address, items, *shape, *strides, *steps))

    return fill


def _picker(indices: list[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    if len(indices) == 1:
        only = indices[0]
        return lambda numbers: (numbers[only],)
    return itemgetter(*indices)


def _fields(parameter: Parameter, *, zeros: bool = True) -> list[tuple[int, str, bool]]:
    """Offset, `struct` character and whether it is an array's address, for each number of a parameter.

    Those of words that are always zero are left out where `zeros` says so.
    """
    kind, offset = parameter["kind"], parameter["offset"]
    if kind == "array":
        return [
            (offset + 8 * index, "Q" if word == "data" else "q", word == "data")
            for index, word in enumerate(parameter["words"])
            if zeros or word != "zero"
        ]
    if kind == "tuple":
        return [field for member in parameter["members"] for field in _fields(member, zeros=zeros)]
    if kind == "type":
        return []  # zeros, which are the padding of the `struct` format
    if kind in ("pointer", "record"):
        return [(offset, "Q", kind == "record")]
    if kind == "datetime":
        return [(offset, "q", False)]
    form = parameter["format"]
    if kind == "complex":
        return [(offset, form, False), (offset + struct.calcsize(form), form, False)]
    if form not in "?bBhHiIqQefd":
        message = f"format {form!r}"
        raise ValueError(message)
    return [(offset, form, False)]


def _format(fields: list[tuple[int, str, bool]], size: int) -> str:
    """The whole block as a `struct` format, with the gaps spelled out."""
    parts = ["<"]
    position = 0
    for offset, form, _ in [*fields, (size, "", False)]:
        if offset < position:
            message = f"a parameter at byte {offset} overlaps the one before it"
            raise ValueError(message)
        if offset > position:
            parts.append(f"{offset - position}x")
        parts.append(form)
        position = offset + (struct.calcsize("<" + form) if form else 0)
    return "".join(parts)
