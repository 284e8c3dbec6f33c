"""Check a link before it is made: missing and repeated symbols, prototypes, architectures."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.arch import Target
from aotcuda.builder.frontends import error_table
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink, nvrtc, prototypes, symbols, translation_units
from aotcuda.builder.plan import toolchain
from aotcuda.errors import CompileError, ConfigError, ImageError, LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import External, Unit
    from aotcuda.builder.link.symbols import Symbols

_CUDA_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?[Ee]rror: (.+)$", re.MULTILINE)
_OPTION_ERROR = re.compile(r"^(?:Command-line|nvrtc:) error: (.+)$", re.MULTILINE)
"""An error about an option of NVRTC, which has no place in a file."""
_NO_HEADER = re.compile(r'cannot open source file "([^"]+)"')
_NO_NAME = re.compile(r'identifier "(\w+)" is undefined')
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")
_HOST_HEADER = re.compile(r"(?:torch|ATen|c10|pybind11)/|Python\.h$|[a-z_]+$|std\w+\.h$")
"""Headers of PyTorch and Python, and headers of C++, whose names have no dot."""

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
        functions = symbols.read_symbols(item, target, options, include_dirs)
    except ImageError as error:
        message = f"{asked_by}: {error}"
        raise LinkError(message) from None
    except CompileError as error:
        raise not_compiled(item, target, options, include_dirs, asked_by, str(error)) from None
    if item.kind == "cu" and not item.internal:
        declarations = [external for external in externals if external.name in functions.functions]
        prototypes.check(item, declarations, target, options, include_dirs)
    if item.header:
        prototypes.check_header(item, externals, target, options)
    return functions


def not_compiled(
    item: LinkInput,
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    asked_by: str,
    error: str,
    names: Sequence[str] = (),
) -> CompileError:
    """Return the error for CUDA C++ that does not compile, with the first target that it compiles for."""
    head, _, log = error.partition("\n")
    match = _cause(log)
    text = match[3].strip().partition(". Consider using")[0] if match else ""
    reason = f"{text} ({match[1]}:{match[2]})" if match else head.rpartition(": ")[2]
    if not match and (row := error_table.find(log)):
        return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {row.fact}; {row.remedy}")
    if not match and (wrong := _OPTION_ERROR.search(log)):
        remedy = "correct nvrtc-options, defines or include-dirs in options"
        return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {wrong[1]}; {remedy}")
    if advice := _advice(text, match[1] if match else ""):
        return CompileError(
            f"{asked_by}: {item.name} does not compile for {target}: {reason}; {advice}\n{_first_errors(log)}"
        )
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
    return CompileError(
        f"{asked_by}: {item.name} does not compile for {target}: {reason}{remedy}\n{_first_errors(log)}"
    )


def _cause(log: str) -> re.Match[str] | None:
    """Find the first error, or its cause: NVRTC reports a parameter's unknown type after errors that follow from it."""
    errors = list(_CUDA_ERROR.finditer(log))
    if errors and errors[0][3].startswith("attribute "):
        return next((error for error in errors if _NO_NAME.search(error[3])), errors[0])
    return errors[0] if errors else None


def _advice(problem: str, file: str) -> str:
    """Return the remedy for code that is written for nvcc: NVRTC has no host headers, and compiles no host code."""
    if match := _NO_HEADER.search(problem):
        return _header_advice(match[1], file)
    row = error_table.find(problem)
    if row and "host" in problem and any(Path(file).is_relative_to(folder) for folder in toolchain.include_dirs()):
        return f"a header of the toolkit brings this, which is for nvcc alone; {_PARTS}"
    return row.remedy if row else ""


def _header_advice(name: str, file: str) -> str:
    folders = [folder for folder in toolchain.include_dirs() if Path(file).is_relative_to(folder)]
    if name.startswith("crt/"):
        return "that is a header of CUDA's own: install cuda-toolkit[crt], or with CUDA 12 cuda-toolkit[nvcc]"
    if folders:
        header = Path(file).relative_to(max(folders, key=len))
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


def _first_errors(log: str) -> str:
    """Return the first errors of a log, since one mistake may cause a hundred."""
    places = [match.start() for match in _CUDA_ERROR.finditer(log)]
    if len(places) <= _MOST_ERRORS:
        return log
    count = len(places) - _MOST_ERRORS
    return f"{log[: places[_MOST_ERRORS]].rstrip()}\n... and {count} more error{'s' * (count > 1)}"


_NAMES_CODE = """
template <class aotcuda_A, class aotcuda_B> struct aotcuda_same { static const bool aotcuda_value = false; };
template <class aotcuda_A> struct aotcuda_same<aotcuda_A, aotcuda_A> { static const bool aotcuda_value = true; };
struct aotcuda_mine;
"""
_NAMES_FILE = "aotcuda_names"
_AT_NAME = re.compile(rf"^{_NAMES_FILE}\((\d+)\): ", re.MULTILINE)


