"""Run one case of the suite on a GPU, and compare the arrays after it with the reference."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from slow.conformance import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slow.conformance.case import Case

GUARD = 1 << 16
"""Bytes before and behind each array, which no kernel may change."""

Arrays = dict[str, np.ndarray]


class FaultError(Exception):
    """A kernel writes outside of its arrays."""


def differences(case: Case, arrays: Mapping[str, np.ndarray], correct: Mapping[str, np.ndarray]) -> list[str]:
    """Return a text for each wrong array, with the first different element and the number of them."""
    return [text for name in correct if (text := _difference(name, arrays[name], correct[name], case.ulps))]


def _difference(name: str, found: np.ndarray, correct: np.ndarray, ulps: int) -> str:
    wrong = [place for place in np.ndindex(correct.shape) if not _equal(found[place], correct[place], ulps)]
    if not wrong:
        return ""
    place = wrong[0]
    where = ", ".join(map(str, place))
    return f"{name}[{where}] is {found[place]}, not {correct[place]}" + (
        f" ({len(wrong)} of {correct.size} differ)" if len(wrong) > 1 else ""
    )


def _equal(found: Any, correct: Any, ulps: int) -> bool:
    if isinstance(correct, np.void):
        return all(_equal(found[name], correct[name], ulps) for name in correct.dtype.names)
    if isinstance(correct, np.complexfloating):
        size = max(abs(correct.real), abs(correct.imag))
        return bool(abs(found - correct) <= ulps * np.spacing(type(correct.real)(size))) or bool(found == correct)
    if isinstance(correct, np.floating):
        if np.isnan(correct) or np.isnan(found):
            return bool(np.isnan(correct) and np.isnan(found))
        return bool(found == correct or abs(found - correct) <= ulps * np.spacing(abs(correct)))
    return bool(found == correct)


def add_guards(content: bytes | bytearray) -> np.ndarray:
    """Return the bytes of an array between two guards."""
    block = np.full(GUARD * 2 + len(content), 0xA5, np.uint8)
    block[GUARD : GUARD + len(content)] = np.frombuffer(bytes(content), np.uint8)
    return block


def remove_guards(name: str, block: np.ndarray, start: int, value: np.ndarray) -> np.ndarray:
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


def flatten(array: np.ndarray) -> tuple[bytearray, int]:
    """Return the bytes that an array spans, and the position of its first element in them."""
    steps = [stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True)]
    low = sum(step for step in steps if step < 0)
    size = sum(map(abs, steps)) + array.itemsize
    content = bytearray(size)
    np.ndarray(array.shape, array.dtype, content, -low, array.strides)[...] = array
    return content, -low


def place_array(block: bytearray, parameter: Mapping[str, Any], array: np.ndarray, address: int) -> None:
    """Write the words of an array at this address into a parameter block, as the manifest describes it."""
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


def run_on_gpu(case: Case, kernel: Any, cupy: Any) -> Arrays:
    """Run a case on the GPU, and return its arrays.

    Raises:
        FaultError: The kernel writes into the memory around its arrays.
        Exception: The launch fails.
    """
    if case.gpu:
        return _run_far(case, kernel, cupy)
    placed, arguments = [], []
    for name, value in case.arguments.items():
        if not isinstance(value, np.ndarray):
            arguments.append(value.item())
            continue
        content, start = flatten(value)
        device = cupy.asarray(add_guards(content))
        placed.append((name, device, start, value))
        arguments.append(_DeviceArray(device, GUARD + start, value))
    kernel[case.launch](*arguments)
    cupy.cuda.runtime.deviceSynchronize()
    return {name: remove_guards(name, device.get(), start, value) for name, device, start, value in placed}


class _DeviceArray:
    """Memory on the GPU with the layout of a NumPy array."""

    def __init__(self, device: Any, start: int, array: np.ndarray) -> None:
        self._device = device
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": None if array.flags.c_contiguous else array.strides,
            "typestr": array.dtype.str,
            "descr": array.dtype.descr,
            "data": (device.data.ptr + start, False),
            "version": 3,
        }


def _run_far(case: Case, kernel: Any, cupy: Any) -> Arrays:
    """Run a case with a large array `x`; return its elements at the indices `p` as the array `x`."""
    places = case.arguments["p"]
    x = cupy.zeros(case.arguments["x"].shape, case.arguments["x"].dtype)
    kernel[case.launch](x, cupy.asarray(places))
    cupy.cuda.runtime.deviceSynchronize()
    elements = x[cupy.asarray(places.astype("int64"))].get()
    del x
    cupy.get_default_memory_pool().free_all_blocks()
    return {"x": elements}


def expected(case: Case) -> Arrays:
    """Return the correct arrays of a case whose oracle is Python."""
    if case.gpu:
        return {"x": np.arange(1, case.threads + 1, dtype="int8")}
    return reference.results(case)
