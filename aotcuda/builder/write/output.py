"""Write the files of a build: all or none, and only those that changed.

Everything is written to a temporary name first, and then renamed. A module's `.py` is removed first and written last,
so a process that is killed in between leaves a package without the module, and never a module with the files of another
build. The next build removes the temporary files. Of two builds that write into one folder, the second
waits until the first has written everything.

Files with the same content are not replaced and keep their time, because other build systems compare times. New files
may get the time at which the build began to read, so a source that is edited during the build is newer. A module's
`.py` has the digest of its manifest, which has the digests of all files, so it stays if all files stay.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.compile import interrupt
from aotcuda.builder.write import temporary
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def write(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write `files` below `folder` and return their paths; a data folder is replaced as a whole.

    Raises:
        BuildError: A file cannot be written; the folder is unchanged.
    """
    with write_around(files, folder) as paths:
        return paths


@contextmanager
def write_around(
    files: Mapping[str, bytes], folder: Path, since: int | None = None, removals: Iterable[Path] = ()
) -> Iterator[list[Path]]:
    """Do `write` around a block; if the block fails, restore the previous files.

    New files get the time `since`, in nanoseconds as returned by `now`, or else the current time. The files and folders
    `removals` are removed.
    """
    with _lock(folder), _replace_files(files, folder, since, removals) as paths:
        yield paths


@contextmanager
def _replace_files(
    files: Mapping[str, bytes], folder: Path, since: int | None = None, removals: Iterable[Path] = ()
) -> Iterator[list[Path]]:
    change = _Change(since)
    try:
        for path in removals:
            change.remove(path)
        for target, content in _group(files).items():
            if _has_content(folder / target, content):
                temporary.sweep((folder / target).parent)
            else:
                change.prepare(folder / target, content)
        change.make()
    except OSError as error:
        change.undo()
        raise _not_written(change.at or folder, error, "write to another folder") from error
    except BaseException:
        change.undo()
        raise
    try:
        yield [folder / name for name in files]
    except BaseException:
        change.undo()
        raise
    try:
        change.tidy()
    except KeyboardInterrupt as stop:
        stop.args = (interrupt.WRITTEN,)
        raise


def write_bill(path: Path, content: bytes) -> list[Path]:
    """Write one file as `write` does, or write into a pipe or device such as `/dev/stdout`."""
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 (pathlib raises where a name is too long)
        replace(path, content)
        return [path]
    with _replace_files({path.name: content}, path.parent) as paths:  # perhaps within `written`, for the same folder
        return paths


def replace(path: Path, content: bytes, since: int | None = None) -> None:
    """Write one file that is not part of the build, always with a new time, or with the time `since`.

    A killed process leaves the old content or all of the new: make would read an empty file as one without inputs.
    """
    # Pipes, devices and links are not replaced. (pathlib raises an error if a name is too long.)
    stays = os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path))  # noqa: PTH110, PTH113, PTH114
    new = path if stays else path.with_name(temporary.make_name(f".{path.name}."))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.sweep(path.parent)
        new.write_bytes(content)
        if new is not path:
            if since is not None:
                os.utime(new, ns=(since, since))
            new.replace(path)
    except OSError as error:
        raise _not_written(path, error, "name another file") from error
    finally:
        if new is not path:
            temporary.remove(new)


def now(path: Path) -> int:
    """Return the time in nanoseconds by the clock of the file system of `path`."""
    folder = next((folder for folder in path.absolute().parents if os.path.isdir(folder)), path)  # noqa: PTH112
    probe = folder / temporary.make_name(".")
    try:
        probe.touch()
        return probe.stat().st_mtime_ns
    except OSError:  # the error is raised when something is written
        return time.time_ns()
    finally:
        temporary.remove(probe)


