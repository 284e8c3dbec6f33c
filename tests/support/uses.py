"""Right and wrong uses of a packaged module's names, as a user's file for type checkers, made from its manifest."""

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
    "1, 32",
    "(2, 2), (8, 8, 1)",
    "size, (size, 2)",
    "[2, 2], 32",
    "1, 32, None",
    "1, 32, 0, 1024",
    "1, 32, Stream()",
    "1, 32, Protocol(), 64",
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
        right: The numbers of those that are right uses.
        wrong: The numbers of those that are wrong ones.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.right: set[int] = set()
        self.wrong: set[int] = set()

    def takes(self, line: str) -> None:
        self.lines.append(line)
        self.right.add(len(self.lines))

    def refuses(self, line: str) -> None:
        self.lines.append(line)
        self.wrong.add(len(self.lines))


def of(whole: manifest.Manifest, module: str) -> File:
    """Return a file that uses every name of a module."""
    file = File(_PREAMBLE.format(module=module))
    for kernel in whole["kernels"]:
        (_grid_kernel if whole.get("by_grid") else _kernel)(file, kernel)
    for function in whole["functions"]:
        _function(file, function["name"])
    file.takes("module: aotcuda.Module = m.__aotcuda__")
    file.takes("print(module.name, module.kernels, module.functions, module.chosen, module.tiers, module.fast_path)")
    file.takes("print(module.choice_for((9, 0), driver=(13, 0)).why)")
    file.takes("module.preload()")
    file.refuses("module.choice_for(9.0)")
    file.refuses("m.no_such_name")
    file.refuses("after_all_that: int = 'it is still checked'")
    return file


def _kernel(file: File, kernel: manifest.Kernel) -> None:
    name = kernel["name"]
    k = f"m.{name}"
    rows: list[Any] = [overload["parameters"] for overload in kernel["overloads"]]
    counts = {len(row) for row in rows}
    for row in rows:
        for choice in range(4):
            file.takes(f"{k}[1, 32]({_joined(_right(item, choice) for item in row)})")
        if len(rows) == 1:  # what one refuses, another may take
            for args in _with_one_wrong(row):
                file.refuses(f"{k}[1, 32]({args})")
    given = _joined(_right(item) for item in rows[0])
    for configuration in _CONFIGURATIONS:
        file.takes(f"{k}[{configuration}]({given})")
    file.takes(f"{k}.forall(100)({given})")
    file.takes(f"{k}.forall(size, 128, shared=64)({given})")
    file.takes(f"{k}.configure(1, 32, cluster=2, stream=Stream())({given})")
    file.takes(f"launch_{name}: aotcuda.Launcher = {k}[1, 32]")
    file.takes(f"launch_{name}({given})")
    file.takes(f"any_{name}: aotcuda.Kernel = {k}")
    file.takes(f"print({k}.signatures, {k}.occupancy(128), launch_{name}.grid)")
    file.refuses(f"{k}({given})")
    if max(counts) + 1 not in counts:
        args = _joined([*map(_right, max(rows, key=len)), "1"])
        file.refuses(f"{k}[1, 32]({args})")
        file.refuses(f"{k}.forall(8)({args})")
    if min(counts) > 0 and min(counts) - 1 not in counts:
        file.refuses(f"{k}[1, 32]({_joined(map(_right, min(rows, key=len)[:-1]))})")
    file.refuses(f"{k}[32]({given})")
    file.refuses(f"{k}[1, 32, None, 0, 5]({given})")
    file.refuses(f"{k}['1', 32]({given})")
    file.refuses(f"{k}[1, 32.0]({given})")
    file.refuses(f"{k}.forall('n')({given})")
    file.refuses(f"{k}.configure(1, 32, clusters=2)")
    file.refuses(f"{k}[1, 32](**{{'a': 1}})" if min(counts) else f"{k}[1, 32](a=1)")
    file.refuses(f"print({k}.signature)")


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
        file.takes(f"{k}[4]({_joined(_right(item, choice) for item in row[:count])})")
    given = _joined(map(_right, row[:count]))
    for configuration in ("4", "4, 2", "(4, 2, 1)", "[4]", "size", "grid"):
        file.takes(f"{k}[{configuration}]({given})")
    file.takes(f"{k}[4]({_joined(named)})")
    file.takes(f"{k}[4]({_joined([*map(_right, row[:1]), *named[1:]])})")
    file.takes(f"{k}[4]({_joined(map(_right, row[:needed]))})")
    file.takes(f"{k}.configure(4, stream=Stream())({given})")
    file.takes(f"{k}.configure(lambda meta: meta['n'])({given})")  # in brackets pyright infers nothing of a lambda
    file.takes(f"launch_{name}: aotcuda.GridLauncher = {k}[4]")
    file.takes(f"launch_{name}({given})")
    file.takes(f"print({k}.signatures)")
    for args in _with_one_wrong(row[:count]):
        file.refuses(f"{k}[4]({args})")
    file.refuses(f"{k}({given})")
    file.refuses(f"{k}['4']({given})")
    file.refuses(f"{k}[4.0]({given})")
    file.refuses(f"{k}[4]({_joined(map(_right, row[: needed - 1]))})")
    file.refuses(f"{k}[4]({given}, 1)")
    file.refuses(f"{k}[4]({given}, NO_SUCH=4)")
    file.refuses(f"{k}[4]({given}, {named[0]})")
    file.refuses(f"{k}.configure(4, 32)")
    file.refuses(f"{k}.configure(4, shared=32)")
    file.refuses(f"print({k}.signature)")


def _function(file: File, name: str) -> None:
    f = f"m.{name}"
    file.takes(f"print({f}.signature.upper(), {f}.prototype.upper(), {f}.__name__)")
    file.takes(f"function_{name}: aotcuda.DeviceFunction = {f}")
    file.takes(f"{f}(1, 2)")  # as kernels do, whose types are the compiler's affair
    for use in (
        f"{f}[1, 32](1)",
        f"{f}.forall(3)",
        f"print({f}.signatures)",
        f"kernel_{name}: aotcuda.Kernel = {f}",
        f"{name}_number: int = {f}.signature",
    ):
        file.refuses(use)


def _with_one_wrong(row: list[Any]) -> Iterable[str]:
    """Return the arguments for a row of parameters with one that does not fit, for each and for each that does not."""
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
