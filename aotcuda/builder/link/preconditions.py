"""What can be said about a link before the linker is asked: missing and repeated symbols, prototypes, architectures."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.arch import Target
from aotcuda.builder import toolchain
from aotcuda.builder.link import nvjitlink, nvrtc, prototypes, symbols
from aotcuda.errors import CompileError, ImageError, LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import External, LinkInput, Unit
    from aotcuda.builder.link.symbols import Symbols

_CUDA_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error: (.+)$", re.MULTILINE)


def survey(
    item: LinkInput,
    externals: Sequence[External],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
    asked_by: str,
) -> Symbols:
    """The symbols of one input; prototypes of those that Python declares are checked where they are known.

    Errors begin with `asked_by`, the key for which it is linked.

    Raises:
        CompileError: It is CUDA C++ and does not compile.
        LinkError: It is damaged, or defines a function otherwise than Python declares it.
    """
    try:
        found = symbols.of(item, target, options, include_dirs)
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
    """The error for CUDA C++ that does not compile: with who links it, and the first target that it compiles for."""
    head, _, log = said.partition("\n")
    found = _CUDA_ERROR.search(log)
    reason = f"{found[3].strip()} ({found[1]}:{found[2]})" if found else head.rpartition(": ")[2]
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
        remedy = ""
    return CompileError(f"{asked_by}: {item.name} does not compile for {target}: {reason}{remedy}\n{log}")


def check(
    module: str,
    wanted: Mapping[Unit, Sequence[External]],
    own: Sequence[str],
    linked: Mapping[LinkInput, Symbols],
    targets: Sequence[Target],
    asked_by: Mapping[LinkInput, str],
    elsewhere: Mapping[str, str],
) -> None:
    """Check a whole module's link.

    Args:
        module: The module's name.
        wanted: The foreign functions that each unit calls.
        own: Symbols of the module's own kernels and exported functions.
        linked: What is linked, with its symbols.
        targets: What is linked for.
        asked_by: The key for which each item is linked.
        elsewhere: The functions that other modules of the wheel export, with the module's name.

    Raises:
        LinkError: A symbol is missing or defined twice, or a binary is for other GPUs than the target.
    """
    _check_archs(module, linked, targets)
    _check_repeated(module, own, linked, asked_by)
    _check_missing(module, wanted, own, linked, elsewhere)


def _check_archs(module: str, linked: Mapping[LinkInput, Symbols], targets: Sequence[Target]) -> None:
    for item, found in linked.items():
        if not found.archs:
            continue
        for target in targets:
            if target.kind == "sass" and not any(arch.parse(text).runs_on(target.capability) for text in found.archs):
                has = ", ".join(found.archs)
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
            continue  # a library's members are taken only where something is missing
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
    elsewhere: Mapping[str, str],
) -> None:
    if not all(found.complete for found in linked.values()):
        return  # LTOIR does not tell its symbols; the linker will say what is missing
    known = {*own, *(name for found in linked.values() for name in found.functions)}
    for unit, externals in wanted.items():
        for external in externals:
            if external.name not in known:
                raise LinkError(_missing(module, external.name, unit.key, linked, elsewhere))


def _missing(
    module: str, name: str, wanted_by: str, linked: Mapping[LinkInput, Symbols], elsewhere: Mapping[str, str]
) -> str:
    """What is said of a symbol that nothing defines."""
    if name in elsewhere:
        return f"{module}: {wanted_by} calls {name}, {nvjitlink.of_module(elsewhere[name])}"
    shown = [item.name for item in linked if not item.internal]
    searched = f"searched: {', '.join(shown)}" if shown else "nothing is linked"
    names = [known for found in linked.values() for known in found.functions]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; the nearest names are {', '.join(near)}" if near else ""
    return (
        f"{module}: nothing defines {name}, which {wanted_by} calls ({searched}{hint}). Link the file that defines it, "
        'by `link` in the configuration or in declare_device; a C++ function needs extern "C" or its mangled name'
    )
