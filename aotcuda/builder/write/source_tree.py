"""Write and remove generated files in a source tree, where an editable install needs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.emit import wheel_files
from aotcuda.builder.project import files as project_files
from aotcuda.builder.write import output, temporary
from aotcuda.common import foreign, project_file
from aotcuda.common.stamp import TABLE
from aotcuda.errors import BuildError, ManifestError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from aotcuda.builder.emit.built import Output


def install(built: Output, root: Path) -> list[str]:
    """Write the files of an editable build into the source tree and return warnings."""
    with install_around(built, root) as warnings:
        return warnings


@contextmanager
def install_around(built: Output, root: Path) -> Iterator[list[str]]:
    """Do `install` around a block; if the block fails, restore the source tree.

    Files that only earlier builds wrote are removed. Otherwise a module that was renamed or removed from the table
    could still be imported, and no build would update it.
    """
    folder = root / built.package_root
    new_paths = {path for name in built.files for path in (folder / name, (folder / name).parent)}
    with output.write_around(built.files, folder, removals=_editable_builds(root) - new_paths) as paths:
        yield _warnings_about_git(paths, root)


def _warnings_about_git(paths: list[Path], root: Path) -> list[str]:
    folders = {path.parent for path in paths if path.parent.name.endswith(manifest.FOLDER_SUFFIX)}
    tracked = sorted(path for path in {*paths, *folders} if path.parent not in folders and not _is_ignored(path))
    if not tracked:
        return []
    names = " ".join(f"/{path.relative_to(root).as_posix()}{'/' * path.is_dir()}" for path in tracked)
    return [f"generated modules are in the source tree and git does not ignore them; add to .gitignore: {names}"]


def clean(table: Mapping[str, object], root: Path, packages: Sequence[Path] = ()) -> None:
    """Remove the generated files of every module in `table`, and no other files.

    `packages` are further folders that hold packages.
    """
    modules = table.get("modules")
    for name in modules if isinstance(modules, dict) else ():
        for folder in (root, root / "src", *packages):
            base = folder.joinpath(*str(name).split("."))
            for path in (base.with_name(f"{base.name}.py"), base.with_name(f"{base.name}.pyi")):
                if path.is_file() and wheel_files.is_generated(path):
                    path.unlink()
            data = base.with_name(f"{base.name}{manifest.FOLDER_SUFFIX}")
            if (data / manifest.FILE_NAME).is_file():
                shutil.rmtree(data)
    for path in _editable_builds(root):  # earlier tables may have named other modules
        temporary.remove(path)
    for name in leftovers(root):  # marks of sources without kernels, which no table names
        is_mark = name.endswith(f"{manifest.FOLDER_SUFFIX}/{manifest.IN_PLACE}")
        if is_mark and not project_files.is_nested(root / name, root):
            shutil.rmtree((root / name).parent)


def leftovers(root: Path) -> list[str]:
    """Return the files that editable builds wrote into the project at `root`, by their paths from there.

    They may be of older sources, targets and tables. A wheel must not contain files that its build did not write, such
    as a module that was renamed since, or functions that are no longer exported.
    """
    return _generated_files(root, "editable")


def remove_stale(folder: Path, new_files: Container[Path]) -> None:
    """Remove files of earlier builds from a folder from which wheels are packed.

    Args:
        folder: The folder. It is not emptied between builds.
        new_files: The files that the back end has just copied into it. Among them, only files of editable builds are
            removed; other generated files came with the sources, such as a vendored package.
    """
    editable = {*leftovers(folder)}
    for name in _generated_files(folder, "editable", "wheel"):
        path = folder / name
        if name in editable or path not in new_files:
            path.unlink()
            for parent in path.relative_to(folder).parents:
                with suppress(OSError):  # it is not empty
                    (folder / parent).rmdir()


def _generated_files(root: Path, *kinds: str) -> list[str]:
    """Return the generated files of modules and data folders of these kinds, by their paths from a folder."""
    paths: set[Path] = set()
    for name, folders, files in project_files.walk(str(root)):
        folder = Path(name)
        for item in [*folders, *files]:
            path = folder / item
            base = path.with_suffix("") if path.suffix in (".py", manifest.FOLDER_SUFFIX) else None
            if base is not None and _kind(path) in kinds:
                data = base.with_suffix(manifest.FOLDER_SUFFIX)
                paths |= {path for path in data.rglob("*") if path.is_file()}
                modules = (base.with_suffix(".py"), base.with_suffix(".pyi"))
                paths |= {path for path in modules if path.is_file() and wheel_files.is_generated(path)}
    return sorted(path.relative_to(root).as_posix() for path in paths)


def _editable_builds(root: Path) -> set[Path]:
    """Return the modules and data folders of editable builds of the project at `root`, without nested projects."""
    files = [root / name for name in leftovers(root)]
    modules = {path.parent: name for path in files if path.name == manifest.FILE_NAME and (name := _module(path, root))}
    marks = {path for path in files if path.name == manifest.IN_PLACE and _modules_in_mark(path) & {*modules.values()}}
    return {path for path in files if path.with_suffix(manifest.FOLDER_SUFFIX) in modules}.union(
        modules, (path.parent for path in marks)
    )


def _module(path: Path, root: Path) -> str | None:
    """Return the module of a manifest if the table of the project at `root` built it, else None."""
    try:
        content = manifest.read(str(path))
    except ManifestError:
        return None
    folder = path.parent.parents[content["module"].count(".")]  # which holds the package
    table = Path(os.path.relpath(root / project_file.FILE_NAME, folder)).as_posix() + TABLE
    return content["module"] if any(source["path"] == table for source in content["sources"]) else None


def _modules_in_mark(mark: Path) -> set[str]:
    """Return the modules that the mark of a source names."""
    lines = foreign.read(mark, error=BuildError).decode(errors="replace").splitlines()[1:]
    return {line.partition(" ")[0] for line in lines}


def _kind(path: Path) -> str:
    """Return the kind of build that wrote a module or data folder, `editable` or `wheel`; empty for other files."""
    if path.suffix == ".py":
        if not (path.is_file() and wheel_files.is_generated(path)):
            return ""
        return "editable" if b"editable=True" in foreign.read(path, error=BuildError) else "wheel"
    mark = path / manifest.IN_PLACE
    if mark.is_file():
        text = foreign.read(mark, error=BuildError)
        kinds = {"editable": manifest.EDITABLE, "wheel": manifest.WHEEL}
        return next((kind for kind, line in kinds.items() if text.startswith(line.encode())), "")
    try:
        sources = manifest.read(str(path / manifest.FILE_NAME))["sources"]
    except ManifestError:
        return ""
    return "editable" if any(source["path"].endswith(TABLE) for source in sources) else "wheel"


def _is_ignored(path: Path) -> bool:
    """Return True if git ignores `path`, or if git or a repository is missing."""
    git = shutil.which("git")
    if git is None:
        return True
    process = subprocess.run(
        [git, "check-ignore", "--quiet", path.name], cwd=path.parent, check=False, capture_output=True
    )
    return process.returncode != 1
