"""Find the project's headers that CUDA C++ sources include: builds depend on them, and the JIT fallback needs them.

Includes are found by their text, in every form that the preprocessor reads: among comments, over several lines, with
digraphs. Lines that a condition excludes count too, since one header too many does no harm. An include whose name is a
macro is not found.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.config import nvrtc_options
from aotcuda.builder.link import inputs

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
"""Names by which code reads its file's name; for a header the compiler gives the absolute path."""
_MOMENT = re.compile(rb"\b__(?:TIME|DATE|TIMESTAMP)__")
"""Macros that depend on the time of the compilation, or of a file."""
_DEBUG = re.compile(rb"(?:^| )(?:-G|--device-debug)\b")


class Headers:
    """The headers that the CUDA C++ among link inputs can include.

    Args:
        items: The inputs.
        root: The project's folder, resolved.
        include_dirs: The folders that headers are searched in, relative to `root` or absolute.
        options: The compile options, which may include headers before each source; None if no option matters.

    Attributes:
        project_files: Headers and files of the inputs below the project's folder.
        outside_files: Headers and files in other folders.
        missing: Paths without a file, at which the compiler would have found a header first.
        links: Paths below symbolic links by which files were found.
        names: The first header of each name in an include.
        others: The names in includes for which no header was found, such as those of the toolkit.
    """

    def __init__(
        self, items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str], options: Options | None = None
    ) -> None:
        self.project_files: set[Path] = set()
        self.outside_files: set[Path] = set()
        self.missing: set[Path] = set()
        self.links: set[Path] = set()
        self._root = root
        self.names: dict[str, Path] = {}
        self.others: set[str] = set()
        self._sources: list[LinkInput] = []
        self._read: set[Path] = set()  # the files of the sources, and their headers
        folders = [Path(root, path) for path in include_dirs]
        names = nvrtc_options.included(options.nvrtc_options) if options is not None else []
        before = "".join(f'#include "{name}"\n' for name in names).encode()
        for item in items:
            is_source = item.kind == "cu" and not item.internal
            if item.folder:
                named, plain = Path(root, item.name), Path(item.folder, Path(item.name).name)
                is_named = inputs.place(named, root).parent == Path(item.folder)
                self._add(named if is_named else plain, is_read=is_source)
            if is_source:
                self._sources.append(item)
                source_folder = [Path(item.folder)] if item.folder else []
                self._follow(before + item.data, [*source_folder, *folders])

    @property
    def files(self) -> list[Path]:
        """Return the files of the project, then the files in other folders."""
        return [*sorted(self.project_files), *sorted(self.outside_files)]

    def uncacheable(self, options: Options) -> list[str]:
        """Return the names of sources, headers and NVRTC options that make code depend on more than their text.

        They may read files that this class does not find, or depend on the time of the compilation.
        """
        if not self._sources:
            return []
        names = [
            name
            for name, text in self._texts().items()
            if any(_HIDDEN.search(reading) or _MOMENT.search(reading) for reading in _readings(text))
        ]
        nvrtc_options = options.nvrtc_options
        names += [option for option in nvrtc_options if _READING.match(option) or _MOMENT.search(option.encode())]
        return names + [f"{name}={value}" for name, value in options.defines if _MOMENT.search(value.encode())]

    def may_contain_folder(self, options: Options) -> bool:
        """Return True if the result may contain the folder of the headers.

        Debug information and `assert` contain file names. The compiler knows a source by its path in the project, and a
        header by its absolute path.
        """
        if not self._sources:
            return False
        settings = " ".join([*options.nvrtc_options, *(value for _, value in options.defines)]).encode()
        if options.debug or _DEBUG.search(settings):
            return True
        if self._read <= {inputs.place(Path(item.folder, Path(item.name).name), self._root) for item in self._sources}:
            return False
        return any(
            _PLACE.search(reading) for text in (settings, *self._texts().values()) for reading in _readings(text)
        )

    def with_byte_order_marks(self) -> dict[str, Path]:
        """Return the headers that begin with a byte order mark, by the names under which they are included."""
        return {name: path for name, path in self.names.items() if path.read_bytes().startswith(_MARK)}

    def _texts(self) -> dict[str, bytes]:
        """Return the content of sources and their headers, by their names and paths."""
        texts = {item.name: b"".join([item.data, *(data for _, data in item.pieces)]) for item in self._sources}
        return texts | {str(path): path.read_bytes() for path in sorted(self._read)}

    def _follow(self, text: bytes, folders: list[Path]) -> None:
        """Find the headers that a source includes, directly or through other headers, in `folders`.

        As in the compiler, a name in quotes is searched first in the folder of the file that includes it; a name in
        angle brackets is not.
        """
        queue: list[tuple[bytes, Path | None]] = [(text, None)]
        visits: set[tuple[Path, Path]] = set()
        while queue:
            text, folder_of_file = queue.pop()
            includes = [include for reading in _readings(text) for include in _INCLUDE.findall(reading)]
            for quoted, angled in dict.fromkeys(includes):
                name = (quoted or angled).decode(errors="replace")
                first_folders = [folder_of_file] if quoted and folder_of_file is not None else []
                places = list(dict.fromkeys(folder / name for folder in [*first_folders, *folders]))
                path = next((path for path in places if path.is_file()), None)
                self.missing.update(places if path is None else places[: places.index(path)])
                if path is None:
                    self.others.add(name)
                if path is None or (visit := (path.resolve(), path.parent.resolve())) in visits:
                    continue
                visits.add(visit)
                self._add(path, is_read=True)
                self.names.setdefault(name, path.resolve())
                queue.append((path.read_bytes(), path.parent))

    def _add(self, path: Path, *, is_read: bool) -> None:
        found, path = path, inputs.place(path, self._root)
        if path.is_file():
            self.links |= {found} if found != path else set()
            self._read |= {path} if is_read else set()
            (self.project_files if path.is_relative_to(self._root) else self.outside_files).add(path)


def _readings(text: bytes) -> Sequence[bytes]:
    """Return a text, and the text with its lines joined where one ends in a backslash, if that is another text."""
    joined = _SPLICE.sub(b"", text)
    return [text] if joined == text else [text, joined]
