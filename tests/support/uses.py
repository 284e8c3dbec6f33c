"""Make a user's file for type checkers from a manifest, with right and wrong uses of the module's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda import manifest

_PREAMBLE = """\
import ctypes
from typing import Any

import numpy

import aotcuda
import {module} as m


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


def grid(meta: dict[str, Any]) -> tuple[int, int]:
    return meta["n"], 1


host = numpy.zeros(3, numpy.float32)
size = numpy.int64(32)
print(ctypes.sizeof(ctypes.c_int))
"""

_CONFIGURATIONS = (
    *("1, 32", "(2, 2), (8, 8, 1)", "size, (size, 2)", "[2, 2], 32", "1, 32, None", "1, 32, 0, 1024"),
    *("1, 32, Stream()", "1, 32, Protocol(), 64"),
)
_RIGHT = {
    "integer": ("True", "2", "numpy.int32(3)", "numpy.bool_(True)"),
    "real": ("2", "2.5", "numpy.float32(2)", "numpy.uint8(1)"),
    "complex": ("2j", "1.5", "numpy.complex64(1)", "numpy.float64(1)"),
    "pointer": ("4096", "ctypes.c_void_p(4096)"),
    "datetime": ("numpy.datetime64(3, 'ns')",),
    "array": ("Array()", "Exchanged()"),
    "type": ("numpy.float64",),
    "struct": ("numpy.zeros(1, 'f4,f4')[0]",),
    "constant": ("128",),
}
_WRONG = {
    "integer": ("'text'", "2.5", "Array()", "host"),
    "real": ("'text'", "1j", "Array()", "host"),
    "complex": ("'text'", "Array()"),
    "pointer": ("'text'", "Array()", "2.5"),
    "datetime": ("'text'", "7"),
    "array": ("2.5", "[1.0]", "host", "None"),
    "tuple": ("7", "(Array(),) * 9"),
}
_FAMILIES = {"record": "array", "elements": "array", "buffer": "array"}


class File:
    """A user's file.

    Attributes:
        lines: Its lines.
        right: The numbers of the lines with right uses.
        wrong: The numbers of the lines with wrong uses.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.right: set[int] = set()
        self.wrong: set[int] = set()

    def accepts(self, *lines: str) -> None:
        for line in lines:
            self.lines.append(line)
            self.right.add(len(self.lines))

    def refuses(self, *lines: str) -> None:
        for line in lines:
            self.lines.append(line)
            self.wrong.add(len(self.lines))


def of(whole: manifest.Manifest, module: str) -> File:
    """Return a file that uses every name of a module."""
    file = File(_PREAMBLE.format(module=module))
    for kernel in whole["kernels"]:
        (_grid_kernel if whole.get("by_grid") else _kernel)(file, kernel)
    for function in whole["functions"]:
        _function(file, function["name"])
    file.accepts(
        "module: aotcuda.Module = m.__aotcuda__",
        "print(module.name, module.kernels, module.functions, module.chosen, module.tiers, module.fast_path)",
        "print(module.choice_for((9, 0), driver=(13, 0)).why)",
        "module.preload()",
    )
    file.refuses("module.choice_for(9.0)", "m.no_such_name", "after_all_that: int = 'it is still checked'")
    return file


def _kernel(file: File, kernel: manifest.Kernel) -> None:
    name = kernel["name"]
    k = f"m.{name}"
    rows: list[Any] = [overload["parameters"] for overload in kernel["overloads"]]
    counts = {len(row) for row in rows}
    for row in rows:
        for choice in range(4):
            file.accepts(f"{k}[1, 32]({_joined(_right(item, choice) for item in row)})")
        if len(rows) == 1:  # what one refuses, another may take
            for args in _with_one_wrong(row):
                file.refuses(f"{k}[1, 32]({args})")
    given = _joined(_right(item) for item in rows[0])
    file.accepts(*(f"{k}[{configuration}]({given})" for configuration in _CONFIGURATIONS))
    file.accepts(
        f"{k}.forall(100)({given})",
        f"{k}.forall(size, 128, shared=64)({given})",
        f"{k}.configure(1, 32, cluster=2, stream=Stream())({given})",
        f"launch_{name}: aotcuda.Launcher = {k}[1, 32]",
        f"launch_{name}({given})",
        f"any_{name}: aotcuda.Kernel = {k}",
        f"print({k}.signatures, {k}.occupancy(128), launch_{name}.grid)",
    )
    if max(counts) + 1 not in counts:
        args = _joined([*map(_right, max(rows, key=len)), "1"])
        file.refuses(f"{k}[1, 32]({args})", f"{k}.forall(8)({args})")
    if min(counts) > 0 and min(counts) - 1 not in counts:
        file.refuses(f"{k}[1, 32]({_joined(map(_right, min(rows, key=len)[:-1]))})")
    file.refuses(
        f"{k}({given})",
        f"{k}[32]({given})",
        f"{k}[1, 32, None, 0, 5]({given})",
        f"{k}['1', 32]({given})",
        f"{k}[1, 32.0]({given})",
        f"{k}.forall('n')({given})",
        f"{k}.configure(1, 32, clusters=2)",
        f"{k}[1, 32](**{{'a': 1}})" if min(counts) else f"{k}[1, 32](a=1)",
        f"print({k}.signature)",
    )


