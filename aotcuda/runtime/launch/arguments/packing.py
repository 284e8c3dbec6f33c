"""Make the function that launches a plan in one step: it reads, checks and packs arguments, and calls the driver.

The function has a step for each argument, which appends the numbers that the argument's reader and the parameter's
`fit` give, or declines. If one declines, the caller finds the plan of the arguments, or the reason why there is none.
For arrays of CuPy, PyTorch and Numba and for `__cuda_array_interface__`, a step begins with a quick check: contiguous
arrays of the plan's dtype, of Numba those of one dimension.
"""

from __future__ import annotations

import struct
from functools import partial

from . import arrays, parameter_kinds
from .argument_layout import address_of_attributes, item_at
from .array_view import MOST_BYTES, is_aligned, item_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ....manifest import Parameter
    from ...driver import Driver
    from .argument_layout import Alignment, PackedOverload
    from .keys import Coder
    from .parameter_kinds import Append, Fit
    from .scalars import Read

    Pack = Callable[[Any, list[object], list[object], int], bool]
    """Take an argument, the numbers so far, the `pending` items and the launch's stream; return False to decline."""

    Launch = Callable[[tuple[Any, ...], Any], int | None]
    """Take the arguments and the `Configuration`; return the driver's code, or None to decline."""

    FindStream = Callable[[int | None], int | None]
    """Take the handle of the launch's stream, None for the current stream."""

    _Line = Callable[[tuple[int, ...]], tuple[int, ...]]

_is_c_contiguous = arrays.is_c_contiguous
_LEAST = arrays.LEAST_ADDRESS


def make_launch(
    overload: PackedOverload,
    all_steps: tuple[Sequence[Pack | None], Sequence[Pack | None]],
    find_stream: FindStream | None,
    other_stream: Callable[[tuple[Any, ...], int | None], int],
    where: str,
    served: tuple[Any, int] | None,
    driver: Driver,
    launch: Callable[..., int],
) -> Launch:
    """Return the function that launches an overload.

    Args:
        overload: The plan's first overload.
        all_steps: The results of `steps`.
        find_stream: The first result of `find_streams`.
        other_stream: `OverloadTable.stream`.
        where: The kernel, for errors.
        served: `Specialization.served`.
        driver: The driver.
        launch: `Driver.launch`.
    """
    pack_into, slots, take = overload.launch_packer(), overload.slots, overload.take
    quick_steps, waiting_steps = all_steps
    counts, index = served or ([0], 0)

    def launch_planned(  # noqa: PLR0912 (one more call would take a twentieth of a launch)
        args: tuple[Any, ...], configuration: Any
    ) -> int | None:
        ready = overload.ready
        if ready is None:
            return None
        numbers, handle = configuration.numbers, configuration.stream
        if configuration.elements or ready.fixed is not None:
            numbers = ready.complete(configuration)
        if numbers is None or not ready.accepts(numbers):
            return None
        attributes = configuration.attributes or ready.attributes
        pending: list[object] = []
        steps, array, address, count = quick_steps, None, 0, 0
        try:
            if attributes is not None:
                array = ready.encode(attributes, numbers)  # `values` has its address only
                address, count = address_of_attributes(array)
            stream = (handle or 0) if find_stream is None else find_stream(handle)
            if stream is None:  # data is on another stream
                steps, stream = waiting_steps, other_stream(args, handle)
            values: list[object] = [*numbers, stream, address, count]
            for pack, arg in zip(steps, args):  # noqa: B905 (equal lengths; strict costs time)
                if pack is None:
                    values.append(arg)
                elif not pack(arg, values, pending, stream):
                    return None
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (reading the arguments again raises an error with a reason)
            return None
        waits = bool(pending) and any(isinstance(item, int) for item in pending)  # an int is a stream to wait for
        if waits and driver.current_device() is None:  # there is no context for events
            return None
        slot = take()
        try:
            pack_into(slot.buffer, 0, *values)
            config, parameters, extra = slot.pointers
            if waits:
                from ... import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

                submit = partial(launch, config, ready.handle, parameters, extra)
                code = streams.launch_in_order(driver, pending, stream, where, submit)
            else:
                code = launch(config, ready.handle, parameters, extra)
        except (struct.error, OverflowError):  # a number is out of its parameter's range
            return None
        finally:
            slots.append(slot)
        counts[index] += not code
        return code

    return launch_planned


