"""Select an overload and pack its arguments in one step, if earlier launches had arguments of the same types.

Launches without the fast path in C take two thirds of the time. The arguments are contiguous arrays of CuPy or PyTorch,
and plain numbers. One closure reads and packs each argument. It accepts an argument only if the argument's reader and
the parameter's `fit` do, and appends the same numbers. If a closure declines, the caller reads all arguments again
through views.
"""

from __future__ import annotations

from . import arrays, parameter_kinds, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....manifest import Parameter
    from .parameter_kinds import Append, Fit

    Select = Callable[[tuple[object, ...], int | None], Any]  # a Selection of arguments.overloads

_is_c_contiguous = arrays.is_c_contiguous
_LEAST = arrays.LEAST_ADDRESS


def make(specialization: Any, args: tuple[Any, ...]) -> Select | None:
    """Return a function like `OverloadTable.select` for arguments of the same types, on a machine with one GPU.

    The function selects the first overload of the specialization, or returns None.

    Args:
        specialization: The specialization.
        args: Arguments that its first overload has accepted.

    Returns:
        The function; None if an argument or a parameter has another kind.
    """
    overload = specialization.overloads[0]
    families = [arrays.family(arg) for arg in args]
    is_torch = "torch" in families
    library = "torch" if is_torch else "cupy"
    packs: list[Fit | None] = []
    for arg, family, parameter, fit in zip(args, families, overload.parameters, overload.fits, strict=True):
        if family == library:
            pack = _array_packing(arg, parameter, is_torch=is_torch)
            if pack is None:
                return None
            packs.append(pack)
        elif family is None and (type(arg) in scalars.PLAIN or arg is None or type(arg) is str):
            packs.append(fit)  # these values need no reader
        else:
            return None
    current_stream: Any = arrays.torch_stream() if is_torch else arrays.cupy_stream() if library in families else None
    if current_stream is None or overload.apart:
        return None
    orders_streams, mutual = is_torch or arrays.orders_cupy_stream(), not is_torch
    take, give_back, pack_into = overload.take, overload.slots.append, overload.pack_into

    def select(args: tuple[object, ...], handle: int | None) -> Any:
        values: list[object] = []
        pending: list[object] = []
        slot, stream = None, handle or 0
        try:
            for pack, arg in zip(packs, args):  # noqa: B905 (equal lengths; strict costs time)
                if pack is None:
                    values.append(arg)
                elif not pack(arg, values):
                    return None
            if handle is None or orders_streams:
                current = current_stream(0) if is_torch else current_stream().ptr
                if type(current) is not int:
                    return None
                if handle is None:
                    stream = current
                elif current != handle:
                    arrays.wait(current, pending, handle, mutual=mutual)
            slot = take()
            pack_into(slot.buffer, 0, *values)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (the caller's reader raises an error with a reason)
            if slot is not None:
                give_back(slot)
            return None
        return overload, slot, values, pending, stream, specialization

    return select


def _array_packing(array: Any, parameter: Parameter, *, is_torch: bool) -> Fit | None:
    """Return the closure that reads and packs arrays of this dtype and number of dimensions; None if there is none."""
    contiguous = parameter_kinds.kind_of(parameter).fit_contiguous(parameter)
    dtype, ndim = array.dtype, len(array.shape)
    if contiguous is None or parameter["dtype"] not in arrays.PLAIN or arrays.element(dtype) != parameter["dtype"]:
        return None
    append: Append = contiguous
    if parameter["kind"] != "array":  # the parameter accepts any number of dimensions; other overloads may not

        def append(address: int, shape: tuple[int, ...], values: list[object]) -> bool:
            return len(shape) == ndim and contiguous(address, shape, values)

    is_complex = parameter["dtype"][1:2] == "c"
    misaligned = parameter_kinds.alignment(parameter) - 1  # the bits that aligned addresses lack

    def pack_cupy(array: Any, values: list[object]) -> bool:
        address, shape = array.data.ptr, array.shape
        return (
            array.dtype is dtype
            and _is_c_contiguous(array)
            and type(address) is int
            and address > 0
            and not address & misaligned
            and type(shape) is tuple
            and append(address, shape, values)
        )

    def pack_torch(tensor: Any, values: list[object]) -> bool:
        address = tensor.data_ptr()
        return (
            tensor.dtype is dtype
            and tensor.is_cuda
            and tensor.is_contiguous()
            and not (is_complex and tensor.is_conj())
            and type(address) is int
            and address >= _LEAST
            and not address & misaligned
            and append(address, tensor.shape, values)
        )

    return pack_torch if is_torch else pack_cupy
