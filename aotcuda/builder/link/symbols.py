"""Read the names that a link input defines and needs, to find missing and repeated symbols before the link.

nvJitLink 13.0 crashes if PTX or cubins define one symbol twice, and silently uses one of the definitions if LTOIR and
PTX do. It makes variables zero that nothing defines.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.binary import cubin, fatbin
from aotcuda.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """The symbols that an input defines for others, and needs from others.

    Attributes:
        functions: The functions and kernels that it defines, other than weak ones.
        variables: The variables that it defines, other than weak ones.
        weak: The functions that several inputs may define.
        weak_variables: The variables that several inputs may define.
        needed_functions: The functions and kernels that it needs, other than CUDA's own.
        needed_variables: The variables that it needs.
        sizes: The bytes of variables in PTX, by name.
        complete: True if all symbols are known; those of LTOIR are not.
        archs: The targets of the input's code, `compute_*` for PTX and LTOIR; empty for source code.
    """

    functions: tuple[str, ...]
    variables: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    weak_variables: tuple[str, ...] = ()
    needed_functions: tuple[str, ...] = ()
    needed_variables: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    complete: bool = True
    archs: tuple[str, ...] = ()

    @property
    def defined(self) -> frozenset[str]:
        """Return all names that it defines."""
        return frozenset((*self.functions, *self.variables, *self.weak, *self.weak_variables))

    @property
    def needed(self) -> frozenset[str]:
        """Return all names that it needs."""
        return frozenset((*self.needed_functions, *self.needed_variables))


def join(parts: Iterable[Symbols]) -> Symbols:
    """Return the symbols of several parts as those of one input, which needs what no part defines."""
    parts = list(parts)
    defined = {name for part in parts for name in part.defined}

    def names(attribute: str) -> list[str]:
        return sorted({name for part in parts for name in getattr(part, attribute)})

    return Symbols(
        functions=tuple(names("functions")),
        variables=tuple(names("variables")),
        weak=tuple(names("weak")),
        weak_variables=tuple(names("weak_variables")),
        needed_functions=tuple(name for name in names("needed_functions") if name not in defined),
        needed_variables=tuple(name for name in names("needed_variables") if name not in defined),
        complete=all(part.complete for part in parts),
        archs=tuple(dict.fromkeys(arch for part in parts for arch in part.archs)),
    )


def read_symbols(item: LinkInput, target: Target, options: Options, include_dirs: Sequence[str]) -> Symbols:
    """Return the symbols of `item`; CUDA C++ is compiled to PTX for `target` to find them.

    Raises:
        CompileError: A CUDA C++ source does not compile.
        ImageError: A binary does not match its suffix, or is damaged.
    """
    if item.kind == "cu":
        if item.internal:
            return Symbols(functions=tuple(_in_source(item)))
        from aotcuda.builder.link import nvrtc  # noqa: PLC0415 (the build cache works where no compiler is installed)

        text = nvrtc.compile_source(item, target, options, include_dirs, lto=False)
        return in_ptx(text)
    if item.kind == "ptx":
        numbers = re.findall(r"^\s*\.target\s+sm_(\w+)", _text(item.data), re.MULTILINE)
        if not numbers or not re.search(r"^\s*\.version\s", _text(item.data), re.MULTILINE):
            message = f"{item.name} is no PTX: it lacks .version and .target; make it by nvcc -rdc=true -ptx"
            raise ImageError(message)
        return replace(in_ptx(item.data), archs=tuple(f"compute_{number}" for number in numbers))
    if item.kind == "cubin":
        return _in_cubin(item.data, item.name)
    if item.kind == "fatbin":
        return _in_fatbin(item.data, item.name)
    if item.kind == "object":
        object_symbols = _in_object(item.data, item.name)
        if not object_symbols.archs:
            message = f"{item.name} holds no device code that could be linked; compile its source by nvcc -dc"
            raise ImageError(message)
        return object_symbols
    if item.kind == "library":
        # An archive may have other members than object files.
        members = [_in_object(data, f"{item.name}({name})") for name, data in _members(item) if data.startswith(_ELF)]
        if not any(member.archs for member in members):
            message = (
                f"{item.name} holds no device code in any of its {len(members)} members; compile these by nvcc -dc"
            )
            raise ImageError(message)
        return join(members)
    return Symbols(functions=(), complete=False)


_EXTERN_C = re.compile(rb'extern\s+"C"\s+__device__\s+[\w\s*]+?[\s*](\w+)\s*\(')


def _in_source(item: LinkInput) -> Iterator[str]:
    """Yield the functions of a front end's own source, whose declarations all have one form."""
    for data in (item.data, *(piece for _, piece in item.pieces)):
        yield from (name.decode() for name in _EXTERN_C.findall(data))


# PTX ISA, "Linking Directives", "Kernel and Function Directives" and "State Spaces, Types, and Variables".
_PTX_LINKING = re.compile(
    r"^[ \t]*\.(visible|weak|extern|common)\s+\.(?:(func|entry)\b\s*(?:\.noreturn\s*)?(?:\([^)]*\)\s*)?([\w$]+)"
    r"|(?:global|const)\b[^;={]*?([\w$]+)(?:\[\d*\])*\s*(?=[=;{]))",
    re.MULTILINE,
)
_PTX_SIZE = re.compile(
    r"^[ \t]*\.(?:visible|weak|common)\s+\.(?:global|const)\b"
    r"[^;={]*?\.[bfsu](8|16|32|64)\s+([\w$]+)((?:\[\d+\])*)\s*[=;]",
    re.MULTILINE,
)
_CUDAS_OWN = re.compile(r"vprintf|malloc|free|__assertfail|(?:__)?cuda\w*|__nv\w*")
"""Names that CUDA defines: functions of the driver, and of the device runtime."""


