"""Link a module's parts into one image for each target, by nvJitLink."""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cuda.bindings import nvjitlink

from aotcuda.arch import Target
from aotcuda.binary import cubin, fatbin
from aotcuda.builder.config import nvrtc_options
from aotcuda.builder.frontends import error_table
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import images, kernel_swap, nvrtc, translation_units
from aotcuda.builder.plan import toolchain
from aotcuda.common import gpu_facts
from aotcuda.errors import CompileError, LinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from aotcuda.builder.config.model import Options

_KINDS = {
    "ltoir": nvjitlink.InputType.LTOIR,
    "ptx": nvjitlink.InputType.PTX,
    "cubin": nvjitlink.InputType.CUBIN,
    "fatbin": nvjitlink.InputType.FATBIN,
    "object": nvjitlink.InputType.OBJECT,
    "library": nvjitlink.InputType.LIBRARY,
}

# nvJitLink's own option has the levels 0 and 3; those between are the assembler's.
_OPTIMISATION = {0: ["-O0"], 1: ["-Xptxas=-O1"], 2: ["-Xptxas=-O2"], 3: []}


def version() -> str:
    """Return the linker's version."""
    return gpu_facts.dotted(number())


def number() -> tuple[int, int]:
    """Return the linker's version, `(13, 0)`."""
    major, minor = nvjitlink.version()
    return major, minor


def hint_to_link(name: str) -> str:
    """Return the hint for a function that is called and exported by module `name` of the same wheel."""
    return (
        f'which is a function of {name}, a module of this wheel that is not linked; add {{ module = "{name}" }} to link'
    )


