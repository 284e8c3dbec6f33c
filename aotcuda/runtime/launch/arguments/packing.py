"""Make the functions that read and pack the arguments of a plan in one step: one for each argument.

A function appends the numbers that the argument's reader and the parameter's `fit` give, or declines. If one declines,
the caller makes a plan for the arguments: they may have another plan, or none accepts them. For arrays of CuPy and
PyTorch and for `__cuda_array_interface__`, a quick check comes first: contiguous arrays of the plan's dtype.
"""

from __future__ import annotations

from . import arrays, parameter_kinds
from .array_view import MOST_BYTES, is_aligned, item_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ....manifest import Parameter
    from .argument_layout import Alignment, PackedOverload
    from .keys import Coder
    from .parameter_kinds import Append, Fit
    from .scalars import Read

    Pack = Callable[[Any, list[object], list[object], int], bool]
    """Take an argument, the numbers so far, the `pending` items and the launch's stream; return False to decline."""

    _Line = Callable[[tuple[int, ...]], tuple[int, ...]]

_is_c_contiguous = arrays.is_c_contiguous
_LEAST = arrays.LEAST_ADDRESS


def make(
    overload: PackedOverload,
    args: tuple[Any, ...],
    readers: Sequence[Read | None],
    codes: dict[int, tuple[Coder, object]],
    *,
    one_gpu: bool,
) -> list[Pack | None]:
    """Return the function for each argument; None for a number that is appended unchanged.

    Args:
        overload: The plan's first overload.
        args: Arguments that it has accepted.
        readers: The readers of arguments of these types; None for a number that needs none.
        codes: The coders of the plan's key by argument, and their codes in it.
        one_gpu: Whether the machine has one GPU, so that all tensors are on one stream.
    """
    packs: list[Pack | None] = []
    first_tensor = next((at for at, arg in enumerate(args) if arrays.family(arg) == "torch"), -1)
    for at, (arg, read, fit) in enumerate(zip(args, readers, overload.fits, strict=True)):
        coder, code = codes.get(at, (None, None))
        checks = [item for item in overload.alignments if item[0][0] == at]
        pack = _pack(read, fit, coder, code, checks)
        if pack is not None and (one_gpu or arrays.family(arg) != "torch"):
            pack = _quick(arg, overload.parameters[at], pack, coder, code, on_stream=at != first_tensor)
        packs.append(pack)
    return packs


def _pack(
    read: Read | None, fit: Fit | None, coder: Coder | None, code: object, checks: list[Alignment]
) -> Pack | None:
    """Return the function that reads and packs any argument of a type."""
    if read is None:
        return None if fit is None else lambda arg, values, _pending, _stream: fit(arg, values)

    def pack(arg: Any, values: list[object], pending: list[object], stream: int) -> bool:
        item = read(arg, pending, stream)
        if coder is not None and coder.code(item) != code:
            return False
        if fit is None:
            values.append(item)
            return True
        return fit(item, values) and (not checks or all(_is_aligned(item, *check) for check in checks))

    return pack


def _is_aligned(read: Any, path: tuple[int, ...], alignment: int, with_strides: bool) -> bool:
    for at in path[1:]:
        read = read[at]
    return is_aligned(read, alignment, with_strides=with_strides)


def _quick(arg: Any, parameter: Parameter, pack: Pack, coder: Coder | None, code: Any, *, on_stream: bool) -> Pack:
    """Return a function that does the same as `pack`, and sooner for contiguous arrays like `arg`.

    With `on_stream`, an earlier function compares PyTorch's current stream with the launch's.
    """
    family = arrays.family(arg)
    if family not in ("cupy", "torch", "interface"):
        return pack
    append = parameter_kinds.kind_of(parameter).fit_contiguous(parameter)
    element = arg.__cuda_array_interface__["typestr"] if family == "interface" else arg.dtype
    typestr = arrays.element(element)
    if append is None or typestr not in arrays.PLAIN or typestr != parameter["dtype"]:
        return pack
    ndim = code[1] if coder is not None else None
    line = None
    if parameter["kind"] == "array":  # one number of dimensions
        line = parameter_kinds.picker(parameter) if parameter["ndim"] == 1 else None
    elif ndim is not None:
        append = _of_dimensions(append, ndim)
    if family == "torch":
        return _torch(parameter, element, line, append, pack, on_stream=on_stream)
    return (_cupy if family == "cupy" else _interface)(parameter, element, line, append, pack)


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


def _torch(
    parameter: Parameter, dtype: Any, line: _Line | None, append: Append, other: Pack, *, on_stream: bool
) -> Pack:
    misaligned, itemsize = parameter_kinds.alignment(parameter) - 1, item_bytes(parameter["dtype"])
    is_complex, most = parameter["dtype"][1:2] == "c", MOST_BYTES // itemsize
    current_stream = None if on_stream else arrays.torch_stream()

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
            or (current_stream is not None and current_stream(0) != stream)
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