def check_names(keys: Mapping[str, str], target: Target, options: Options) -> None:
    """Refuse device functions whose names CUDA C++ declares: callers in C++ would get CUDA's own function.

    A line for each name declares a function in another namespace. A name that CUDA C++ declares hides this function, so
    the line does not compile.

    Args:
        keys: The key of each function, by its C ABI name.
        target: The target to compile for.
        options: The module's options; only the edition of C++ among them matters.

    Raises:
        ConfigError: CUDA C++ declares one of the names.
    """
    lines = [
        f"namespace aotcuda_own {{ __device__ aotcuda_mine *{name}(aotcuda_mine *); }} using namespace aotcuda_own; "
        f'static_assert(aotcuda_same<decltype(&::{name}), aotcuda_mine *(*)(aotcuda_mine *)>::aotcuda_value, "");'
        for name in keys
    ]
    text = "\n".join([_NAMES_CODE, f'#line 1 "{_NAMES_FILE}"', *lines, ""])
    plain = replace(options, defines=(), nvrtc_options=(), debug=False, lineinfo=False)
    try:
        nvrtc.compile_source(LinkInput(kind="cu", name="names", data=text.encode()), target, plain, [], lto=False)
    except CompileError as error:
        match = _AT_NAME.search(str(error))
        if match is None:
            raise
        name = [*keys][int(match[1]) - 1]
        message = (
            f'{keys[name]}: "{name}" is a name of CUDA C++ itself, so callers in C++ would get CUDA\'s own function; '
            "choose another name"
        )
        raise ConfigError(message) from None


def check(
    module: str,
    calls: Mapping[Unit, Sequence[External]],
    module_symbols: Mapping[str, str],
    linked: Mapping[LinkInput, Symbols],
    targets: Sequence[Target],
    asked_by: Mapping[LinkInput, str],
    other_modules: Mapping[str, str],
) -> None:
    """Check a module's link.

    Args:
        module: The module's name, for errors.
        calls: The foreign functions that each unit calls.
        module_symbols: The symbols of the module's kernels, exported functions and variables, with their places.
        linked: The symbols of each link input.
        targets: The module's targets.
        asked_by: The key that links each input.
        other_modules: The module of each function that the wheel's other modules export.

    Raises:
        LinkError: A symbol is missing or defined twice, or a binary does not run on a target.
    """
    _check_archs(module, linked, targets)
    _check_repeated(module, module_symbols, linked, asked_by)
    _check_variables(module, module_symbols, linked)
    _check_missing(module, calls, module_symbols, linked, other_modules)


def _check_archs(module: str, linked: Mapping[LinkInput, Symbols], targets: Sequence[Target]) -> None:
    for item, item_symbols in linked.items():
        if not item_symbols.archs:
            continue
        for target in targets:
            if target.kind == "sass" and not any(
                arch.parse(text).runs_on(target.capability) for text in item_symbols.archs
            ):
                archs = ", ".join(dict.fromkeys(item_symbols.archs))
                message = (
                    f"{module}: {item.name} holds code for {archs}, which cannot be linked for {target}; build it for "
                    f"{target} too (as a fatbin with several architectures, or from its source)"
                )
                raise LinkError(message)


def _check_repeated(
    module: str,
    module_symbols: Mapping[str, str],
    linked: Mapping[LinkInput, Symbols],
    asked_by: Mapping[LinkInput, str],
) -> None:
    places = dict(module_symbols)
    askers: dict[str, str] = {}
    for item, item_symbols in linked.items():
        if item.kind == "library":
            continue  # the linker takes members of a library only for missing symbols
        for name in (*item_symbols.functions, *item_symbols.variables):
            if name in places:
                first, second = places[name], item.name
                remedy = "link one of them"
                if first == second or askers.get(name, asked_by[item]) != asked_by[item]:
                    first, second = f"{first} (for {askers[name]})", f"{second} (for {asked_by[item]})"
                    remedy = (
                        "these are linked into one image, so rename one of the two, or make the kernels that use them "
                        "two modules"
                    )
                text = translation_units.plain_name(name)
                message = f"{module}: {text} is defined twice, in {first} and in {second}; {remedy}"
                raise LinkError(message)
            places[name] = item.name
            askers[name] = asked_by[item]


def _check_variables(module: str, module_symbols: Mapping[str, str], linked: Mapping[LinkInput, Symbols]) -> None:
    """Refuse variables that a linked item needs and nothing defines, because the linker would make them zero."""
    if not all(item_symbols.complete for item_symbols in linked.values()):
        return
    defined = {*module_symbols, *(name for item_symbols in linked.values() for name in item_symbols.defined)}
    for item, item_symbols in linked.items():
        for name in item_symbols.needed_variables:
            if name not in defined:
                raise translation_units.undefined_variable(module, item.name, name)


def _check_missing(
    module: str,
    calls: Mapping[Unit, Sequence[External]],
    module_symbols: Mapping[str, str],
    linked: Mapping[LinkInput, Symbols],
    other_modules: Mapping[str, str],
) -> None:
    if not all(item_symbols.complete for item_symbols in linked.values()):
        return  # LTOIR does not show its symbols; the linker reports missing ones
    names = {*module_symbols, *(name for item_symbols in linked.values() for name in item_symbols.defined)}
    for unit, externals in calls.items():
        for external in externals:
            if external.name not in names:
                raise LinkError(_missing_text(module, external.name, unit.key, linked, other_modules))


def _missing_text(
    module: str, name: str, wanted_by: str, linked: Mapping[LinkInput, Symbols], other_modules: Mapping[str, str]
) -> str:
    """Return the message about a symbol that nothing defines."""
    if name in other_modules:
        return f"{module}: {wanted_by} calls {name}, {nvjitlink.hint_to_link(other_modules[name])}"
    item_names = [item.name for item in linked if not item.internal]
    searched = f"searched: {', '.join(item_names)}" if item_names else "nothing is linked"
    names = [known for item_symbols in linked.values() for known in item_symbols.functions]
    matches = difflib.get_close_matches(name, names, n=3)
    hint = f"; the nearest names are {', '.join(matches)}" if matches else ""
    return (
        f"{module}: nothing defines {name}, which {wanted_by} calls ({searched}{hint}). Link the file that defines it, "
        'by `link` in the configuration or in declare_device; a C++ function needs extern "C" or its mangled name'
    )
