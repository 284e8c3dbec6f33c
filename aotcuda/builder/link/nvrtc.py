"""Compile CUDA C++ to LTOIR or PTX by NVRTC."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda.bindings import nvrtc

from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.plan import toolchain
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput


def compile_source(
    source: LinkInput,
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    *,
    lto: bool,
    names: Sequence[str] = (),
) -> bytes:
    """Compile one source for one target, as relocatable device code.

    `names` has the C++ names of kernels; NVRTC instantiates the templates among them.

    Raises:
        CompileError: NVRTC refuses the source; the message is its log, with file and line.
    """
    arguments = [f"--gpu-architecture={'compute' if lto else 'sm'}_{target.number}"]
    arguments += ["--dlink-time-opt"] if lto else []
    code, _ = _compile(source, target, options, include_dirs, arguments, names)
    return code


def describe_source(
    source: LinkInput, target: Target, options: Options, include_dirs: Sequence[str], names: Sequence[str]
) -> tuple[bytes, dict[str, str]]:
    """Compile a source to PTX with full debug information, and return the PTX and the symbols of `names`.

    Raises:
        CompileError: See `compile_source`; lines of a file `__nv_name_map` in the log are about `names`.
    """
    arguments = [f"--gpu-architecture=compute_{target.number}"]
    debug = replace(options, debug=True, lineinfo=False)
    return _compile(source, target, debug, include_dirs, arguments, names)


def _compile(
    source: LinkInput,
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    arguments: list[str],
    names: Sequence[str],
) -> tuple[bytes, dict[str, str]]:
    if end := re.search(rb"[\0\xff]", source.data):
        # NVRTC reads these bytes as the end of the file, and reports success.
        line = source.data[: end.start()].count(b"\n") + 1
        fact = "has a NUL character" if end[0] == b"\0" else "is not UTF-8"
        message = f"{source.name} does not compile for {target}: line {line} {fact}; save the file as UTF-8"
        raise CompileError(message)
    lto = "--dlink-time-opt" in arguments
    arguments = [*arguments, "--relocatable-device-code=true"]
    folders = [source.folder] if source.folder else []
    arguments += [f"--include-path={path}" for path in (*folders, *include_dirs, *toolchain.include_dirs())]
    arguments += [f"--define-macro={name}={value}" if value else f"-D{name}" for name, value in options.defines]
    arguments += ["--use_fast_math"] if options.fastmath else []
    arguments += [f"--fmad={str(options.fma).lower()}"] if options.fma is not None else []
    arguments += ["--generate-line-info"] if options.lineinfo and not source.internal else []
    arguments += ["--device-debug"] if options.debug and not source.internal else []
    arguments += _seed(source)
    arguments += list(options.nvrtc_options)
    included = Headers([source], Path(source.folder or "/"), include_dirs, options)
    with_marks = included.with_byte_order_marks()
    arguments += [f"--include-path={path.parent}" for path in dict.fromkeys(with_marks.values())]
    headers = {name: _without_mark(path.read_bytes()) for name, path in with_marks.items()}
    headers |= _driver_header() if _DRIVER_HEADER in included.others else {}
    data = _without_mark(source.data)
    _, program = nvrtc.nvrtcCreateProgram(
        data, source.name.encode(), len(headers), list(headers.values()), [name.encode() for name in headers]
    )
    try:
        for name in names:
            nvrtc.nvrtcAddNameExpression(program, name.encode())
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [item.encode() for item in arguments])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = _room(size)
            nvrtc.nvrtcGetProgramLog(program, log)
            text = log.rstrip(b"\x00").decode(errors="replace").strip()
            message = f"{source.name} does not compile for {target}: {status.name}\n{text}"
            raise CompileError(message)
        size_of, get = (
            (nvrtc.nvrtcGetLTOIRSize, nvrtc.nvrtcGetLTOIR) if lto else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        )
        _, size = size_of(program)
        code = _room(size)
        get(program, code)
        symbols = {name: nvrtc.nvrtcGetLoweredName(program, name.encode())[1].decode() for name in names}
        return code[:size], symbols
    finally:
        nvrtc.nvrtcDestroyProgram(program)


_DRIVER_HEADER = "cuda.h"


def _driver_header() -> dict[str, bytes]:
    """Return the text of cuda.h for NVRTC, by the header's name: its types, without functions and host headers.

    NVRTC has no headers of the host, and refuses declarations of host functions.
    """
    paths = [Path(folder, _DRIVER_HEADER) for folder in toolchain.include_dirs()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return {}
    text = re.sub(rb"^[ \t]*#[ \t]*include[ \t]*<stdlib\.h>", b"", path.read_bytes(), flags=re.MULTILINE)
    text = re.sub(rb"(#[ \t]*include[ \t]*)<stdint\.h>", rb"\1<cuda/std/cstdint>", text)
    return {_DRIVER_HEADER: re.sub(rb"^[^\n;#]*\bCUDAAPI\b[^;]*;", b"", text, flags=re.MULTILINE)}


def _without_mark(text: bytes) -> bytes:
    """Return a text without byte order marks at the beginning of lines, which NVRTC reads as tokens."""
    return re.sub(rb"^\xef\xbb\xbf", b"", text, flags=re.MULTILINE)


_SEEDED = (12, 9)
"""The first NVRTC that is known to have the option; the JIT fallback may use an older one."""


def _seed(source: LinkInput) -> list[str]:
    """Return the option that determines the names of a file's internal symbols; by default they depend on the process.

    No two files of a link may have equal names, or one file would use the other's variables.
    """
    _, *version = nvrtc.nvrtcVersion()
    seed = hashlib.sha256(source.name.encode() + b"\n" + source.data).hexdigest()[:8]
    return [f"--frandom-seed=0x{seed}"] if tuple(version) >= _SEEDED else []


def _room(size: int) -> bytes:
    """Return a buffer for NVRTC of at least two bytes, since Python shares one object for each single byte."""
    return b" " * max(size, 2)
