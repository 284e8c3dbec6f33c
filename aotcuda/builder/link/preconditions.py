"""Check a link before it is made: missing and repeated symbols, prototypes, architectures."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.arch import Target
from aotcuda.builder import toolchain
from aotcuda.builder.frontends import error_table
from aotcuda.builder.link import nvjitlink, nvrtc, prototypes, symbols
from aotcuda.errors import CompileError, ImageError, LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import External, LinkInput, Unit
    from aotcuda.builder.link.symbols import Symbols

_CUDA_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error: (.+)$", re.MULTILINE)
_NO_HEADER = re.compile(r'cannot open source file "([^"]+)"')
_NO_NAME = re.compile(r'identifier "(\w+)" is undefined')
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")
_HOST_HEADER = re.compile(r"(?:torch|ATen|c10|pybind11)/|Python\.h$|[a-z_]+$|std\w+\.h$")
"""Headers of PyTorch and Python, and those of C++ that have no dot."""

_BUILT_IN = {
    "cstdio": "printf",
    "stdio.h": "printf",
    "assert.h": "assert",
    "cassert": "assert",
    "math.h": "the functions of math.h",
}
_COMPLEX = {"cupy/complex.cuh", "complex.h", "thrust/complex.h"}
_COMPLEX_INSTEAD = "write <cuda/std/complex>, and below it: using cuda::std::complex;"
_INSTEAD = "include its counterpart in <cuda/std/...>, such as <cuda/std/complex>"
_PARTS = "include the parts for device code, such as <cub/block/block_reduce.cuh> in place of <cub/cub.cuh>"
_APART = "move the kernels into a file without host code"
_MOST_ERRORS = 5
"""The number of errors of one file that are printed."""


def survey(
    item: LinkInput,
    externals: Sequence[External],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    asked_by: str,
) -> Symbols:
    """Return the symbols of one input, and compare known prototypes with Python's declarations.

    Errors begin with `asked_by`, the key that links the input.

    Raises:
        CompileError: The input is CUDA C++ and does not compile.
        LinkError: The input is damaged, or defines a function with another prototype than Python declares.
    """
    try:
        found = symbols.read_symbols(item, target, options, include_dirs)
    except ImageError as error:
        message = f"{asked_by}: {error}"
        raise LinkError(message) from None
    except CompileError as error:
        raise not_compiled(item, target, options, include_dirs, asked_by, str(error)) from None
    if item.kind == "cu" and not item.internal:
        declared = [external for external in externals if external.name in found.functions]
        prototypes.check(item, declared, target, options, include_dirs)
    if item.header:
        prototypes.check_header(item, externals, target, options)
    return found


def not_compiled(
    item: LinkInput,
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    asked_by: str,
    said: str,
    names: Sequence[str] = (),
) -> CompileError:
    """Return the error for CUDA C++ that does not compile, with the first target that it compiles for."""
    head, _, log = said.partition("\n")
    found = _cause(log)
    text = found[3].strip().partition(". Consider using")[0] if found else ""
    reason = f"{text} ({found[1]}:{found[2]})" if found else head.rpartition(": ")[2]
    if not found and (row := error_table.find(log)):
        return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {row.fact}; {row.remedy}")
    if advice := _advice(text, found[1] if found else ""):
        return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {reason}; {advice}\n{_first(log)}")
    for capability in toolchain.supported_capabilities():
        if capability <= target.capability:
            continue
        higher = Target("sass", *capability, "")
        try:
            nvrtc.compile_source(item, higher, options, include_dirs, lto=False, names=names)
        except CompileError:
            continue
        remedy = (
            f"; it compiles for {higher}: list that and later ones in arch, or leave the code out for older GPUs by "
            f"#if __CUDA_ARCH__ >= {100 * higher.major + 10 * higher.minor}"
        )
        break
    else:
        name = _NO_NAME.search(text)
        is_macro = name is not None and _MACRO.fullmatch(name[1])
        remedy = f"; if {name[1]} is a macro, give it a value in options.defines" if name and is_macro else ""
    return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {reason}{remedy}\n{_first(log)}")


def _cause(log: str) -> re.Match[str] | None:
    """Find the first error, or its cause: NVRTC reports a parameter's unknown type after errors that follow from it."""
    errors = list(_CUDA_ERROR.finditer(log))
    if errors and errors[0][3].startswith("attribute "):
        return next((error for error in errors if _NO_NAME.search(error[3])), errors[0])
    return errors[0] if errors else None


def _advice(problem: str, where: str) -> str:
    """Return the remedy for code that is written for nvcc: NVRTC has no host headers, and compiles no host code."""
    if found := _NO_HEADER.search(problem):
        return _on_header(found[1], where)
    row = error_table.find(problem)
    if row and "host" in problem and any(Path(where).is_relative_to(folder) for folder in toolchain.include_dirs()):
        return f"a header of the toolkit brings this, which is for nvcc alone; {_PARTS}"
    return row.remedy if row else ""


