"""Read the tables of modules in CUDA C++: files, and the kernels and device functions that they define."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, cast

from aotcuda.builder.config import keys, rules
from aotcuda.builder.config.model import FMA, Entry
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Flag, ListOf, TableOf, Text
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.common import scalar_types
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.config.model import Module

DTYPES = scalar_types.TYPE_STRINGS
"""Type strings by the names of types in tables."""

_WORDS = {"size": "items", "itemsize": "itemsize", "shape": "shape", "strides": "stride"}
_SIZE = re.compile(r"([A-Za-z_]\w*)\.(?:(size|itemsize)|(shape|strides)\[(\d{1,2})\])")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\]")
_FORMS = (
    'a type (`"float32"`, `"float32[:, ::1]"`, `"float32[...]"`, `"pointer"`) nor a property of an array '
    '(`"x.size"`, `"x.shape[0]"`, `"x.strides[0]"`)'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A parameter as the table states it: its type, or the array that gives its value.

    Attributes:
        text: The text in the table.
        dtype: The type string of a number, or of an array's elements; `pointer` for an address.
        ndim: Number of dimensions of an array; -1 for any, None for no array.
        layout: C, F, or A for any strides.
        array: The array whose property gives the value; empty for an argument.
        word: The name of the property in manifests.
    """

    text: str
    dtype: str = ""
    ndim: int | None = None
    layout: str = "C"
    array: str = ""
    word: str = ""


def parse_stated(text: str) -> Stated:
    """Read the table's entry for a parameter."""
    text = text.strip()
    if match := _SIZE.fullmatch(text):
        return Stated(text=text, array=match[1], word=_WORDS[match[2] or match[3]] + (match[4] or ""))
    if text == "pointer" or text in DTYPES:
        return Stated(text=text, dtype=DTYPES.get(text, text))
    if match := _ARRAY.fullmatch(text):
        axes = [axis.strip() for axis in match[2].split(",")]
        if match[1] not in DTYPES:
            _refuse(text, f"has no type {match[1]}; use one of {', '.join(DTYPES)}")
        if axes == ["..."]:
            return Stated(text=text, dtype=DTYPES[match[1]], ndim=-1)
        units = [at for at, axis in enumerate(axes) if axis == "::1"]
        if any(axis not in (":", "::1") for axis in axes) or units not in ([], [0], [len(axes) - 1]):
            _refuse(text, "is not an array; write one colon for each dimension, and ::1 for the contiguous one")
        layout = "A" if not units else "C" if units == [len(axes) - 1] else "F"
        return Stated(text=text, dtype=DTYPES[match[1]], ndim=len(axes), layout=layout)
    return _refuse(text, f"is neither {_FORMS}")


def _refuse(text: str, problem: str) -> NoReturn:
    """Raise the error for an entry of the table."""
    message = f"{keys.string(text)} {problem}"
    raise ValueError(message)


_FUNCTION = Text('the name of a kernel as C++ calls it, or "csrc/file.cu:name"', r"^[^\s;{}]+(?:<[^;{}]*>)?$")
_INSTANCE = Text("an instance of a template, as C++ writes it", r"^[^;{}]*<[^;{}]*>\s*$")
_PARAMETERS = TableOf(
    name=Text("the name of a parameter as the key", r"^[A-Za-z_]\w*$"),
    value=Text("a type, or a property of an array", r"\S", parse_stated),
    expected="a table of parameters",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Entry):
    """A kernel of the files."""

    function: str = field(
        metadata=setting(
            _FUNCTION,
            'The kernel, as C++ calls it; `"csrc/other.cu:name"` where several files have it.',
            '"physics::push"',
            default="the kernel's name",
            from_name=True,
        )
    )
    instances: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            ListOf(item=_INSTANCE, expected="an instance or a list of instances", shortest=1, single=True),
            "In place of `function`: instances of a template, each of them a signature of the kernel.",
            '["scale<float>", "scale<double>"]',
            default="none",
        ),
    )
    parameters: tuple[tuple[str, Stated], ...] = field(
        default=(),
        metadata=setting(
            _PARAMETERS,
            (
                "By name, what a parameter's declaration leaves open: the arrays that a pointer accepts, or the "
                "property of an array that a number is. Such a number is not an argument."
            ),
            '{ image = "float32[:, ::1]", n = "x.size" }',
            default="as declared",
        ),
    )
    cooperative: bool = field(
        default=False,
        metadata=setting(Flag(), "Launch so that the whole grid can synchronise.", "true"),
    )
    fma: bool | None = field(default=None, metadata=FMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Entry):
    """A device function of the files for other modules: `extern "C" __device__`."""

    signature: str = field(
        default="",
        metadata=setting(
            rules.SIGNATURE,
            "Its types for callers in Python, in Numba's notation, if the nearest types are not the right ones.",
            '"float32(CPointer(float32), int32)"',
            default="as declared",
        ),
    )


