"""Files for other build systems: the dependency file of `--depfile` and the stamp of `--stamp`.

A build into a folder replaces the files that it makes again. A module that was removed from the table would stay, and
be installed with the folder. Several projects may share one folder, so the folder's content does not show which files
are old. The stamp lists the files that a build wrote, and the next build with this stamp removes the old ones.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.common import foreign
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

_MISSING_FILE = "a-file-whose-name-cannot-stand-here"
"""A stand-in for files whose names the format cannot have. It never exists, so every run builds again."""


def render(targets: Iterable[Path], files: Iterable[Path]) -> bytes:
    """Return a dependency file, as compilers write it with `-MD -MP` for make, ninja and CMake.

    Each file also has an empty rule, so make continues if the file is missing. Names are quoted in make's syntax.
    If a name cannot be written (see `warnings`), every run builds again.
    """
    paths = list(files)
    names = [_escape(path) for path in paths if _is_writable(path)]
    if len(names) < len(paths):
        names.append(_MISSING_FILE)
    # make reads `target: a=b c` as a variable with the value `b c`, unless another name comes first.
    if names and "=" in names[0]:
        candidates = [*names, _escape(os.path.realpath(sys.executable)), _MISSING_FILE]
        names.insert(0, next(name for name in candidates if "=" not in name))
    rule = " \\\n  ".join([f"{' '.join(map(_escape, targets))}:", *dict.fromkeys(names)])
    # `a=b:` would be a variable as well, and `a%b:` a rule for other files.
    empty_rules = [f"{name}:" for name in dict.fromkeys(names) if not {"=", "%"} & {*name}]
    return "".join(f"{text}\n" for text in [rule, *empty_rules]).encode(errors="surrogateescape")


def warnings(targets: Iterable[Path], files: Iterable[Path]) -> list[str]:
    """Return warnings for names that make or ninja cannot read in a dependency file.

    Raises:
        BuildError: No rule can be written for a target.
    """
    texts = []
    for path in targets:
        if not _is_writable(path):
            message = (
                f"{_printable(path)} has a name for which no dependency file can have a rule; write to another folder"
            )
            raise BuildError(message)
    if variable_target := next((path for path in targets if "=" in str(path)), None):
        texts.append(
            f"make reads the rule for {variable_target} for a variable, because of the =, and would build nothing "
            "again (ninja and CMake do not); give it a relative path, or build in a folder without ="
        )
    if unwritable := [path for path in files if not _is_writable(path)]:
        suffix = f" and {len(unwritable) - 1} more" if len(unwritable) > 1 else ""
        texts.append(
            f"no dependency file can have the name {_printable(unwritable[0])}{suffix}, so make and ninja build each "
            "time; rename it"
        )
    return texts


def _is_writable(path: Path) -> bool:
    """Return True if a name can be quoted: `;` begins a recipe for make, and ends a name for ninja."""
    text = str(path)
    return not {"\n", "\r", ";"} & {*text} and not text.endswith("\\")


def _printable(path: Path) -> str:
    return ascii(str(path)) if not str(path).isprintable() else str(path)


def _escape(path: Path | str) -> str:
    text = str(path).replace("$", "$$")
    # A backslash is literal unless it precedes a character that needs one itself.
    return re.sub(r"(\\*)([ \t#:|])", r"\1\1\\\2", text)


def stamp(files: Mapping[str, bytes], folder: Path) -> bytes:
    """Return the stamp of a build that wrote `files` below `folder`: JSON with the digest of each file."""
    digests = {name: manifest.digest(data) for name, data in sorted(files.items())}
    return json.dumps({"folder": str(folder.resolve()), "files": digests}, indent=1).encode() + b"\n"


def remove_stale(stamp: Path, files: Collection[str], folder: Path) -> None:
    """Remove the files below `folder` that the previous stamp lists and that are not among `files`.

    Files that have changed since stay. All files stay if the stamp is for another folder, or is another file, such as
    one made by `touch`.
    """
    for name, digest in _read_stamp(stamp, folder).items():
        path = folder / name
        try:
            if name in files or not path.is_file() or manifest.digest(path.read_bytes()) != digest:
                continue
            path.unlink()
        except OSError as error:
            message = f"{path}, which a build before this one wrote, cannot be removed ({error.strerror}); remove it"
            raise BuildError(message) from error
        for parent in path.relative_to(folder).parents[:-1]:
            with suppress(OSError):  # it is not empty
                (folder / parent).rmdir()


def _read_stamp(stamp: Path, folder: Path) -> dict[str, str]:
    try:
        content = json.loads(foreign.content(stamp)) if stamp.is_file() else None
        if content is None or content["folder"] != str(folder.resolve()):
            return {}
        return {str(name): str(digest) for name, digest in content["files"].items()}
    except (foreign.UnreadableError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
