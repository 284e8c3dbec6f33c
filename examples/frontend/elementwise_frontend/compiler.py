"""A formula to code: it becomes a kernel in CUDA C++, which NVRTC compiles."""

import os
import re
import struct
from dataclasses import replace
from pathlib import Path

from cuda.bindings import nvrtc as bindings

from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput
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


def prepare(root):
    """There is nothing to warm up; the versions of what compiles."""
    _, major, minor = bindings.nvrtcVersion()
    return {"nvrtc": f"{major}.{minor}"}


def include_dirs():
    """None beside the toolkit's."""
    return []


def load(unit, root):
    """Return the file."""
    path = Path(root, unit.path)
    try:
        return LinkInput(kind="cu", name=unit.path, data=path.read_bytes(), folder=str(path.resolve().parent))
    except OSError as error:
        message = f"{unit.key}: {unit.path} cannot be read ({error.strerror}); name a file of the project"
        raise SourceError(message) from None


def sources(unit, loaded, root):
    """Return the file: builds depend on it, and the JIT fallback compiles it."""
    return (loaded,)


def resolve(unit, loaded):
    """Return the formula has to be there."""
    _, names, _ = _formula(unit, loaded)
    return f"void({', '.join(_notation(unit, name) for name in names)})"


def compile_kernel(unit, loaded, target):
    """Return the kernel as LTOIR, and how it takes its arguments."""
    os.chdir("/")  # NVRTC writes the current folder into what it makes
    line, names, formula = _formula(unit, loaded)
    c_type, form, dtype = TYPES[unit.type]
    parameters, places, end = [], [], 0
    for name in names:
        is_array = name.endswith("[]")
        size = 8 if is_array else struct.calcsize(form)
        offset = -(-end // size) * size
        end = offset + size
        places.append((offset, size))
        described = {"name": name.removesuffix("[]"), "type": _notation(unit, name), "offset": offset}
        described |= {"kind": "buffer", "dtype": dtype} if is_array else {"kind": "scalar", "format": form}
        parameters.append(described | ({"readonly": True} if is_array and parameters else {}))
    offset = -(-end // 8) * 8  # of n, for which no argument is given: it is the number of the result's elements
    parameters[0]["sizes"] = [{"name": "n", "type": "int64", "word": "items", "format": "q", "offset": offset}]
    elements = re.sub(rf"\b({'|'.join(name[:-2] for name in names[1:] if name.endswith('[]'))})\b", r"\1[i]", formula)
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
        needed=(),
        signature=resolve(unit, loaded),
        parameters=tuple(parameters),
        parameter_bytes=offset + 8,
        layout=(*places, (offset, 8)),
        cooperative=False,
        launch_bounds=(),
        carveout=None,
    )


def _formula(unit, loaded):
    """Its line, the names of its parameters (`x[]` for an array; the first is the result), and what it computes."""
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