def link(
    module: str,
    inputs: Iterable[LinkInput],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    other_modules: Mapping[str, str] = MappingProxyType({}),
    *,
    extra_arguments: Sequence[str] = (),
    explain: bool = True,
) -> tuple[bytes, dict[str, int]]:
    """Link `inputs` into a cubin (for `sm_*`) or one PTX text (for `compute_*`).

    Equal inputs are linked once. CUDA C++ is compiled first.

    Args:
        module: The module's name, for errors.
        inputs: The link inputs.
        target: The target.
        options: The module's options.
        include_dirs: Folders with headers for CUDA C++.
        other_modules: The module of each function that the wheel's other modules export, for an error's hint.
        extra_arguments: Further arguments of the linker.
        explain: Explain the linker's log in errors; otherwise errors have the log.

    Returns:
        The image, and the bytes of spilled registers by symbol (see `spilled_bytes`), which are empty for PTX.

    Raises:
        LinkError: The linker refuses; the message has its log.
        CompileError: A CUDA C++ input does not compile.
    """
    items = unique(inputs)
    lto = any(item.kind == "ltoir" for item in items)
    if lto and options.fma is not False and (unfused := {name for item in items for name in item.unfused}):
        return _partly_unfused(module, items, target, options, include_dirs, other_modules, unfused)
    try:
        compiled = [_compile(item, target, options, include_dirs, lto=lto) for item in items]
    except CompileError as error:
        message = f"{module}: {error}"
        raise CompileError(message) from None
    as_ptx = target.kind == "ptx"
    other = next((item for item in compiled if not _is_ltoir(item)), None)
    if as_ptx and other is not None:
        message = (
            f"{module}: {target} cannot be built, because {other.name} ({other.kind}) is linked and only LTOIR can be "
            "turned into PTX; list sm_* targets alone (a debug build has no PTX either)"
        )
        raise LinkError(message)
    arguments = [*_arguments(target, options, lto=lto, has_cpp=any(map(_is_cpp, items))), *extra_arguments]
    with _linker(arguments) as handle:
        try:
            for item in compiled:
                try:
                    nvjitlink.add_data(handle, _KINDS[item.kind], item.data, len(item.data), item.name)
                except nvjitlink.nvJitLinkError:
                    if _log(handle):
                        raise
                    message = (
                        f"{_failure(module, target)}: {item.name} has other content than its suffix says; make it again"
                    )
                    raise LinkError(message) from None
            nvjitlink.complete(handle)
            # With PTX inputs the linker may print an error and still report success.
            log = _log(handle)
            if "error" in log.lower():
                raise LinkError(_explain(module, target, log, items, other_modules) if explain else log)
            if not as_ptx:
                report = _read(handle, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
                return _cubin(handle), spilled_bytes(report.rstrip(b"\x00").decode(errors="replace"))
            text = _read(handle, nvjitlink.get_linked_ptx_size, nvjitlink.get_linked_ptx)
        except nvjitlink.nvJitLinkError as error:
            log = _log(handle)
            if not as_ptx and _DEVICE_LAUNCH.decode() in log and (runtime := _device_runtime(items)):
                return link(
                    module,
                    [*items, runtime],
                    target,
                    options,
                    include_dirs,
                    other_modules,
                    extra_arguments=extra_arguments,
                )
            problem = _explain(module, target, log or str(error), items, other_modules) if explain else log
            raise LinkError(problem) from None
    if _DEVICE_LAUNCH in text:
        message = (
            f"{module}: {target} cannot be built, because a kernel launches kernels, which needs machine code "
            "of NVIDIA's device runtime; list sm_* targets alone"
        )
        raise _DeviceLaunchError(message)
    return images.lower_ptx_version(text.rstrip(b"\x00 \n") + b"\n", functools.partial(_assembled, target)), {}


class _DeviceLaunchError(LinkError):
    """The target is PTX, and kernels launch kernels."""


_DEVICE_LAUNCH = b"cudaCDP2"
"""A part of the names of functions in libcudadevrt.a, which kernels that launch kernels call."""


def _device_runtime(items: Sequence[LinkInput]) -> LinkInput | None:
    """Return the toolkit's device runtime, which nvcc links for kernels that launch kernels; None if it is linked."""
    name = "libcudadevrt.a"
    if any(item.name == name for item in items):
        return None
    folders = [Path(path).parent / lib for path in toolchain.include_dirs() for lib in ("lib", "lib64", "lib/x64")]
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    return LinkInput(kind="library", name=name, data=path.read_bytes()) if path else None


def _partly_unfused(
    module: str,
    items: Sequence[LinkInput],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    other_modules: Mapping[str, str],
    names: Collection[str],
) -> tuple[bytes, dict[str, int]]:
    """Link inputs whose kernels `names` have no fused multiply-adds: as PTX with both options, then assemble."""
    other = next((item for item in items if not _is_ltoir(item) and item.kind != "cu"), None)
    if other is not None:
        message = (
            f"{module}: {other.name} ({other.kind}) is linked, so one kernel cannot have another fma; write "
            f"fma = false in the options of {module}"
        )
        raise LinkError(message)
    fused_items = [replace(item, unfused=()) for item in items]
    ptx = Target("ptx", target.major, target.minor, target.suffix)
    try:
        fused, unfused = [
            link(module, fused_items, ptx, replace(options, fma=fma), include_dirs, other_modules)[0].decode()
            for fma in (options.fma, False)
        ]
    except _DeviceLaunchError:
        message = (
            f"{module}: a kernel launches kernels, so one kernel cannot have another fma; write fma = false in "
            f"the options of {module}, or move one of the two kernels to another module"
        )
        raise LinkError(message) from None
    try:
        text = kernel_swap.swap_kernels(fused, unfused, names).encode()
    except LinkError as error:
        message = f"{module}: {error}"
        raise LinkError(message) from None
    if target.kind == "ptx":
        return images.lower_ptx_version(text, functools.partial(_assembled, target)), {}
    code = LinkInput(kind="ptx", name=f"code of {module}", data=text)
    return link(module, [code], target, options, include_dirs, other_modules)


def relocatable(
    module: str,
    inputs: Iterable[LinkInput],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    other_modules: Mapping[str, str] = MappingProxyType({}),
) -> tuple[bytes, dict[str, int]]:
    """Link LTOIR into a cubin that `link` accepts; empty if the image would be worse than one from a single link.

    With `-c`, ptxas calls its own functions (division, sines of large numbers) by the ABI, which takes registers.
    `-ewp` optimises the code as a whole program and can still be linked, but drops symbols that other code needs, which
    `is_closed` detects.
    """
    extra_arguments = ["-Xptxas=--extensible-whole-program"]
    data, spills = link(module, inputs, target, options, include_dirs, other_modules, extra_arguments=extra_arguments)
    return (data, spills) if cubin.is_closed(data, f"{module} for {target}") else (b"", {})


def _assembled(target: Target, text: bytes) -> bytes | None:
    """Return the machine code of PTX for its own target; None if the assembler refuses it."""
    with _linker([f"-arch=sm_{target.number}"]) as handle, suppress(nvjitlink.nvJitLinkError):
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "image")
        nvjitlink.complete(handle)
        return None if "error" in _log(handle).lower() else _cubin(handle)
    return None


def unresolved(
    inputs: Sequence[LinkInput], names: Iterable[str], target: Target, options: Options, include_dirs: Sequence[str]
) -> list[str]:
    """Return functions that linked code needs and that nothing defines, if a kernel uses the functions `names` of it.

    LTOIR hides its names. A link with a kernel that takes the addresses of functions reports missing ones.
    """
    functions = sorted(names)
    lines = [".version 7.8", f".target sm_{target.number}", ".address_size 64"]
    lines += [f".extern .func {name} ();" for name in functions]
    lines += [".visible .entry aotcuda_probe(.param .u64 p) {", ".reg .b64 %a, %b;", "ld.param.u64 %a, [p];"]
    lines += [line for name in functions for line in (f"mov.u64 %b, {name};", "st.global.u64 [%a], %b;")]
    probe = LinkInput(kind="ptx", name="probe", data="\n".join([*lines, "ret;", "}", ""]).encode())
    try:
        link("probe", [*inputs, probe], target, options, include_dirs, explain=False)
    except LinkError as error:
        return list(dict.fromkeys(_UNRESOLVED.findall(str(error))))
    return []