def _grid_kernel(file: File, kernel: manifest.Kernel) -> None:
    name, arguments = kernel["name"], kernel["arguments"]
    k = f"m.{name}"
    row: list[Any] = kernel["overloads"][0]["parameters"]
    named = [f"{argument['name']}={_right(item)}" for argument, item in zip(arguments, row, strict=True)]
    count = sum(not argument.get("keyword") for argument in arguments)
    needed = sum(
        "default" not in argument and not item.get("optional") for argument, item in zip(arguments, row, strict=True)
    )
    for choice in range(4):
        file.accepts(f"{k}[4]({_joined(_right(item, choice) for item in row[:count])})")
    given = _joined(map(_right, row[:count]))
    file.accepts(*(f"{k}[{grid}]({given})" for grid in ("4", "4, 2", "(4, 2, 1)", "[4]", "size", "grid")))
    file.accepts(
        f"{k}[4]({_joined(named)})",
        f"{k}[4]({_joined([*map(_right, row[:1]), *named[1:]])})",
        f"{k}[4]({_joined(map(_right, row[:needed]))})",
        f"{k}.configure(4, stream=Stream())({given})",
        f"{k}.configure(lambda meta: meta['n'])({given})",  # in brackets pyright infers nothing of a lambda
        f"launch_{name}: aotcuda.GridLauncher = {k}[4]",
        f"launch_{name}({given})",
        f"print({k}.signatures)",
    )
    file.refuses(*(f"{k}[4]({args})" for args in _with_one_wrong(row[:count])))
    file.refuses(
        f"{k}({given})",
        f"{k}['4']({given})",
        f"{k}[4.0]({given})",
        f"{k}[4]({_joined(map(_right, row[: needed - 1]))})",
        f"{k}[4]({given}, 1)",
        f"{k}[4]({given}, NO_SUCH=4)",
        f"{k}[4]({given}, {named[0]})",
        f"{k}.configure(4, 32)",
        f"{k}.configure(4, shared=32)",
        f"print({k}.signature)",
    )


def _function(file: File, name: str) -> None:
    f = f"m.{name}"
    file.accepts(
        f"print({f}.signature.upper(), {f}.prototype.upper(), {f}.__name__)",
        f"function_{name}: aotcuda.DeviceFunction = {f}",
        f"{f}(1, 2)",  # as kernels do; the compiler checks the types
    )
    file.refuses(
        f"{f}[1, 32](1)",
        f"{f}.forall(3)",
        f"print({f}.signatures)",
        f"kernel_{name}: aotcuda.Kernel = {f}",
        f"{name}_number: int = {f}.signature",
    )


def _with_one_wrong(row: list[Any]) -> Iterable[str]:
    """Return the arguments for a row of parameters, with one wrong value at each place."""
    args = [_right(item) for item in row]
    for number, item in enumerate(row):
        for other in _WRONG.get(_family(item), ()):
            yield _joined([*args[:number], other, *args[number + 1 :]])


def _family(parameter: manifest.Parameter) -> str:
    kind = parameter["kind"]
    if kind in ("scalar", "number"):
        return "real" if parameter["format"] in "efd" else "integer"
    return _FAMILIES.get(kind, kind)


def _right(parameter: manifest.Parameter, choice: int = 0) -> str:
    if parameter["kind"] == "tuple":
        return f"({_joined(_right(item, choice) for item in parameter['members'])},)"
    every = _RIGHT[_family(parameter)]
    return every[choice % len(every)]


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)
