"""What can be said about a link before the linker is asked: missing and repeated symbols, prototypes, architectures."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.build import prototypes, symbols
from aotcuda.errors import ImageError, LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.build.config import Options
    from aotcuda.build.frontends import External, LinkInput
    from aotcuda.build.plan import Unit
    from aotcuda.build.symbols import Symbols


def survey(
    item: LinkInput,
    externals: Sequence[External],
    target: Target,
    options: Options,
    include_dirs: Sequence[str],
) -> Symbols:
    """The symbols of one input; prototypes of those that Python declares are checked where they are known.

    Raises:
        CompileError: It is CUDA C++ and does not compile.
        LinkError: It is damaged, or defines a function otherwise than Python declares it.
    """
    try:
        found = symbols.of(item, target, options, include_dirs)
    except ImageError as error:
        raise LinkError(str(error)) from None
    if item.kind == "cu" and not item.internal:
        declared = [external for external in externals if external.name in found.functions]
        prototypes.check(item, declared, target, options, include_dirs)
    if item.header:
        prototypes.check_header(item, externals, target, options)
    return found


def check(
    module: str,
    wanted: Mapping[Unit, Sequence[External]],
    own: Sequence[str],
    linked: Mapping[LinkInput, Symbols],
    targets: Sequence[Target],
) -> None:
    """Check a whole module's link.

    Args:
        module: The module's name.
        wanted: The foreign functions that each unit calls.
        own: Symbols of the module's own kernels and exported functions.
        linked: What is linked, with its symbols.
        targets: What is linked for.

    Raises:
        LinkError: A symbol is missing or defined twice, or a binary is for other GPUs than the target.
    """
    _check_archs(module, linked, targets)
    _check_repeated(module, own, linked)
    _check_missing(module, wanted, own, linked)


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


def _check_repeated(module: str, own: Sequence[str], linked: Mapping[LinkInput, Symbols]) -> None:
    places: dict[str, str] = dict.fromkeys(own, "the module's own kernels and functions")
    for item, found in linked.items():
        if item.kind == "library":
            continue  # a library's members are taken only where something is missing
        for name in found.functions:
            if name in places:
                message = f"{module}: {name} is defined twice, in {places[name]} and in {item.name}; link one of them"
                raise LinkError(message)
            places[name] = item.name


def _check_missing(
    module: str, wanted: Mapping[Unit, Sequence[External]], own: Sequence[str], linked: Mapping[LinkInput, Symbols]
) -> None:
    if not all(found.complete for found in linked.values()):
        return  # LTOIR does not tell its symbols; the linker will say what is missing
    known = {*own, *(name for found in linked.values() for name in found.functions)}
    for unit, externals in wanted.items():
        for external in externals:
            if external.name not in known:
                raise LinkError(missing(module, external.name, unit.key, linked))


def missing(module: str, name: str, wanted_by: str, linked: Mapping[LinkInput, Symbols]) -> str:
    """What is said of a symbol that nothing defines."""
    shown = [item.name for item in linked if not item.internal]
    searched = f"searched: {', '.join(shown)}" if shown else "nothing is linked"
    names = [known for found in linked.values() for known in found.functions]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; the nearest names are {', '.join(near)}" if near else ""
    return (
        f"{module}: nothing defines {name}, which {wanted_by} calls ({searched}{hint}). Link the file that defines it, "
        'by `link` in the configuration or in declare_device; a C++ function needs extern "C" or its mangled name'
    )
