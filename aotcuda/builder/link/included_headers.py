"""The project's headers that CUDA C++ sources include: builds depend on them, JIT builds need them.

Includes are found by their text, whatever the preprocessor would make of the lines around them: one header too many
does no harm. They may be written in every way that the preprocessor reads: among comments, over several lines, with
digraphs. An include whose name is a macro is not found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput

_GAP = rb"(?:[ \t\v\f\r]|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_DIRECTIVE = rb"(?:^(?:\xef\xbb\xbf)?|\*/)" + _GAP + rb"(?:\#|%:|\?\?=)" + _GAP
_INCLUDE = re.compile(_DIRECTIVE + rb"include(?:_next)?" + _GAP + rb"""(?:"([^"\n]+)"|<([^>\n]+)>)""", re.MULTILINE)
_HIDDEN = re.compile(
    _DIRECTIVE + rb"(?:include_next|include\b" + _GAP + rb"[^\"<\\]|embed\b|import\b)|__has_(?:include|embed)|\?\?/",
    re.MULTILINE,
)
_MARK = b"\xef\xbb\xbf"
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_READING = re.compile(r"--?(?:I|i|pre|opt|use-pch|pch)")
_PLACE = re.compile(rb"\b(?:__FILE__|__BASE_FILE__|__builtin_FILE|source_location|assert)\b")
"""By what code says which file it stands in; a header is known to the compiler by its absolute path."""
_MOMENT = re.compile(rb"\b__(?:TIME|DATE|TIMESTAMP)__")
"""What makes code of the time at which it is compiled, or of a file's own time."""
_DEBUG = re.compile(rb"(?:^| )(?:-G|--device-debug)\b")


def hidden(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str], options: Options) -> list[str]:
    """The sources, headers and options of NVRTC whose text does not tell what is compiled; arguments as below.

    They may read files that are not found here, or have the time of the compilation in them.
    """
    items = [item for item in items if item.kind == "cu" and not item.internal]
    if not items:
        return []
    texts = _texts(items, _search(items, root, include_dirs))
    found = [
        name
        for name, text in texts.items()
        if any(_HIDDEN.search(reading) or _MOMENT.search(reading) for reading in _readings(text))
    ]
    found += [option for option in options.nvrtc_options if _READING.match(option) or _MOMENT.search(option.encode())]
    return found + [f"{name}={value}" for name, value in options.defines if _MOMENT.search(value.encode())]


def tell_their_place(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str], options: Options) -> bool:
    """Return True if what is compiled of `items` may say in which folder their headers lie; arguments as below.

    What is compiled is known by its path in the project, a header by its absolute one: in debug information, and where
    code asks for a file's name, as `assert` does.
    """
    items = [item for item in items if item.kind == "cu" and not item.internal]
    if not items:
        return False
    given = " ".join([*options.nvrtc_options, *(value for _, value in options.defines)]).encode()
    if options.debug or _DEBUG.search(given):
        return True
    search = _search(items, root, include_dirs)
    if search.own | search.others <= {Path(item.folder, Path(item.name).name).resolve() for item in items}:
        return False
    texts = [given, *_texts(items, search).values()]
    return any(_PLACE.search(reading) for text in texts for reading in _readings(text))


def project_files(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str]) -> tuple[Path, ...]:
    """Return the files below `root` that `items` are or include, in order of their paths, which are absolute.

    Args:
        items: What is linked; those that are CUDA C++ are searched for includes.
        root: The project's folder, resolved.
        include_dirs: The folders that headers are searched in, relative to `root` or absolute.
    """
    return tuple(sorted(_search(items, root, include_dirs).own))


def elsewhere(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str]) -> tuple[set[Path], set[Path]]:
    """Headers that lie outside the project, and where headers were looked for in vain; arguments as above."""
    search = _search(items, root, include_dirs)
    return search.others, search.missing


def files(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str]) -> tuple[Path, ...]:
    """`project_files`, and after them the headers that lie outside the project; arguments as there."""
    search = _search(items, root, include_dirs)
    return (*sorted(search.own), *sorted(search.others))


def with_marks(item: LinkInput, include_dirs: Sequence[str]) -> dict[str, Path]:
    """Return the headers that begin with a byte order mark, by the names under which they are included."""
    return {name: path for name, path in by_name(item, include_dirs).items() if path.read_bytes().startswith(_MARK)}


def by_name(item: LinkInput, include_dirs: Sequence[str]) -> dict[str, Path]:
    """Return the headers of an item by the names under which they are included."""
    return _search([item], Path(item.folder or "/"), include_dirs).names


@dataclass(slots=True)
class _Search:
    """Headers that were met.

    Attributes:
        root: The project's folder.
        own: Those below it, and the files that include them.
        others: Those that lie elsewhere.
        missing: Where one would have been found before the place where it is, or at all.
        names: By the name in an include, the first header that it stands for.
    """

    root: Path
    own: set[Path] = field(default_factory=set)
    others: set[Path] = field(default_factory=set)
    missing: set[Path] = field(default_factory=set)
    names: dict[str, Path] = field(default_factory=dict)

    def follow(self, text: bytes, folders: list[Path]) -> None:
        """Look for what a source includes, and for what that includes in turn; `folders` are searched for all of them.

        As in the compiler, what stands in quotes is looked for beside the file that includes it first, and what stands
        in angle brackets is not looked for there.
        """
        waiting: list[tuple[bytes, Path | None]] = [(text, None)]
        met: set[tuple[Path, Path]] = set()
        while waiting:
            text, own = waiting.pop()
            includes = [found for reading in _readings(text) for found in _INCLUDE.findall(reading)]
            for quoted, angled in dict.fromkeys(includes):
                name = (quoted or angled).decode(errors="replace")
                beside = [own] if quoted and own is not None else []
                places = list(dict.fromkeys(folder / name for folder in [*beside, *folders]))
                path = next((path for path in places if path.is_file()), None)
                self.missing.update(places if path is None else places[: places.index(path)])
                if path is None or (where := (path.resolve(), path.parent.resolve())) in met:
                    continue
                met.add(where)
                self.add(path)
                self.names.setdefault(name, path.resolve())
                waiting.append((path.read_bytes(), path.parent))

    def add(self, path: Path) -> None:
        """Add a file, if there is one."""
        path = path.resolve()
        if path.is_file():
            (self.own if path.is_relative_to(self.root) else self.others).add(path)


def _texts(items: Iterable[LinkInput], search: _Search) -> dict[str, bytes]:
    """What sources and their headers have, by their names and paths."""
    texts = {item.name: b"".join([item.data, *(data for _, data in item.pieces)]) for item in items}
    return texts | {str(path): path.read_bytes() for path in sorted(search.own | search.others)}


def _readings(text: bytes) -> Sequence[bytes]:
    """Return a text, and what it is with its lines joined that end in a backslash."""
    joined = _SPLICE.sub(b"", text)
    return [text] if joined == text else [text, joined]


def _search(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str]) -> _Search:
    search = _Search(root)
    folders = [Path(root, path) for path in include_dirs]
    for item in items:
        if item.folder:
            search.add(Path(item.folder, Path(item.name).name))
        if item.kind == "cu" and not item.internal:
            own = [Path(item.folder)] if item.folder else []
            search.follow(item.data, [*own, *folders])
    return search
