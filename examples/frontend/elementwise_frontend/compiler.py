"""Compile a formula: write it as a kernel in CUDA C++, and compile the kernel by NVRTC."""

import os
import re
import struct
from dataclasses import replace
from pathlib import Path

from cuda.bindings import nvrtc as bindings

from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput, ParameterBlock
from aotcuda.builder.link import nvrtc
from aotcuda.errors import SourceError
from elementwise_frontend.tables import TYPES

KERNEL = """\
extern "C" __global__ void {symbol}({parameters}, long long n)
{{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
#line {line} "{path}"
        {target}[i] = {formula};
}}
"""


class Elementwise:
    """The methods that every front end has, and `sources`, since its sources are files."""

    def prepare(self, session):
        """Return the version of NVRTC. There is nothing to import or to warm up."""
        self.root = session.root
        _, major, minor = bindings.nvrtcVersion()
        return {"nvrtc": f"{major}.{minor}"}

    def load(self, unit):
        """Return the file of formulas, in which the unit's formula is."""
        path = Path(self.root, unit.path)
        try:
            return LinkInput(kind="cu", name=unit.path, data=path.read_bytes(), folder=str(path.resolve().parent))
        except OSError as error:
            message = f"{unit.key}: {unit.path} cannot be read ({error.strerror}); name a file of the project"
            raise SourceError(message) from None

    def resolve(self, unit, loaded):
        """Yield the unit with the kernel's signature; raise SourceError if the file lacks the formula."""
        yield unit, _signature(unit, loaded)

    def compile_unit(self, unit, loaded, targets):
        """Return the kernel for each target."""
        return {target: _kernel(unit, loaded, target) for target in targets}

    def sources(self, unit, loaded):  # noqa: ARG002 (other front ends have several files)
        """Return the file of formulas: builds depend on it, and the JIT fallback compiles it."""
        return (loaded,)


FRONT_END = Elementwise()


def _signature(unit, loaded):
    _, names, _ = _formula(unit, loaded)
    return f"void({', '.join(_notation(unit, name) for name in names)})"


def _kernel(unit, loaded, target):
    """Return the kernel as LTOIR, or as PTX in a debug build, with the layout of its parameters."""
    os.chdir("/")  # NVRTC writes the current folder into its output
    line, names, formula = _formula(unit, loaded)
    c_type, form, dtype = TYPES[unit.type]
    parameters, places, end = [], [], 0
    for name in names:
        is_array = name.endswith("[]")
        size = 8 if is_array else struct.calcsize(form)
        offset = -(-end // size) * size
        end = offset + size
        places.append((offset, size))
        parameter = {"name": name.removesuffix("[]"), "type": _notation(unit, name), "offset": offset}
        parameter |= {"kind": "buffer", "dtype": dtype} if is_array else {"kind": "scalar", "format": form}
        parameters.append(parameter | ({"readonly": True} if is_array and parameters else {}))
    offset = -(-end // 8) * 8  # of n: launches fill it with the number of the result's elements
    parameters[0]["sizes"] = [{"name": "n", "type": "int64", "word": "items", "format": "q", "offset": offset}]
    arrays = {name.removesuffix("[]") for name in names[1:] if name.endswith("[]")}
    elements = re.sub(r"[A-Za-z_]\w*", lambda word: f"{word[0]}[i]" if word[0] in arrays else word[0], formula)
    text = KERNEL.format(
        symbol=unit.symbol,
        parameters=", ".join(_declared(c_type, name, at) for at, name in enumerate(names)),
        line=line,
        path=unit.path,
        target=names[0][:-2],
        formula=elements,
    )
    code = nvrtc.compile_source(
        replace(loaded, data=text.encode()), target, unit.options, [], lto=not unit.options.debug
    )
    return CompiledKernel(
        code=(LinkInput(kind="ptx" if unit.options.debug else "ltoir", name=unit.symbol, data=code),),
        signature=_signature(unit, loaded),
        parameters=tuple(parameters),
        parameter_block=ParameterBlock(size=offset + 8, layout=(*places, (offset, 8))),
    )


def _formula(unit, loaded):
    """Return a formula's line number, the names of its parameters (`x[]` for an array), and its expression.

    The first parameter is the result.
    """
    for line, text in enumerate(loaded.data.decode().splitlines(), 1):
        found = re.fullmatch(rf"\s*{unit.name}\s*\((\s*\w+\[\](?:\s*,\s*\w+(?:\[\])?)*)\s*\)\s*=\s*(.+)", text)
        if found:
            return line, [name.strip() for name in found[1].split(",")], found[2]
    message = f"{unit.key}: {unit.path} has no formula {unit.name}; write {unit.name}(out[], x[]) = ..."
    raise SourceError(message)


def _notation(unit, name):
    return f"{unit.type}[...]" if name.endswith("[]") else unit.type


def _declared(c_type, name, at):
    return f"{'const ' if at else ''}{c_type} *{name[:-2]}" if name.endswith("[]") else f"{c_type} {name}"