SHAPES = {
    "relocatable": Flag(),
    "source": ListOf(
        item=Text("the path of a .cu file", r"[^/]\.cu$"),
        expected="the path of a .cu file or a list of them",
        shortest=1,
        single=True,
    ),
    "functions": rules.functions(Record(cls=Function, expected="a table or a signature", short="signature")),
    "kernels": rules.kernels(
        Record(cls=Kernel, expected="a table, an instance or a list of instances", short="instances")
    ),
}

EXAMPLES = {
    "source": '"csrc/kernels.cu"',
    "functions": "{ damped = {} }",
    "kernels": '{ push = {}, other = { function = "ns::other" }, scale = ["scale<float>", "scale<double>"] }',
}

SECTIONS = (("A device function", "functions.scaled", Function), ("A kernel", "kernels.push", Kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class CppUnit(Unit):
    """A kernel, an instance of a template, or a device function.

    Attributes:
        sources: The files of its module.
        expressions: The C++ name expressions of all kernels of the module, with their keys; a file is compiled for all
            of them at once.
        expression: The C++ name expression of this kernel.
        file: The file that defines it; empty until the files are read.
        stated: The table's entries for parameters.
        cooperative: True if launches are cooperative.
        unfused: True if the kernel has no fused multiply-adds, despite the module's options.
    """

    sources: tuple[str, ...]
    expressions: tuple[tuple[str, str], ...]
    expression: str
    file: str = ""
    stated: tuple[tuple[str, Stated], ...] = ()
    cooperative: bool = False
    unfused: bool = False

    @property
    def loading(self) -> str:
        """Implement Unit.loading."""
        first, *more = self.sources
        return f"reading {first}{f' and {len(more)} more' if more else ''}"


def check(module: Module) -> None:
    """Implement Tables.check."""
    normal = [posixpath.normpath(path) for path in module.source]
    for index, path in enumerate(normal):
        if path in normal[:index]:
            message = f"{module.key}.source[{index}]: {keys.string(path)} is listed twice; remove one of them"
            raise ConfigError(message)
    for kernel in cast("tuple[Kernel, ...]", module.kernels):
        if kernel.instances and kernel.function != kernel.name:
            path, colon, _ = kernel.function.partition(".cu:")
            named = keys.string(f"{path}.cu:{kernel.instances[0]}")
            remedy = f"write the file there, as {named}, and remove function" if colon else "remove one of the two keys"
            message = f"{kernel.key}.function: instances name the kernel already; {remedy}"
            raise ConfigError(message)
        for index, instance in enumerate(kernel.instances):
            if instance in kernel.instances[:index]:
                message = f"{kernel.key}.instances[{index}]: {instance} is listed twice; remove one of them"
                raise ConfigError(message)


def modules(module: Module) -> Sequence[str]:
    """Implement Tables.modules: the sources are not Python modules."""
    return ()


def units(module: Module) -> list[CppUnit]:
    """Implement Tables.units."""
    kernels = cast("tuple[Kernel, ...]", module.kernels)
    sources = tuple(posixpath.normpath(path) for path in module.source)
    expressions = tuple(pair for kernel in kernels for pair in _expressions(kernel))
    common: dict[str, Any] = {
        "module": module.name,
        "options": module.options,
        "sources": sources,
        "expressions": expressions,
    }
    kernel_units = [
        CppUnit(
            key=kernel.key,
            kind="kernel",
            name=kernel.name,
            symbol=f"{kernel.name}__{number}",  # until NVRTC has found its declaration
            origin=f"{', '.join(sources)}:{expression}",
            signature=expression if kernel.instances else "",
            signature_key=key,
            expression=expression,
            stated=kernel.parameters,
            cooperative=kernel.cooperative,
            unfused=kernel.fma is False,
            **common,
        )
        for kernel in kernels
        for number, (expression, key) in enumerate(_expressions(kernel))
    ]
    return kernel_units + [
        CppUnit(
            key=function.key,
            kind="function",
            name=function.name,
            symbol=function.name,
            origin=f"{', '.join(sources)}:{function.name}",
            signature=function.signature,
            signature_key=function.key,
            expression=function.name,
            **common,
        )
        for function in cast("tuple[Function, ...]", module.functions)
    ]


def _expressions(kernel: Kernel) -> list[tuple[str, str]]:
    """Return the C++ names of a kernel or its instances, each with the table's key."""
    if kernel.instances:
        return [(name, f"{kernel.key}.instances[{number}]") for number, name in enumerate(kernel.instances)]
    return [(kernel.function, kernel.key)]