def steps(
    overload: PackedOverload,
    args: tuple[Any, ...],
    readers: Sequence[Read | None],
    codes: dict[int, tuple[Coder, object]],
    current: dict[str | None, Callable[[], int]],
) -> tuple[list[Pack | None], list[Pack | None]]:
    """Return the step for each argument; None for a number that is appended unchanged.

    The first result is for launches on the current streams of all libraries; the second lets other launches wait.

    Args:
        overload: The plan's first overload.
        args: Arguments that it has accepted.
        readers: The readers of arguments of these types; None for a number that needs none.
        codes: The coders of the plan's key by argument, and their codes in it.
        current: The second result of `find_streams`.
    """
    quick: list[Pack | None] = []
    waiting: list[Pack | None] = []
    waits = {**current}
    if not arrays.orders_cupy_stream():
        waits.pop("cupy", None)
    for at, (arg, read, fit) in enumerate(zip(args, readers, overload.fits, strict=True)):
        coder, code = codes.get(at, (None, None))
        checks = [item for item in overload.alignments if item[0][0] == at]
        pack = _pack(read, fit, coder, code, checks)
        family = arrays.family(arg)
        if pack is not None:
            pack = _quick(arg, overload.parameters[at], pack, coder, code)
        quick.append(pack)
        if pack is not None and family in waits:  # the first array of the library
            pack = arrays.waiting(pack, waits.pop(family), mutual=family == "cupy")
        waiting.append(pack)
    return quick, waiting


def find_streams(
    leader: str | None, families: set[str | None]
) -> tuple[FindStream | None, dict[str | None, Callable[[], int]]]:
    """Return the function that returns a launch's stream, or None if data of CuPy or PyTorch is on another stream.

    The second result has the functions that return the current streams of these libraries. Plans are for machines with
    one GPU, so all tensors are on one stream.

    Args:
        leader: The library whose current stream is the launch's if none is given; None for the default stream.
        families: The families of the arguments and of the items of tuples.
    """
    current: dict[str | None, Callable[[], int]] = {}
    if "cupy" in families and (leader == "cupy" or arrays.orders_cupy_stream()):
        current["cupy"] = arrays.cupy_stream()
    if leader == "torch" or "torch" in families:
        of_gpu = arrays.torch_stream()
        if of_gpu is None or "torch" not in families:
            return (lambda _handle: None), current
        current["torch"] = partial(of_gpu, 0)
    if not current:
        return None, current
    first, *others = [current[name] for name in sorted(current, key=lambda name: name != leader)]

    def find(handle: int | None) -> int | None:
        stream = first()
        if handle is not None and handle != stream:
            return None
        for other in others:
            if other() != stream:
                return None
        return stream

    return find, current


def _pack(
    read: Read | None, fit: Fit | None, coder: Coder | None, code: object, checks: list[Alignment]
) -> Pack | None:
    """Return the function that reads and packs any argument of a type."""
    if read is None and coder is None:
        return None if fit is None else lambda arg, values, _pending, _stream: fit(arg, values)

    def pack(arg: Any, values: list[object], pending: list[object], stream: int) -> bool:
        item: Any = arg if read is None else read(arg, pending, stream)
        if coder is not None and coder.code(item) != code:
            return False
        if fit is None:
            values.append(item)
            return True
        return fit(item, values) and all(
            is_aligned(item_at(item, path[1:]), alignment, with_strides=with_strides)
            for path, alignment, with_strides in checks
        )

    return pack


def _quick(arg: Any, parameter: Parameter, pack: Pack, coder: Coder | None, code: Any) -> Pack:
    """Return a function that does the same as `pack`, and sooner for contiguous arrays like `arg`.

    It reads no current stream of a library.
    """
    family = arrays.family(arg)
    if family not in _MAKE_QUICK or (coder is not None and (coder.tests or coder.any_dimensions)):
        return pack  # only `pack` compares addresses with the key
    append = parameter_kinds.kind_of(parameter).fit_contiguous(parameter)
    element = arg.__cuda_array_interface__["typestr"] if family == "interface" else getattr(arg, "dtype", None)
    typestr = arrays.element(element)
    if append is None or typestr not in arrays.PLAIN or typestr != parameter["dtype"]:
        return pack
    ndim = code[1] if coder is not None else None
    line = None
    if parameter["kind"] == "array":  # one number of dimensions
        line = parameter_kinds.picker(parameter) if parameter["ndim"] == 1 else None
    elif ndim is not None:
        append = _of_dimensions(append, ndim)
    return _MAKE_QUICK[family](parameter, element, line, append, pack)


