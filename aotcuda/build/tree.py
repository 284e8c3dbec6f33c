"""Generated files inside a source tree, where an editable install needs them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.build import api, output

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def install(built: api.Output, root: Path) -> list[str]:
    """Write the files of an editable build into the source tree; returns what the user should know."""
    folder = root / built.package_root
    written = output.write(built.files, folder)
    folders = {path.parent for path in written if path.parent.name.endswith(manifest.FOLDER_SUFFIX)}
    tracked = sorted(path for path in {*written, *folders} if path.parent not in folders and not _ignored(path))
    if not tracked:
        return []
    names = " ".join(f"/{path.relative_to(root).as_posix()}{'/' * path.is_dir()}" for path in tracked)
    return [f"generated modules lie in the source tree and git does not ignore them; add to .gitignore: {names}"]


def clean(table: Mapping[str, object], root: Path) -> None:
    """Remove the generated files of every module that `table` names, and nothing that a person wrote."""
    modules = table.get("modules")
    for name in modules if isinstance(modules, dict) else ():
        for folder in (root, root / "src"):
            base = folder.joinpath(*str(name).split("."))
            for path in (base.with_name(f"{base.name}.py"), base.with_name(f"{base.name}.pyi")):
                if path.is_file() and api.is_generated(path):
                    path.unlink()
            data = base.with_name(f"{base.name}{manifest.FOLDER_SUFFIX}")
            if (data / manifest.FILE_NAME).is_file():
                shutil.rmtree(data)


def _ignored(path: Path) -> bool:
    """Whether git ignores `path`; True where there is no git or no repository, since then nothing is tracked."""
    git = shutil.which("git")
    if git is None:
        return True
    done = subprocess.run(
        [git, "check-ignore", "--quiet", path.name], cwd=path.parent, check=False, capture_output=True
    )
    return done.returncode != 1
