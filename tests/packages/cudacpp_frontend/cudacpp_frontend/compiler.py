"""Compiling: the whole file, once for each kernel and capability. What comes out is the same and linked once."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput
from aotcuda.builder.link import nvrtc
from aotcuda.errors import CompileError, SourceError
from cuda.bindings import nvrtc as bindings
from cudacpp_frontend.tables import SCALARS


@dataclass(frozen=True)
class File:
    """A file, and where its headers are."""

    item: LinkInput
    folders: tuple[str, ...]


def prepare(root):
    """There is nothing to warm up."""
    _, major, minor = bindings.nvrtcVersion()
    return {"nvrtc": f"{major}.{minor}"}


def include_dirs():
    """None beside the toolkit's and the file's own."""
    return []


def load(unit, root):
    """The file."""
    path = Path(root, unit.path)
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"{unit.key}: {unit.path} cannot be read ({error.strerror}); name a file of the project"
        raise SourceError(message) from None
    item = LinkInput(kind="cu", name=unit.path, data=data, folder=str(path.resolve().parent))
    return File(item, tuple(str(Path(root, folder)) for folder in unit.options.include_dirs))


def sources(unit, loaded, root):
    """The file, which the build depends on with the headers that it includes."""
    return (loaded.item,)


def resolve(unit, loaded):
    """The kernel has to be there."""
    if not re.search(rf"__global__[^;{{]*\b{unit.name}\s*\(".encode(), loaded.item.data):
        message = f"{unit.key}: {unit.path} declares no kernel {unit.name}; write extern \"C\" __global__ void {unit.name}"
        raise SourceError(message)
    return _signature(unit)


def compile_kernel(unit, loaded, target):
    """LTOIR of the file, and how the kernel takes what the table says."""
    os.chdir("/")  # NVRTC writes the current folder into what it makes
    lto = not unit.options.debug
    try:
        code = nvrtc.compile_source(loaded.item, target, unit.options, loaded.folders, lto=lto)
    except CompileError as error:
        message = f"{unit.key}: {error}"
        raise CompileError(message) from None
    _check_declaration(unit, loaded, target)
    layout, parameters, end = [], [], 0
    for parameter in unit.parameters:
        code_of, _, dtype = SCALARS[parameter.scalar]
        size = 8 if parameter.pointer else struct.calcsize(code_of)
        offset = -(-end // size) * size
        end = offset + size
        layout.append((offset, size))
        described = {"name": parameter.name, "type": parameter.notation, "offset": offset}
        if parameter.pointer:
            described |= {"kind": "array", "dtype": dtype, "ndim": 1, "layout": "C", "words": ["data"]}
            described["readonly"] = parameter.const
        else:
            described |= {"kind": "scalar", "format": code_of}
        parameters.append(described)
    return CompiledKernel(
        code=(LinkInput(kind="ltoir" if lto else "ptx", name=unit.path, data=code),),
        needed=(),
        signature=_signature(unit),
        parameters=tuple(parameters),
        parameter_bytes=end,
        layout=tuple(layout),
        cooperative=False,
        launch_bounds=(),
        carveout=None,
    )


def _check_declaration(unit, loaded, target):
    """Declared once more as the table says; two functions with C linkage cannot share a name."""
    declared = ", ".join(f"{parameter.spelling} {parameter.name}" for parameter in unit.parameters)
    probe = f'\nextern "C" __global__ void {unit.name}({declared});\n'
    again = replace(loaded.item, data=loaded.item.data + probe.encode())
    try:
        nvrtc.compile_source(again, target, unit.options, loaded.folders, lto=False)
    except CompileError:
        message = f"{unit.key}: {unit.path} declares {unit.name} with other parameters than ({declared}); make them agree"
        raise CompileError(message) from None


def _signature(unit):
    return f"void({', '.join(parameter.notation for parameter in unit.parameters)})"
