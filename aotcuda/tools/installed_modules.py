"""Find the packaged modules that are installed in this environment without importing any.

A distribution lists its files. An editable install lists only a link, so its modules are those in the table of its
project, which the import system finds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aotcuda import manifest
from aotcuda.binary import targets
from aotcuda.common import project_file
from aotcuda.errors import AotcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MANIFEST = f"{manifest.FOLDER_SUFFIX}/{manifest.FILE_NAME}"
"""The end of the path of each manifest."""


@dataclass(frozen=True)
class InstalledModule:
    """A packaged module of an installed distribution.

    Attributes:
        name: `mypkg.kernels`; from the name of its folder if the manifest cannot be read.
        distribution: Name and version of its distribution.
        editable: True if the distribution is installed in editable mode.
        packaged: The module; None if it cannot be read.
        problem: The reason that the module cannot be read; empty otherwise.
    """

    name: str
    distribution: str
    editable: bool
    packaged: targets.PackagedModule | None = None
    problem: str = ""


def find() -> list[InstalledModule]:
    """Return all packaged modules, sorted by name."""
    modules = [module for distribution in metadata.distributions() for module in _modules_of(distribution)]
    return sorted(modules, key=lambda module: module.name)


def _modules_of(distribution: metadata.Distribution) -> Iterator[InstalledModule]:
    title = f"{distribution.name} {distribution.version}"
    for line in (distribution.read_text("RECORD") or "").splitlines():
        path = line.rsplit(",", 2)[0].strip('"')
        if path.endswith(_MANIFEST):
            folder = Path(str(distribution.locate_file(path))).parent
            name = Path(path).parent.as_posix().removesuffix(manifest.FOLDER_SUFFIX).replace("/", ".")
            yield _read(name, title, str(folder), editable=False)
    for name in _editable_modules(distribution):
        yield _read(name, title, name, editable=True)


def _read(name: str, title: str, target: str, *, editable: bool) -> InstalledModule:
    try:
        for module in targets.find(target):
            if isinstance(module, targets.PackagedModule):
                return InstalledModule(module.manifest["module"], title, editable=editable, packaged=module)
    except AotcudaError as error:
        return InstalledModule(name, title, editable=editable, problem=str(error))
    return InstalledModule(name, title, editable=editable, problem="it holds no module that aotcuda built")


def _editable_modules(distribution: metadata.Distribution) -> list[str]:
    """Return the modules in the table of an editable install's project; none for other installs."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not origin.get("dir_info", {}).get("editable"):
            return []
        project = Path(unquote(urlsplit(origin["url"]).path), project_file.FILE_NAME)
        return [*project_file.table(project_file.content(project), "tool", "aotcuda", "modules")]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):  # files of another tool
        return []
