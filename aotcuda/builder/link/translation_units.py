"""Divide the CUDA C++ files of a module into images: files that refer to each other's names are linked together.

Each other file is an image of its own, as nvcc compiles files without `-rdc=true`. So two files may have helpers,
templates and variables of one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda.builder.link import weak_code
from aotcuda.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.link.symbols import Symbols

    ByTarget = Mapping[Target, Symbols]


@dataclass(frozen=True, slots=True)
class Group:
    """The files of an image.

    Attributes:
        files: Their paths, in the order of the table.
        has_links: True if the items of `link` are linked into the image.
        reason: The reference for which two of the files are linked, for errors; empty for one file.
    """

    files: tuple[str, ...]
    has_links: bool = False
    reason: str = ""


def divide(
    files: Mapping[str, ByTarget], linked: Sequence[Symbols], where: str, *, relocatable: bool = False
) -> list[Group]:
    """Return the groups of files that are linked together, in the order of the files.

    A file refers to another if it needs a name that the other defines, for one target at least. Files that need a name
    of a linked item, or define a name that such an item needs, are linked together with all items. If an item hides
    its names, files that need a name which no file defines are linked with it.

    Args:
        files: The symbols of each file for each target.
        linked: The symbols of the items of `link`.
        where: The key of the module, for errors.
        relocatable: Link all files together.

    Raises:
        LinkError: Two files of a group define one name, or nothing defines a variable.
    """
    definers: dict[str, list[str]] = {}
    for path, name in _names(files, "defined"):
        definers.setdefault(name, []).append(path)
    parents = {path: path for path in files}
    reasons: dict[str, str] = {}

    def root(path: str) -> str:
        while parents[path] != path:
            path = parents[path]
        return path

    def join(first: str, second: str, reason: str) -> None:
        one, other = root(first), root(second)
        if one != other:
            parents[other] = one
            reasons[one] = reasons.get(one) or reasons.get(other) or reason

    own = [*files]
    for path, name in () if relocatable else _names(files, "needed"):
        for other in definers.get(name, ()):
            join(path, other, f"{path} refers to {plain_name(name)} of {other}")
    if relocatable:
        for path in own[1:]:
            join(own[0], path, "relocatable is true")
    with_links = [path for path in own if linked and _needs_links(path, files, definers, linked)]
    for path in with_links[1:]:
        join(with_links[0], path, "both use what link names")
    groups: dict[str, list[str]] = {}
    for path in own:
        groups.setdefault(root(path), []).append(path)
    linked_roots = {root(path) for path in with_links}
    if linked and relocatable:
        linked_roots = {*groups}
    divided = [Group(tuple(paths), key in linked_roots, reasons.get(key, "")) for key, paths in groups.items()]
    for group in divided:
        _check_repeated(group, files, where)
        _check_variables(group, files, linked if group.has_links else (), where)
    return divided


def _names(files: Mapping[str, ByTarget], attribute: str) -> Iterator[tuple[str, str]]:
    """Yield each file with each name of an attribute of its symbols, for any target."""
    for path, by_target in files.items():
        names: dict[str, None] = {}
        for symbols in by_target.values():
            names |= dict.fromkeys(sorted(getattr(symbols, attribute)))
        yield from ((path, name) for name in names)


def referred(path: str, files: Mapping[str, ByTarget]) -> tuple[str, str] | None:
    """Return another file to which a file refers, and the name of it that the file needs; None without one."""
    needed = {name for symbols in files[path].values() for name in symbols.needed}
    others = {other: by_target for other, by_target in files.items() if other != path}
    return next(((other, name) for other, name in _names(others, "defined") if name in needed), None)


def needed_functions(groups: Iterable[Group], files: Mapping[str, ByTarget]) -> frozenset[str]:
    """Return the functions that groups of files need and do not define."""
    names: set[str] = set()
    for group in groups:
        symbols = [item for path in group.files for item in files[path].values()]
        defined = {name for item in symbols for name in item.defined}
        names |= {name for item in symbols for name in item.needed_functions if name not in defined}
    return frozenset(names)


def _needs_links(
    path: str, files: Mapping[str, ByTarget], definers: Mapping[str, Sequence[str]], linked: Sequence[Symbols]
) -> bool:
    """Return True if a file needs a name of a linked item, or defines one that an item needs."""
    provided = {name for symbols in linked for name in symbols.defined}
    wanted = {name for symbols in linked for name in symbols.needed}
    hidden = not all(symbols.complete for symbols in linked)
    for symbols in files[path].values():
        if symbols.needed & provided or symbols.defined & wanted:
            return True
        if hidden and any(name not in definers for name in symbols.needed):
            return True
    return False


def _check_repeated(group: Group, files: Mapping[str, ByTarget], where: str) -> None:
    """Refuse files of one image that define one name."""
    places: dict[str, str] = {}
    for attribute in ("functions", "variables"):
        for path, name in _names({path: files[path] for path in group.files}, attribute):
            if name in places and places[name] != path:
                message = (
                    f"{where}: {plain_name(name)} is defined in {places[name]} and in {path}, which are linked into "
                    f"one image ({group.reason}); write static or inline before it, or rename one of the two"
                )
                raise LinkError(message)
            places[name] = path


def check_weak(group: Group, ptx: Mapping[str, bytes], where: str) -> None:
    """Refuse files of one image with different inline functions or templates of one name.

    Args:
        group: The files.
        ptx: PTX with debug information of each file.
        where: The key of the module, for errors.

    Raises:
        LinkError: Two definitions differ.
    """
    places: dict[str, tuple[str, str]] = {}
    for path in group.files if len(group.files) > 1 else ():
        for name, digest in weak_code.digests(ptx[path]).items():
            first, known = places.setdefault(name, (path, digest))
            if known != digest:
                message = (
                    f"{where}: {plain_name(name)} is not the same in {first} and in {path}, which are linked into one "
                    f"image ({group.reason}), so both would use one of the two; rename one, or move it to a header"
                )
                raise LinkError(message)


def _check_variables(group: Group, files: Mapping[str, ByTarget], linked: Sequence[Symbols], where: str) -> None:
    """Refuse variables that nothing defines, because the linker would make them zero."""
    if not all(symbols.complete for symbols in linked):
        return
    defined = {name for path in group.files for symbols in files[path].values() for name in symbols.defined}
    defined |= {name for symbols in linked for name in symbols.defined}
    for path, name in _names({path: files[path] for path in group.files}, "needed_variables"):
        if name not in defined:
            raise undefined_variable(where, path, name)


def undefined_variable(where: str, path: str, name: str) -> LinkError:
    """Return the error about a variable that a file declares and nothing defines."""
    return LinkError(
        f"{where}: {path} uses the extern variable {plain_name(name)}, which nothing defines; define it in a file of "
        "this module or in a file of link"
    )


def variables(groups: Iterable[Group], files: Mapping[str, ByTarget]) -> dict[str, tuple[str, Group, int]]:
    """Return the variables of all files: symbol, group and bytes (0 if unknown) by the name that Python uses.

    A variable has the name `"csrc/b.cu:physics::table"`, and `"physics::table"` if no other file has such a name.
    """
    found: dict[str, list[tuple[str, str, Group]]] = {}
    for group in groups:
        for path in group.files:
            of_file = {path: files[path]}
            for _, symbol in [*_names(of_file, "variables"), *_names(of_file, "weak_variables")]:
                found.setdefault(plain_name(symbol), []).append((path, symbol, group))
    named: dict[str, tuple[str, Group, int]] = {}
    known_sizes = sizes(files)
    for name, places in found.items():
        for path, symbol, group in places:
            named[f"{path}:{name}"] = (symbol, group, known_sizes.get((path, symbol), 0))
        if len({path for path, *_ in places}) == 1:
            named[name] = named[f"{places[0][0]}:{name}"]
    return named


def sizes(files: Mapping[str, ByTarget]) -> dict[tuple[str, str], int]:
    """Return the bytes of the variables of each file, by file and symbol."""
    return {
        (path, name): size
        for path, by_target in files.items()
        for symbols in by_target.values()
        for name, size in symbols.sizes
    }


def plain_name(symbol: str) -> str:
    """Return the name of a function or variable as C++ writes it, without parameters: `physics::table`.

    Mangled names consist of lengths and names (Itanium C++ ABI, 5.1.2). Other parts of a name are left out.
    """
    match = re.match(r"_Z(TV|Z)?(?:N[rVK]*)?L?(?=\d)", symbol)
    if match is None:
        return symbol
    rest, parts = symbol[match.end() :], []
    while length := re.match(r"L?(\d+)", rest):
        end = length.end() + int(length[1])
        parts.append(rest[length.end() : end])
        rest = rest[end:] if "N" in match[0] else ""
    if match[1] == "Z":  # a static variable of a function, whose name follows the function's types
        local = [symbol[name.end() :][: int(name[1])] for name in re.finditer(r"E(\d+)", symbol)]
        parts += local[-1:]
    return f"vtable for {'::'.join(parts)}" if match[1] == "TV" else "::".join(parts)
