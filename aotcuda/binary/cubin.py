"""Read cubins: the kernels of one image of machine code.

A cubin is an ELF file: 64-bit, little-endian, machine number 190. NVIDIA publishes no description of its CUDA-specific
parts. The facts below were observed in the output of NVRTC 12.4 (ELF ABI version 7), and of NVRTC and nvJitLink
13.0 (ABI version 8). The tests compare every number with cuobjdump, whose terms are used here.

- The compute capability is in `e_flags`: bits 8 to 15 from ABI version 8 on, bits 0 to 7 before. An `a` target sets
  bit 11 of the older flags; newer cubins have it in `.nv.compat`. An `f` target appears only in the options of the
  assembler in `.note.nv.tkinfo`.
- Every function is a symbol of type FUNC with a section `.text.<name>`; bit 4 of `st_other` marks kernels.
- `.nv.shared.<kernel>` is as large as the kernel's static shared memory; from compute capability 9.0 on that may
  include 1 KiB that CUDA reserves. `.nv.constant<bank>.<kernel>` are its constant banks; bank 0 holds the
  parameters. `.nv.constant3` are the constant arrays, which all kernels share.
- `.nv.info` (all functions) and `.nv.info.<kernel>` are lists of attributes: a byte for the form, a byte for the
  name, then a value of two bytes, or for form 4 the length of the value in two bytes and the value.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aotcuda.binary.elf import Elf, NotElfError
from aotcuda.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aotcuda.binary.elf import Symbol

_MACHINE_CUDA = 190
_EXTENSIBLE = 0xFF00  # e_type: ET_EWP
_KERNEL = 0x10  # in `st_other`: STO_CUDA_ENTRY

# Attributes in `.nv.info`, with their names in cuobjdump.
_MAX_THREADS = 0x05  # EIATTR_MAX_THREADS
_REQUIRED_THREADS = 0x10  # EIATTR_REQNTID
_STACK = 0x12  # EIATTR_MIN_STACK_SIZE
_PARAMETER = 0x17  # EIATTR_KPARAM_INFO
_PARAMETERS_SIZE = 0x19  # EIATTR_CBANK_PARAM_SIZE
_REGISTERS = 0x2F  # EIATTR_REGCOUNT
_LARGE_PARAMETER = 0x45  # EIATTR_KPARAM_INFO_V2: sizes that do not fit into the 14 bits of the first version
_ACCELERATOR_TARGET = 0x09  # in `.nv.compat`: EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET
_CONSTANT_BANKS = 18
_FORM_SIZED = 4  # EIFMT_SVAL
_STACK_UNKNOWN = 0xFFFFFFFF


class Parameter(NamedTuple):
    """One word or struct of a kernel's parameter block. A Python argument may have several."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class CubinKernel:
    """A kernel with its resources; all sizes are in bytes.

    Attributes:
        name: Its symbol.
        code: Size of its machine code.
        registers: Registers per thread; cuobjdump's REG.
        shared: Static shared memory per block; cuobjdump's SHARED.
        local: Local memory per thread: stack frames with local arrays and spilled registers; cuobjdump's STACK. None if
            the linker cannot compute it, as for a kernel with recursion.
        constant: The kernel's own constant banks, the sum of cuobjdump's CONSTANT[...] in the kernel's line, and the
            image's constant arrays, which all kernels share, cuobjdump's CONSTANT[3] in the line "Common".
        parameter_bytes: The size of the parameter block.
        parameters: The content of the parameter block, in order.
        max_threads: The maximum of threads in a block that the code allows; None without a limit.
    """

    name: str
    code: int
    registers: int
    shared: int
    local: int | None
    constant: int
    parameter_bytes: int
    parameters: tuple[Parameter, ...]
    max_threads: int | None


@dataclass(frozen=True, kw_only=True)
class Cubin:
    """One image of machine code.

    Attributes:
        arch: Its target: `sm_90`, `sm_90a`.
        kernels: Sorted by name.
        functions: The names of the device functions that other code can link; relocatable images have them.
        variables: The names of the variables that other code can link.
        needed_functions: The names of functions that other code has to define.
        needed_variables: The names of variables that other code has to define.
    """

    arch: str
    kernels: tuple[CubinKernel, ...]
    functions: tuple[str, ...]
    variables: tuple[str, ...] = ()
    needed_functions: tuple[str, ...] = ()
    needed_variables: tuple[str, ...] = ()


