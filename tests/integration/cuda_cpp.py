"""NVIDIA's compiler and linker, to compare their output with that of a build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuda.bindings import nvjitlink, nvrtc

if TYPE_CHECKING:
    from collections.abc import Mapping


def compile_source(source: str, form: str, *options: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Compile CUDA C++ into `form`: `PTX`, `LTOIR` or `CUBIN`."""
    given = headers or {}
    _, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        b"test.cu",
        len(given),
        [text.encode() for text in given.values()],
        [name.encode() for name in given],
    )
    flags = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * max(size, 2)  # NVRTC writes into it; Python shares bytes objects of length 1
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    assert log[:size].rstrip(b"\x00") == b"", log.decode()
    _, size = getattr(nvrtc, f"nvrtcGet{form}Size")(program)
    code = b" " * size
    getattr(nvrtc, f"nvrtcGet{form}")(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code


def link(inputs: list[tuple[str, bytes]], *options: str) -> bytes:
    """Link `inputs`, pairs of a kind (`LTOIR`, `FATBIN`) and its bytes, by nvJitLink: a cubin, or PTX with `-ptx`."""
    handle = nvjitlink.create(len(options), list(options))
    try:
        for kind, data in inputs:
            nvjitlink.add_data(handle, getattr(nvjitlink.InputType, kind), data, len(data), "input")
        try:
            nvjitlink.complete(handle)
        finally:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            assert bytes(log).rstrip(b"\x00") == b"", log.decode()
        form = "ptx" if "-ptx" in options else "cubin"
        result = bytearray(getattr(nvjitlink, f"get_linked_{form}_size")(handle))
        getattr(nvjitlink, f"get_linked_{form}")(handle, result)
        return bytes(result)
    finally:
        nvjitlink.destroy(handle)


_FUNCTION = re.compile(r"\.func\s*(?:\(([^)]*)\))?\s*(\w+)\s*\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+((?:\.align\s+\d+\s+)?\.\w+)\s+\w+((?:\[\d+\])?)")


def prototypes(ptx: str) -> dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """Return for every function in PTX how its results and parameters are passed."""
    return {
        name: (_PARAMETER.findall(result), _PARAMETER.findall(parameters))
        for result, name, parameters in _FUNCTION.findall(ptx)
    }


def entries(ptx: str) -> dict[str, str]:
    """Return the text of every kernel in PTX, its directives and code, by name."""
    parts = re.split(r"^\.visible \.entry (\w+)\(", ptx, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
