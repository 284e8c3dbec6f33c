"""Run one case of the suite on a GPU, and compare the arrays after it with the reference."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from support.conformance import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.conformance.case import Case

GUARD = 1 << 16
"""Bytes before and behind each array, which no kernel may change."""

Arrays = dict[str, np.ndarray]


class FaultError(Exception):
    """A kernel writes outside of its arrays."""


def differences(case: Case, found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> list[str]:
    """Return a text for each wrong array, with the first different element and the number of them."""
    return [text for name in wanted if (text := _difference(name, found[name], wanted[name], case.ulps))]


def _difference(name: str, found: np.ndarray, wanted: np.ndarray, ulps: int) -> str:
    wrong = [place for place in np.ndindex(wanted.shape) if not _equal(found[place], wanted[place], ulps)]
    if not wrong:
        return ""
    place = wrong[0]
    where = ", ".join(map(str, place))
    return f"{name}[{where}] is {found[place]}, not {wanted[place]}" + (
        f" ({len(wrong)} of {wanted.size} differ)" if len(wrong) > 1 else ""
    )


def _equal(found: Any, wanted: Any, ulps: int) -> bool:
    if isinstance(wanted, np.void):
        return all(_equal(found[name], wanted[name], ulps) for name in wanted.dtype.names)
    if isinstance(wanted, np.complexfloating):
        size = max(abs(wanted.real), abs(wanted.imag))
        return bool(abs(found - wanted) <= ulps * np.spacing(type(wanted.real)(size))) or bool(found == wanted)
    if isinstance(wanted, np.floating):
        if np.isnan(wanted) or np.isnan(found):
            return bool(np.isnan(wanted) and np.isnan(found))
        return bool(found == wanted or abs(found - wanted) <= ulps * np.spacing(abs(wanted)))
    return bool(found == wanted)


def guarded(content: bytes | bytearray) -> np.ndarray:
    """Return the bytes of an array between two guards."""
    block = np.full(GUARD * 2 + len(content), 0xA5, np.uint8)
    block[GUARD : GUARD + len(content)] = np.frombuffer(bytes(content), np.uint8)
    return block


def inside(name: str, block: np.ndarray, start: int, value: np.ndarray) -> np.ndarray:
    """Return the array between two guards, whose first element is `start` bytes behind the first guard.

    Raises:
        FaultError: A guard has changed.
    """
    size = block.size - 2 * GUARD
    changed = np.flatnonzero(np.concatenate([block[:GUARD], block[GUARD + size :]]) != 0xA5)
    if changed.size:
        place = int(changed[0])
        away = place - GUARD if place < GUARD else place - GUARD + size
        message = f"the kernel writes {away:+d} bytes from the start of {name}, which has {size}"
        raise FaultError(message)
    content = block[GUARD : GUARD + size].tobytes()
    return np.ndarray(value.shape, value.dtype, content, start, value.strides).copy()


def flat(array: np.ndarray) -> tuple[bytearray, int]:
    """Return the bytes that an array spans, and the place of its first element in them."""
    steps = [stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True)]
    low = sum(step for step in steps if step < 0)
    size = sum(map(abs, steps)) + array.itemsize
    content = bytearray(size)
    np.ndarray(array.shape, array.dtype, content, -low, array.strides)[...] = array
    return content, -low


def place_array(block: bytearray, parameter: Mapping[str, Any], array: np.ndarray, address: int) -> None:
    """Write the words of an array at this address into a parameter block, as the manifest's `parameter` says."""
    for number, word in enumerate(parameter["words"]):
        axis = int(word[-1]) if word[-1].isdigit() else 0
        values = {"zero": 0, "items": array.size, "itemsize": array.itemsize, "data": address}
        if word.startswith("shape"):
            value = array.shape[axis]
        elif word.startswith("stride"):
            value = array.strides[axis]
        elif word.startswith("step"):
            value = array.strides[axis] // array.itemsize
        else:
            value = values[word]
        struct.pack_into("<q", block, parameter["offset"] + 8 * number, value)


def by_gpu(case: Case, kernel: Any, cupy: Any) -> Arrays:
    """Run a case on the GPU, and return its arrays.

    Raises:
        FaultError: The kernel writes into the memory around its arrays.
        Exception: The launch fails.
    """
    if case.gpu:
        return _far(case, kernel, cupy)
    placed, given = [], []
    for name, value in case.arguments.items():
        if not isinstance(value, np.ndarray):
            given.append(value.item())
            continue
        content, start = flat(value)
        device = cupy.asarray(guarded(content))
        placed.append((name, device, start, value))
        given.append(_DeviceArray(device, GUARD + start, value))
    kernel[case.launch](*given)
    cupy.cuda.runtime.deviceSynchronize()
    return {name: inside(name, device.get(), start, value) for name, device, start, value in placed}


class _DeviceArray:
    """Memory on the GPU with the layout of a NumPy array."""

    def __init__(self, device: Any, start: int, array: np.ndarray) -> None:
        self._kept = device
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": None if array.flags.c_contiguous else array.strides,
            "typestr": array.dtype.str,
            "descr": array.dtype.descr,
            "data": (device.data.ptr + start, False),
            "version": 3,
        }


def _far(case: Case, kernel: Any, cupy: Any) -> Arrays:
    """Return a case whose `x` is large: the elements that `p` names, as the array `x` of the result."""
    places = case.arguments["p"]
    x = cupy.zeros(case.arguments["x"].shape, case.arguments["x"].dtype)
    kernel[case.launch](x, cupy.asarray(places))
    cupy.cuda.runtime.deviceSynchronize()
    found = x[cupy.asarray(places.astype("int64"))].get()
    del x
    cupy.get_default_memory_pool().free_all_blocks()
    return {"x": found}


def expected(case: Case) -> Arrays:
    """Return the arrays after a right launch, of a case whose oracle is Python."""
    if case.gpu:
        return {"x": np.arange(1, case.threads + 1, dtype="int8")}
    return reference.results(case)