def _on_header(name: str, where: str) -> str:
    folders = [folder for folder in toolchain.include_dirs() if Path(where).is_relative_to(folder)]
    if folders:
        header = Path(where).relative_to(max(folders, key=len))
        instead = _COMPLEX_INSTEAD if str(header) in _COMPLEX else _INSTEAD
        return f"<{header}> of the toolkit is for nvcc alone; {instead}"
    if name in _COMPLEX:
        return _COMPLEX_INSTEAD
    if name in _BUILT_IN:
        return f"remove it: NVRTC has {_BUILT_IN[name]} without it"
    c_name = f"c{name.removesuffix('.h')}" if name.endswith(".h") else name
    if "/" not in name:
        for folder in toolchain.include_dirs():
            if Path(folder, "cuda", "std", c_name).is_file():
                space = "" if name in {"stdint.h", "cstdint"} else ", and std:: becomes cuda::std::"
                return f"NVRTC has no headers of the host: write <cuda/std/{c_name}>{space}"
    if _HOST_HEADER.match(name):
        return f"that is for host code, which NVRTC does not compile: {_APART}"
    return "name its folder in options.include-dirs"


def _first(log: str) -> str:
    """Return the first errors of a log, since one mistake may cause a hundred."""
    places = [found.start() for found in _CUDA_ERROR.finditer(log)]
    if len(places) <= _MOST_ERRORS:
        return log
    more = len(places) - _MOST_ERRORS
    return f"{log[: places[_MOST_ERRORS]].rstrip()}\n... and {more} more error{'s' * (more > 1)}"


def check(
    module: str,
    wanted: Mapping[Unit, Sequence[External]],
    own: Sequence[str],
    linked: Mapping[LinkInput, Symbols],
    targets: Sequence[Target],
    asked_by: Mapping[LinkInput, str],
    other_modules: Mapping[str, str],
) -> None:
    """Check a module's link.

    Args:
        module: The module's name, for errors.
        wanted: The foreign functions that each unit calls.
        own: The symbols of the module's kernels and exported functions.
        linked: The symbols of each link input.
        targets: The module's targets.
        asked_by: The key that links each input.
        other_modules: The module of each function that the wheel's other modules export.

    Raises:
        LinkError: A symbol is missing or defined twice, or a binary does not run on a target.
    """
    _check_archs(module, linked, targets)
    _check_repeated(module, own, linked, asked_by)
    _check_missing(module, wanted, own, linked, other_modules)


def _check_archs(module: str, linked: Mapping[LinkInput, Symbols], targets: Sequence[Target]) -> None:
    for item, found in linked.items():
        if not found.archs:
            continue
        for target in targets:
            if target.kind == "sass" and not any(arch.parse(text).runs_on(target.capability) for text in found.archs):
                has = ", ".join(dict.fromkeys(found.archs))
                message = (
                    f"{module}: {item.name} holds code for {has}, which cannot be linked for {target}; build it for "
                    f"{target} too (as a fatbin with several architectures, or from its source)"
                )
                raise LinkError(message)


def _check_repeated(
    module: str, own: Sequence[str], linked: Mapping[LinkInput, Symbols], asked_by: Mapping[LinkInput, str]
) -> None:
    places: dict[str, str] = dict.fromkeys(own, "the module's own kernels and functions")
    askers: dict[str, str] = {}
    for item, found in linked.items():
        if item.kind == "library":
            continue  # the linker takes members of a library only for missing symbols
        for name in found.functions:
            if name in places:
                first, second = places[name], item.name
                remedy = "link one of them"
                if first == second or askers.get(name, asked_by[item]) != asked_by[item]:
                    first, second = f"{first} (for {askers[name]})", f"{second} (for {asked_by[item]})"
                    remedy = (
                        "a module's kernels are linked into one image, so rename one of the two functions, or make the "
                        "kernels that call them two modules"
                    )
                message = f"{module}: {name} is defined twice, in {first} and in {second}; {remedy}"
                raise LinkError(message)
            places[name] = item.name
            askers[name] = asked_by[item]


def _check_missing(
    module: str,
    wanted: Mapping[Unit, Sequence[External]],
    own: Sequence[str],
    linked: Mapping[LinkInput, Symbols],
    other_modules: Mapping[str, str],
) -> None:
    if not all(found.complete for found in linked.values()):
        return  # LTOIR does not show its symbols; the linker reports missing ones
    known = {*own, *(name for found in linked.values() for name in found.functions)}
    for unit, externals in wanted.items():
        for external in externals:
            if external.name not in known:
                raise LinkError(_missing(module, external.name, unit.key, linked, other_modules))


def _missing(
    module: str, name: str, wanted_by: str, linked: Mapping[LinkInput, Symbols], other_modules: Mapping[str, str]
) -> str:
    """Return the message about a symbol that nothing defines."""
    if name in other_modules:
        return f"{module}: {wanted_by} calls {name}, {nvjitlink.hint_to_link(other_modules[name])}"
    shown = [item.name for item in linked if not item.internal]
    searched = f"searched: {', '.join(shown)}" if shown else "nothing is linked"
    names = [known for found in linked.values() for known in found.functions]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; the nearest names are {', '.join(near)}" if near else ""
    return (
        f"{module}: nothing defines {name}, which {wanted_by} calls ({searched}{hint}). Link the file that defines it, "
        'by `link` in the configuration or in declare_device; a C++ function needs extern "C" or its mangled name'
    )