def sweep(modules: Iterable[str], roots: Sequence[Path]) -> None:
    """Remove temporary files of killed builds from the folders of these modules."""
    for folder in {root.joinpath(*name.split(".")).parent for name in modules for root in roots}:
        temporary.sweep(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock `folder` against other builds. The folder itself is locked, so no lock file stays behind.

    Where it cannot be locked, as on some network file systems, or cannot be made, the block runs without a lock.
    """
    import fcntl  # noqa: PLC0415 (Windows has none, and refuses builds in one line)

    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    descriptor = None
    try:
        with suppress(OSError):
            if new_folders:
                folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        for path in new_folders:
            with suppress(OSError):  # something was written into it
                path.rmdir()
        if descriptor is not None:
            os.close(descriptor)


class _Change:
    """A set of files and folders that replace others."""

    def __init__(self, since: int | None) -> None:
        self.at: Path | None = None
        self._since = since
        self._new: dict[Path, Path] = {}
        self._old: dict[Path, Path] = {}
        self._moved: list[tuple[Path, Path]] = []
        self._folders: list[Path] = []

    def prepare(self, target: Path, content: Mapping[str, bytes]) -> None:
        """Write a file, whose content has the name "", or a folder with the files of `content`, next to `target`."""
        self.at = target
        missing = [path for path in target.parents if not path.exists()]
        for path in reversed(missing):
            self._folders.append(path)
            path.mkdir()
        if not missing:
            temporary.sweep(target.parent)
        self._new[target] = new = target.with_name(temporary.make_name(f".{target.name}."))
        self.remove(target)
        for name, data in content.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if self._since is not None:
                os.utime(path, ns=(self._since, self._since))
            _keep_time(path, target / name, data)
        if self._since is not None:
            os.utime(new, ns=(self._since, self._since))

    def remove(self, target: Path) -> None:
        """Plan to remove `target`."""
        self._old[target] = target.with_name(temporary.make_name(f".{target.name}."))

    def make(self) -> None:
        """Move all new files into place."""
        for target in sorted(self._old, key=lambda path: path.suffix != ".py"):
            if target.is_file() or target.is_dir() or target.is_symlink():
                self._move(target, self._old[target])
            elif target.exists():
                message = f"{target} is a pipe or a device, where a file is to be written; remove it"
                raise BuildError(message)
        for target in sorted(self._new, key=lambda path: path.suffix == ".py"):
            self._move(self._new[target], target)

    def undo(self) -> None:
        """Restore the previous state."""
        while self._moved:
            source, target = self._moved.pop()
            with suppress(OSError):
                if not source.exists():  # otherwise the move was recorded, but did not happen
                    target.rename(source)
        for path in self._new.values():
            temporary.remove(path)
        for path in reversed(self._folders):
            with suppress(OSError):  # it does not exist, or another process uses it
                path.rmdir()

    def tidy(self) -> None:
        """Remove the replaced files."""
        for path in self._old.values():
            temporary.remove(path)

    def _move(self, source: Path, target: Path) -> None:
        self.at = min(source, target, key=lambda path: len(path.name))  # the other name is temporary
        self._moved.append((source, target))  # before the move: an interrupt may come right after it
        source.rename(target)


_REMEDIES = {
    errno.EEXIST: "remove that",
    errno.ENOTDIR: "remove that",
    errno.EACCES: "give this user write permission",
    errno.EPERM: "give this user write permission",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.ENAMETOOLONG: "give it a shorter name",
}
"""By cause, the remedy for a failed write that applies in addition to another place."""


def _not_written(path: Path, error: OSError, otherwise: str) -> BuildError:
    """Return the error for a failed write; `otherwise` is the last remedy."""
    is_in_the_way = error.errno in (errno.EEXIST, errno.ENOTDIR)
    reason = "a file is where a folder would be" if is_in_the_way else error.strerror
    remedy = ", or ".join(filter(None, [_REMEDIES.get(error.errno or 0), otherwise]))
    return BuildError(f"{path} cannot be written ({reason}); {remedy}")


def _keep_time(path: Path, old: Path, data: bytes) -> None:
    """Keep the time of a replaced file with the same content."""
    with suppress(OSError):  # the old file is missing or unreadable
        if not old.is_symlink() and old.is_file() and old.read_bytes() == data:
            status = old.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _has_content(target: Path, content: Mapping[str, bytes]) -> bool:
    """Return True if a file or folder has exactly this content, given as for `_Change.prepare`."""
    with suppress(OSError):  # an unreadable file is replaced
        if target.is_symlink():
            return False
        if "" in content:
            return target.is_file() and target.read_bytes() == content[""]
        paths = [path for path in target.rglob("*") if path.is_symlink() or not path.is_dir()]
        files = {path.relative_to(target).as_posix(): path for path in paths}
        return files.keys() == content.keys() and all(
            path.is_file() and not path.is_symlink() and path.read_bytes() == content[name]
            for name, path in files.items()
        )
    return False


def _group(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Group files by the unit that is replaced: data folders, and single files under the name ""."""
    groups: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        parents = [str(path) for path in Path(name).parents if path.name.endswith(manifest.FOLDER_SUFFIX)]
        top = parents[-1] if parents else name
        groups.setdefault(top, {})[name[len(top) + 1 :]] = data
    return groups
