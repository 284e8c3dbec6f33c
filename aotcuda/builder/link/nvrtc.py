"""CUDA C++ source to LTOIR or PTX, by NVRTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.bindings import nvrtc

from aotcuda.builder import toolchain
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput


def compile_source(
    source: LinkInput, target: Target, options: Options, include_dirs: Sequence[str], *, lto: bool
) -> bytes:
    """Compile one source for one target, as relocatable device code.

    Raises:
        CompileError: The compiler refuses it; the message is the compiler's own, with file and line.
    """
    arguments = [f"--gpu-architecture={'compute' if lto else 'sm'}_{target.number}", "--relocatable-device-code=true"]
    arguments += ["--dlink-time-opt"] if lto else []
    folders = [source.folder] if source.folder else []
    arguments += [f"--include-path={path}" for path in (*folders, *include_dirs, *toolchain.include_dirs())]
    arguments += [f"--define-macro={name}={value}" if value else f"-D{name}" for name, value in options.defines]
    arguments += ["--use_fast_math"] if options.fastmath else []
    arguments += ["--generate-line-info"] if options.lineinfo and not source.internal else []
    arguments += ["--device-debug"] if options.debug and not source.internal else []
    arguments += list(options.nvrtc_options)
    _, program = nvrtc.nvrtcCreateProgram(source.data, source.name.encode(), 0, [], [])
    try:
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
        return code[:size]
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _room(size: int) -> bytes:
    """Bytes for NVRTC to write into; never a single one, of which Python has one object for each value."""
    return b" " * max(size, 2)
