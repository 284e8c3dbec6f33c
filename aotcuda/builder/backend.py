"""What every build back end does alike when a project names aotcuda: hatchling's hook follows it, and so may others.

A back end hands over what it has parsed (the table, the dependencies, the folders of packages) and builds inside
`aotcuda.builder.worker.interrupt.in_one_line`. For a wheel it takes the files of `staged` in, under `tag`, and leaves
the project's `leftovers` out; for an editable install it calls `install` when all else has succeeded, which `clean`
undoes.
"""

from __future__ import annotations

import shutil
import sysconfig
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.builder import api, output, run_time_requirement, source_tree, temporary
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path


PURE_TAG = "py3-none-any"
"""The tag of a wheel that depends on no system: what it gains are data, and a few lines of Python."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of a wheel, on disk until the back end has packed them.

    Attributes:
        folder: Where they lie.
        files: By the path of each, its name in the wheel.
    """

    folder: Path
    files: dict[Path, str]

    def discard(self) -> None:
        """Remove them."""
        shutil.rmtree(self.folder, ignore_errors=True)


def table(pyproject: Mapping[str, object], plugin: str) -> Mapping[str, object]:
    """`[tool.aotcuda]` of a parsed pyproject.toml that enables `plugin`, such as `hook`.

    Raises:
        ConfigError: There is none.
    """
    tools = pyproject.get("tool", {})
    found = tools.get("aotcuda") if isinstance(tools, dict) else None
    if not isinstance(found, dict):
        message = (
            f"pyproject.toml enables the {plugin} aotcuda and has no [tool.aotcuda] table; add one, or drop the "
            f"{plugin}"
        )
        raise ConfigError(message)
    return found


def check_settings(given: Iterable[str], place: str) -> None:
    """Refuse keys in the back end's own table, at `place`, that only enables the plugin.

    Raises:
        ConfigError: There are such.
    """
    for name in sorted(given):
        message = f"{place}.{name}: this table only enables the hook; configure it under [tool.aotcuda]"
        raise ConfigError(message)


def build(
    table: Mapping[str, object],
    root: Path,
    packages: Sequence[Path],
    dependencies: Iterable[str],
    *,
    editable: bool,
) -> api.Output:
    """Build what a project's wheel gains.

    Args:
        table: `[tool.aotcuda]`.
        root: The project's folder.
        packages: The folders that hold the packages of the wheel.
        dependencies: The project's own, as metadata has them.
        editable: The files are for an editable install.

    Raises:
        AotcudaError: As for `aotcuda.builder.api.build`.
    """
    of_dependencies = run_time_requirement.warnings(dependencies)  # before anything is compiled: it may refuse
    built = api.build(table, root, packages, editable=editable)
    return replace(built, warnings=(*built.warnings, *of_dependencies))


def check_sources(built: api.Output, included: Collection[str]) -> None:
    """Refuse a wheel without files that its JIT fallback would compile; `included` are the names of what it takes in.

    Raises:
        ConfigError: One is missing.
    """
    for path, module in sorted(built.needed.items()):
        if path not in included:
            message = (
                f"tool.aotcuda.fallback: {path} is not in the wheel, and the JIT fallback would compile the kernels of "
                f'{module} from it; include it in the wheel, or set fallback = "error"'
            )
            raise ConfigError(message)


def tag(table: Mapping[str, object]) -> str | None:
    """The tag of a wheel that depends on the host's system; None for one that does not (`PURE_TAG`).

    It is the name that wheels for one system have that no repair tool has looked at.
    """
    if not table.get("host-abi"):
        return None
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{system}"


def staged(built: api.Output) -> Staged:
    """The files of a wheel, written into a temporary folder.

    Raises:
        BuildError: They cannot be written.
    """
    folder = temporary.folder()
    try:
        written = output.write(built.files, folder)
    except BaseException:
        temporary.remove(folder)
        raise
    return Staged(folder, {path: path.relative_to(folder).as_posix() for path in written})


def leftovers(root: Path) -> list[str]:
    """The files of editable builds in the project, which a wheel must not take in."""
    return source_tree.leftovers(root)


def install(built: api.Output, root: Path) -> list[str]:
    """Write the files of an editable build where the import system finds them; what the user should know.

    An editable install imports from the source tree, where files of the wheel are not seen.
    """
    return source_tree.install(built, root)


def clean(table: Mapping[str, object], root: Path) -> None:
    """Remove what editable builds left in the source tree."""
    source_tree.clean(table, root)