def _of_dimensions(append: Append, ndim: int) -> Append:
    def append_some(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
        return len(shape) == ndim and append(address, shape, values)

    return append_some


def _cupy(parameter: Parameter, dtype: Any, line: _Line | None, append: Append, other: Pack) -> Pack:
    misaligned, itemsize = parameter_kinds.alignment(parameter) - 1, item_bytes(parameter["dtype"])
    most = MOST_BYTES // itemsize

    def pack(array: Any, values: list[object], pending: list[object], stream: int) -> bool:
        address, shape = array.data.ptr, array.shape
        if (
            array.dtype is not dtype
            or type(address) is not int
            or address <= 0
            or address & misaligned
            or type(shape) is not tuple
            or not _is_c_contiguous(array)
        ):
            return other(array, values, pending, stream)
        if line is None:
            return append(address, shape, values)
        if len(shape) != 1 or type(extent := shape[0]) is not int or not 0 <= extent <= most:
            return other(array, values, pending, stream)
        values += line((itemsize, address, extent, extent, itemsize, 1))
        return True

    return pack


def _torch(parameter: Parameter, dtype: Any, line: _Line | None, append: Append, other: Pack) -> Pack:
    misaligned, itemsize = parameter_kinds.alignment(parameter) - 1, item_bytes(parameter["dtype"])
    is_complex, most = parameter["dtype"][1:2] == "c", MOST_BYTES // itemsize

    def pack(tensor: Any, values: list[object], pending: list[object], stream: int) -> bool:
        address, shape = tensor.data_ptr(), tensor.shape
        if (
            tensor.dtype is not dtype
            or type(address) is not int
            or address < _LEAST
            or address & misaligned
            or not tensor.is_cuda
            or not tensor.is_contiguous()
            or (is_complex and tensor.is_conj())
        ):
            return other(tensor, values, pending, stream)
        if line is None:
            return append(address, tuple(shape), values)
        if len(shape) != 1 or type(extent := shape[0]) is not int or not 0 <= extent <= most:
            return other(tensor, values, pending, stream)
        values += line((itemsize, address, extent, extent, itemsize, 1))
        return True

    return pack


def _interface(parameter: Parameter, typestr: Any, line: _Line | None, append: Append, other: Pack) -> Pack:
    misaligned, itemsize = parameter_kinds.alignment(parameter) - 1, item_bytes(parameter["dtype"])
    writable, most = not parameter.get("readonly", False), MOST_BYTES // itemsize

    def pack(array: Any, values: list[object], pending: list[object], stream: int) -> bool:
        interface = array.__cuda_array_interface__
        if type(interface) is dict:
            get = interface.get
            data, shape, ready, kind = get("data"), get("shape"), get("stream"), get("typestr")
            if (
                type(data) is tuple
                and len(data) == 2
                and type(address := data[0]) is int
                and 0 < address < 1 << 64
                and not address & misaligned
                and not (data[1] and writable)
                and type(kind) is str
                and kind == typestr
                and type(shape) is tuple
                and get("strides") is None
                and get("mask") is None
                and (ready is None or (type(ready) is int and ready == stream))
            ):
                if line is None:
                    return append(address, shape, values)
                if len(shape) == 1 and type(extent := shape[0]) is int and 0 <= extent <= most:
                    values += line((itemsize, address, extent, extent, itemsize, 1))
                    return True
        return other(array, values, pending, stream)

    return pack


def _numba(parameter: Parameter, dtype: Any, line: _Line | None, append: Append, other: Pack) -> Pack:
    misaligned, itemsize = parameter_kinds.alignment(parameter) - 1, item_bytes(parameter["dtype"])
    one_step, most = (itemsize,), MOST_BYTES // itemsize

    def pack(array: Any, values: list[object], pending: list[object], stream: int) -> bool:
        try:
            element, shape, strides, ready = array.dtype, array.shape, array.strides, array.stream
            address = array.gpu_data.device_pointer
            if type(address) is not int:  # an object of NVIDIA's bindings
                address = arrays.to_int(address)
        except (AttributeError, TypeError):  # as in the reader
            return other(array, values, pending, stream)
        if (
            element is not dtype
            or type(ready) is not int
            or ready != 0
            or address <= 0
            or address & misaligned
            or type(shape) is not tuple
            or len(shape) != 1
            or type(extent := shape[0]) is not int
            or not 0 <= extent <= most
            or strides != one_step
            or type(strides[0]) is not int
        ):
            return other(array, values, pending, stream)
        if line is None:
            return append(address, shape, values)
        values += line((itemsize, address, extent, extent, itemsize, 1))
        return True

    return pack


_MAKE_QUICK = {"cupy": _cupy, "torch": _torch, "interface": _interface, "numba": _numba}
