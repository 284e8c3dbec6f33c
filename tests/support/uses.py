"""Right and wrong uses of a packaged module's kernels, as a user's file for type checkers, made from its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotcuda import manifest

_PREAMBLE = """\
import ctypes
from typing import Any

import numpy

import aotcuda
from {package} import {stem} as m


class Array:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {{}}


class Exchanged:
    __dlpack_c_exchange_api__: object = None


class Stream:
    cuda_stream = 7


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


host = numpy.zeros(3, numpy.float32)
size = numpy.int64(32)
print(ctypes.sizeof(ctypes.c_int))
"""

_RIGHT = {
    "scalar": ("True", "2", "numpy.int32(3)", "numpy.bool_(True)"),
    "real": ("2", "2.5", "numpy.float32(2)", "numpy.uint8(1)"),
    "complex": ("2j", "1.5", "numpy.complex64(1)", "numpy.float64(1)"),
    "pointer": ("4096", "ctypes.c_void_p(4096)"),
    "datetime": ("numpy.datetime64(3, 'ns')",),
    "array": ("Array()", "Exchanged()"),
    "record": ("Array()",),
    "type": ("numpy.float64",),
}
_WRONG = {
    "scalar": ("'text'", "2.5", "Array()", "host"),
    "real": ("'text'", "1j", "Array()", "host"),
    "complex": ("'text'", "Array()"),
    "pointer": ("'text'", "Array()", "2.5"),
    "datetime": ("'text'", "7"),
    "array": ("2.5", "[1.0]", "host", "None"),
    "record": ("2.5", "host"),
    "type": (),
}


def of(whole: manifest.Manifest, package: str, stem: str) -> tuple[str, list[int]]:
    """A file that uses every kernel of a module `package.stem`, and the numbers of its lines that are wrong."""
    lines = _PREAMBLE.format(package=package, stem=stem).splitlines()
    wrong: list[int] = []

    def right_(line: str) -> None:
        lines.append(line)

    def wrong_(line: str) -> None:
        lines.append(line)
        wrong.append(len(lines))

    for kernel in whole["kernels"]:
        k = f"m.{kernel['name']}"
        counts = {len(overload["parameters"]) for overload in kernel["overloads"]}
        for overload in kernel["overloads"]:
            parameters = overload["parameters"]
            for choice in range(4):
                right_(f"{k}[1, 32]({_joined(_right(item, choice) for item in parameters)})")
            if len(kernel["overloads"]) > 1:
                continue  # what one refuses, another may take
            args = [_right(item, 0) for item in parameters]
            for number, item in enumerate(parameters):
                for other in _WRONG[_family(item)] if item["kind"] != "tuple" else ("7", "(Array(),) * 9"):
                    wrong_(f"{k}[1, 32]({_joined([*args[:number], other, *args[number + 1 :]])})")
        args = [_right(item, 0) for item in kernel["overloads"][0]["parameters"]]
        given = _joined(args)
        for configuration in (
            "1, 32",
            "(2, 2), (8, 8, 1)",
            "size, (size, 2)",
            "[2, 2], 32",
            "1, 32, None",
            "1, 32, 0, 1024",
            "1, 32, Stream()",
            "1, 32, Protocol(), 64",
        ):
            right_(f"{k}[{configuration}]({given})")
        right_(f"{k}.forall(100)({given})")
        right_(f"{k}.forall(size, 128, shared=64)({given})")
        right_(f"{k}.configure(1, 32, cluster=2, stream=Stream())({given})")
        right_(f"launch_{kernel['name']}: aotcuda.Launcher = {k}[1, 32]")
        right_(f"launch_{kernel['name']}({given})")
        right_(f"any_{kernel['name']}: aotcuda.Kernel = {k}")
        right_(f"print({k}.signatures, {k}.occupancy(128), launch_{kernel['name']}.grid)")
        wrong_(f"{k}({given})")
        if max(counts) + 1 not in counts:
            longest = next(item for item in kernel["overloads"] if len(item["parameters"]) == max(counts))
            wrong_(f"{k}[1, 32]({_joined([*(_right(item, 0) for item in longest['parameters']), '1'])})")
            wrong_(f"{k}.forall(8)({_joined([*(_right(item, 0) for item in longest['parameters']), '1'])})")
        if min(counts) > 0 and min(counts) - 1 not in counts:
            shortest = next(item for item in kernel["overloads"] if len(item["parameters"]) == min(counts))
            wrong_(f"{k}[1, 32]({_joined(_right(item, 0) for item in shortest['parameters'][:-1])})")
        wrong_(f"{k}[32]({given})")
        wrong_(f"{k}[1, 32, None, 0, 5]({given})")
        wrong_(f"{k}['1', 32]({given})")
        wrong_(f"{k}[1, 32.0]({given})")
        wrong_(f"{k}.forall('n')({given})")
        wrong_(f"{k}.configure(1, 32, clusters=2)")
        wrong_(f"{k}[1, 32](**{{'a': 1}})" if min(counts) else f"{k}[1, 32](a=1)")
        wrong_(f"print({k}.signature)")
    wrong_("m.no_such_kernel")
    wrong_("after_all_that: int = 'it is still checked'")
    return "\n".join([*lines, ""]), wrong


def _family(parameter: manifest.Parameter) -> str:
    return "real" if parameter["kind"] == "scalar" and parameter["format"] in "efd" else parameter["kind"]


def _right(parameter: manifest.Parameter, choice: int) -> str:
    if parameter["kind"] == "tuple":
        return f"({_joined(_right(item, choice) for item in parameter['members'])},)"
    every = _RIGHT[_family(parameter)]
    return every[choice % len(every)]


def _joined(parts: object) -> str:
    return ", ".join(parts)  # type: ignore[arg-type]