def in_ptx(data: bytes) -> Symbols:
    """Return the symbols of PTX."""
    names: dict[tuple[str, bool], dict[str, None]] = {}
    for linking, function, name, variable in _PTX_LINKING.findall(_text(data)):
        names.setdefault((linking, bool(function)), {})[name or variable] = None

    def found(*keys: tuple[str, bool]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for key in keys for name in names.get(key, ())))

    def foreign(key: tuple[str, bool]) -> tuple[str, ...]:
        return tuple(name for name in found(key) if not _CUDAS_OWN.fullmatch(name))

    return Symbols(
        functions=found(("visible", True)),
        variables=found(("visible", False)),
        weak=found(("weak", True)),
        weak_variables=found(("weak", False), ("common", False)),
        needed_functions=foreign(("extern", True)),
        needed_variables=foreign(("extern", False)),
        sizes=tuple(
            (name, int(bits) // 8 * math.prod(int(extent) for extent in re.findall(r"\d+", extents)))
            for bits, name, extents in _PTX_SIZE.findall(_text(data))
        ),
    )


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _in_cubin(data: bytes, where: str) -> Symbols:
    image = cubin.read(data, where)
    return Symbols(
        functions=(*image.functions, *(kernel.name for kernel in image.kernels)),
        variables=image.variables,
        needed_functions=tuple(name for name in image.needed_functions if not _CUDAS_OWN.fullmatch(name)),
        needed_variables=tuple(name for name in image.needed_variables if not _CUDAS_OWN.fullmatch(name)),
        archs=(image.arch,),
    )


def _in_fatbin(data: bytes, where: str) -> Symbols:
    parts = []
    for entry in fatbin.read(data, where):
        if entry.kind == "sass":
            parts.append(_in_cubin(entry.content, where))
        elif entry.kind == "ptx":
            parts.append(replace(in_ptx(entry.content), archs=(entry.arch,)))
        else:
            archs = (entry.arch.replace("sm_", "compute_"),)
            parts.append(Symbols(functions=(), complete=False, archs=archs))
    return replace(join(parts), archs=tuple(arch for part in parts for arch in part.archs))


def _in_object(data: bytes, where: str) -> Symbols:
    """Return the symbols of a host object made by nvcc, which has a fatbin in a separate section."""
    machine = _machine(data, where)
    if machine == _EM_CUDA:  # a relocatable cubin called .o
        return _in_cubin(data, where)
    start = data.find(fatbin.MAGIC)
    if start < 0:
        return Symbols(functions=())
    end = start
    while data[end : end + 4] == fatbin.MAGIC and end + 16 <= len(data):
        _, header, size = struct.unpack_from("<HHQ", data, end + 4)
        if header < 16 or end + header + size > len(data):
            message = f"{where} is damaged: its device code at byte {end} has no length that could be; make it anew"
            raise ImageError(message)
        end += header + size
    return _in_fatbin(data[start:end], where)


# ELF-64 Object File Format, "ELF Header": e_machine.
_ELF = b"\x7fELF"
_EM_CUDA = 190
_HOSTS = {62: "x86-64", 183: "AArch64"}


def _machine(data: bytes, where: str) -> int:
    """Return the machine of an object file."""
    if not data.startswith(_ELF):
        beginning = "is empty" if not data else f"begins with {data[:4]!r}, not with an ELF header"
        message = f"{where} is no object file: it {beginning}; make it by nvcc -dc"
        raise ImageError(message)
    if len(data) < 64 or data[4:6] != b"\x02\x01":  # ELFCLASS64, ELFDATA2LSB
        how = "is cut short" if len(data) < 64 else "is not for 64-bit little-endian machines"
        message = f"{where} {how}; make it anew by nvcc -dc"
        raise ImageError(message)
    machine, table = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<Q", data, 40)[0]
    entry, count = struct.unpack_from("<HH", data, 58)
    if machine != _EM_CUDA and machine not in _HOSTS:
        message = (
            f"{where} is for a machine ({machine}) that CUDA does not support; compile it by nvcc -dc on this machine"
        )
        raise ImageError(message)
    if table + entry * count > len(data):
        message = f"{where} is cut short: it has {len(data)} bytes of {table + entry * count}; make it anew by nvcc -dc"
        raise ImageError(message)
    return int(machine)


def _members(item: LinkInput) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an `ar` archive: 60-byte headers, size as text at byte 48, data of even length."""
    data = item.data
    if not data.startswith(b"!<arch>\n"):
        message = f"{item.name} is no archive; a static library begins with '!<arch>'"
        raise ImageError(message)
    position = 8
    while position + 60 <= len(data):
        name = data[position : position + 16].decode(errors="replace").strip().rstrip("/")
        digits = data[position + 48 : position + 58].strip()
        if not digits.isdigit():
            message = f"{item.name} is damaged: the size of its member {name!r} is no number; make it anew"
            raise ImageError(message)
        start, end = position + 60, position + 60 + int(digits)
        if end > len(data):
            message = f"{item.name} is cut short: its member {name!r} ends at byte {end} of {len(data)}; make it anew"
            raise ImageError(message)
        if name not in ("", "/SYM64"):
            yield name, data[start:end]
        position = end + end % 2