def unique(inputs: Iterable[LinkInput]) -> list[LinkInput]:
    """Return each input once; inputs that differ only in `pieces` and `unfused` become one, with all of both."""
    items: dict[tuple[str, bytes, str], LinkInput] = {}
    pieces: dict[tuple[str, bytes, str], dict[str, bytes]] = {}
    unfused: dict[tuple[str, bytes, str], dict[str, None]] = {}
    for item in inputs:
        items.setdefault(item.identity, item)
        pieces.setdefault(item.identity, {}).update(item.pieces)
        unfused.setdefault(item.identity, {}).update(dict.fromkeys(item.unfused))
    return [
        replace(item, pieces=tuple(pieces[key].items()), unfused=tuple(unfused[key])) for key, item in items.items()
    ]


def _arguments(target: Target, options: Options, *, lto: bool, has_cpp: bool) -> list[str]:
    """Return the linker's arguments for a target and the options of a module."""
    as_ptx = target.kind == "ptx"
    arguments = [f"-arch={'compute' if as_ptx else 'sm'}_{target.number}"]
    arguments += ["-lto"] if lto else []
    arguments += ["-ptx"] if as_ptx else ["-verbose"]  # the log then has the spilled registers
    arguments += _OPTIMISATION[options.opt_level]
    arguments += [f"-maxrregcount={options.max_registers}"] if options.max_registers else []
    arguments += ["-lineinfo"] if options.lineinfo else []
    arguments += ["-g"] if options.debug and not as_ptx else []
    arguments += _generation(options, has_cpp=has_cpp)
    return arguments


def _generation(options: Options, *, has_cpp: bool) -> list[str]:
    """Return the arguments for the options of a module.

    Without CUDA C++ among the inputs, `nvrtc-options` have no effect, and fast math is in the compiler's code.
    """
    arguments = [] if options.fma is None else [f"-fma={int(options.fma)}"]
    if has_cpp:
        arguments += ["-ftz=1", "-prec-div=0", "-prec-sqrt=0"] if options.fastmath else []
        arguments += [
            argument for option in nvrtc_options.read(options.nvrtc_options) for argument in option.for_linker()
        ]
    return arguments


def _is_cpp(item: LinkInput) -> bool:
    """Return True for CUDA C++ of the project, compiled or not: its inputs have the file's name."""
    return item.name.endswith(".cu") and not item.internal


def _is_ltoir(item: LinkInput) -> bool:
    """Return True if `item` contains LTOIR."""
    return item.kind == "ltoir" or (
        item.kind == "fatbin" and any(entry.kind == "ltoir" for entry in fatbin.read(item.data, item.name))
    )


def _compile(item: LinkInput, target: Target, options: Options, include_dirs: Sequence[str], *, lto: bool) -> LinkInput:
    if item.kind != "cu":
        return item
    item = replace(item, data=item.data + b"".join(data for _, data in item.pieces), pieces=())
    code = nvrtc.compile_source(item, target, options, include_dirs, lto=lto)
    return replace(item, kind="ltoir" if lto else "ptx", data=code)


@contextmanager
def _linker(arguments: list[str]) -> Iterator[int]:
    handle = nvjitlink.create(len(arguments), arguments)
    try:
        yield handle
    finally:
        nvjitlink.destroy(handle)


def _read(handle: int, size: Callable[[int], int], get: Callable[[int, bytearray], object]) -> bytes:
    buffer = bytearray(size(handle))
    if buffer:
        get(handle, buffer)
    return bytes(buffer)


def _cubin(handle: int) -> bytes:
    return _read(handle, nvjitlink.get_linked_cubin_size, nvjitlink.get_linked_cubin)


def _log(handle: int) -> str:
    log = _read(handle, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
    return log.rstrip(b"\x00").decode(errors="replace").strip()


_SPILLED = re.compile(
    r"Function properties for (\S+)\n[^\n]*?(\d+) bytes spill stores, (\d+) bytes spill loads", re.ASCII
)
"""As ptxas writes it for each function under `--verbose`."""


def spilled_bytes(log: str) -> dict[str, int]:
    """Return by symbol the bytes of spill stores and loads in a function's code.

    A function that is called and not inlined has its own entry.
    """
    return {name: int(stores) + int(loads) for name, stores, loads in _SPILLED.findall(log)}


_UNRESOLVED = re.compile(r"(?:Unresolved extern function|Undefined reference to) '([^']+)'")
_MANGLED = re.compile(r"'(_Z\w+)'")


def _explain(
    module: str, target: Target, log: str, items: Sequence[LinkInput], other_modules: Mapping[str, str]
) -> str:
    head = _failure(module, target)
    if (match := _UNRESOLVED.search(log)) and match[1] in other_modules:
        return f"{head}: it calls {match[1]}, {hint_to_link(other_modules[match[1]])}"
    log = _MANGLED.sub(lambda name: f"'{translation_units.plain_name(name[1])} ({name[1]})'", log)
    # Only the project's LTOIR can be too new; the toolchain's own inputs are named "code of ..." or by their .cu file.
    names = [item.name for item in items if item.kind == "ltoir" and not item.name.startswith("code of ")]
    return error_table.explain(head, log, ", ".join(names) if re.search(error_table.NEWER_LTOIR, log) else "")


def _failure(module: str, target: Target) -> str:
    return f"{module}: linking for {target} failed"