def read(data: bytes, where: str) -> Cubin:
    """Read a cubin.

    Args:
        data: The whole file.
        where: Its name in errors.

    Raises:
        ImageError: It is no cubin, or was truncated or altered.
    """
    try:
        elf = Elf(data, machine=_MACHINE_CUDA)
        kernels = sorted(_kernels(elf), key=lambda kernel: kernel.name)
        functions = [function for function in elf.functions if not function.other & _KERNEL]
        return Cubin(
            arch=_arch(elf),
            kernels=tuple(kernels),
            functions=_names(functions, is_defined=True),
            variables=_names(elf.variables, is_defined=True),
            needed_functions=_names(functions, is_defined=False),
            needed_variables=_names(elf.variables, is_defined=False),
        )
    except NotElfError as error:
        message = f"{where} is not a cubin: {error}"
    except (struct.error, ValueError):
        message = f"{where} cannot be read as a cubin; it was truncated or altered"
    raise ImageError(message)


def _names(symbols: Iterable[Symbol], *, is_defined: bool) -> tuple[str, ...]:
    """Return the names of global symbols, sorted."""
    return tuple(sorted({item.name for item in symbols if item.is_global and item.is_defined == is_defined}))


def is_closed(data: bytes, where: str) -> bool:
    """Return True if a cubin can be linked with others and has kernels only, which linking does not change.

    Functions other than kernels, such as ptxas's replacements for instructions that a GPU lacks, need registers for
    calls by the ABI. With recursion, linking loses the size of the stack. For a kernel with dynamic shared memory
    alone, nvlink 13.0 loses the size that GPUs from sm_90 on reserve.

    Raises:
        ImageError: As for `read`.
    """
    records = read(data, where).kernels
    kernels = {kernel.name.encode() for kernel in records}
    elf = Elf(data, machine=_MACHINE_CUDA)
    code = {name.removeprefix(b".text.") for name in elf.sections if name.startswith(b".text.")}
    shared = [elf.sections.get(b".nv.shared." + name) for name in kernels]
    is_lost = any(section is not None and not section.size for section in shared)
    is_lost = is_lost or any(kernel.local is None for kernel in records)
    return elf.type == _EXTENSIBLE and code == kernels and not is_lost


def _arch(elf: Elf) -> str:
    if elf.abi_version < 8:
        return f"sm_{elf.flags & 0xFF}{'a' if elf.flags & 0x800 else ''}"
    number = elf.flags >> 8 & 0xFF
    compat = dict(_attributes(elf.content(".nv.compat")))
    if compat.get(_ACCELERATOR_TARGET, b"")[:1] == b"\1":
        return f"sm_{number}a"
    if re.search(rb"-arch[ =]sm_%df\b" % number, elf.content(".note.nv.tkinfo")):
        return f"sm_{number}f"
    return f"sm_{number}"


def _kernels(elf: Elf) -> Iterator[CubinKernel]:
    """Yield each kernel, from the sections with its name."""
    registers: dict[int, int] = {}
    stacks: dict[int, int] = {}
    for attribute, value in _attributes(elf.content(".nv.info")):
        if attribute in (_REGISTERS, _STACK):
            symbol, number = struct.unpack("<II", value)
            (registers if attribute == _REGISTERS else stacks)[symbol] = number
    arrays = elf.size(".nv.constant3")
    for function in {function.name: function for function in elf.functions if function.other & _KERNEL}.values():
        info = elf.content(f".nv.info.{function.name}")
        parameter_bytes, parameters, max_threads = _launch_attributes(info)
        stack = stacks.get(function.number, 0)
        yield CubinKernel(
            name=function.name,
            code=elf.size(f".text.{function.name}"),
            registers=registers.get(function.number, 0),
            shared=elf.size(f".nv.shared.{function.name}"),
            local=None if stack == _STACK_UNKNOWN else stack,
            constant=arrays + sum(elf.size(f".nv.constant{bank}.{function.name}") for bank in range(_CONSTANT_BANKS)),
            parameter_bytes=parameter_bytes,
            parameters=parameters,
            max_threads=max_threads,
        )


def _launch_attributes(info: bytes) -> tuple[int, tuple[Parameter, ...], int | None]:
    """Return the size of the parameter block, its parameters, and the maximum of threads in a block."""
    parameter_bytes = 0
    parameters = []
    max_threads = None
    for attribute, value in _attributes(info):
        if attribute == _PARAMETERS_SIZE:
            (parameter_bytes,) = struct.unpack("<H", value)
        elif attribute == _PARAMETER:
            ordinal, offset, bits = struct.unpack("<4xHHI", value)
            parameters.append(Parameter(ordinal, offset, bits >> 18))
        elif attribute == _LARGE_PARAMETER:
            parameters.append(Parameter(*struct.unpack("<4xHHHxx", value)))
        elif attribute in (_MAX_THREADS, _REQUIRED_THREADS):
            max_threads = math.prod(struct.unpack("<III", value))
    return parameter_bytes, tuple(sorted(parameters)), max_threads


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield name and value of each attribute in a section."""
    position = 0
    while position < len(info):
        form, name, size = struct.unpack_from("<BBH", info, position)
        start, length = (position + 4, size) if form == _FORM_SIZED else (position + 2, 2)
        yield name, info[start : start + length]
        position = start + length
