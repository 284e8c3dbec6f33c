"""What every build back end does alike when a project names aotcuda.

The hook for hatchling and the plugin for setuptools follow it, and so may others. A back end hands over what it has
parsed (the table, the dependencies, the folders of packages) and builds inside
`aotcuda.builder.worker.interrupt.in_one_line`, once `check_alone` has seen that no other one does.

| of | a back end that lists the files to pack | one that packs a folder |
|---|---|---|
| a wheel | takes those of `staged`, leaves the project's `leftovers` out | calls `assemble` |
| its tag | `tag`; where that is None, `PURE_TAG`, unless the project has machine code of its own | the same |
| an editable install | `install` when all else has succeeded | `installed` around what is left to do |
| an sdist | has all files of the project | adds those of `named_files` |
| a bill of materials | that of `staged` | writes `built.sbom` as `SBOM_NAME` |
| a wheel that is whole | `check_sources`, `size_warnings` | the same |

`clean` undoes an editable install.
"""

from __future__ import annotations

import ast
import shutil
import sysconfig
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder import api, output, progress, run_time_requirement, sbom, source_tree, temporary
from aotcuda.common import project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence
    from pathlib import Path


PURE_TAG = "py3-none-any"
"""The tag of a wheel that depends on no system: what it gains are data, and a few lines of Python."""


SBOM_NAME = sbom.FILE_NAME
"""The name of the bill of materials in a wheel's folder `.dist-info/sboms` (PEP 770)."""

_MODULES = frozenset(["prelude", "source"])
"""Keys that may name a Python module, which need not be in a package of the wheel."""

_HEADERS = frozenset([".h", ".hh", ".hpp", ".cuh", ".inl", ".inc"])


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of a wheel, on disk until the back end has packed them.

    Attributes:
        folder: Where they lie.
        files: By the path of each, its name in the wheel.
        sbom: The bill of materials, for the wheel's folder `.dist-info/sboms`.
    """

    folder: Path
    files: dict[Path, str]
    sbom: Path

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
    if isinstance(found, list):
        raise ConfigError(project_file.LISTED)
    if not isinstance(found, dict):
        message = (
            f"pyproject.toml enables the {plugin} aotcuda and has no [tool.aotcuda] table; add one, or drop the "
            f"{plugin}"
        )
        raise ConfigError(message)
    return found


def check_alone(pyproject: Mapping[str, object], root: Path, builds: str) -> None:
    """Refuse a project that two back ends would build for: one that names setuptools and turns hatchling's hook on.

    Args:
        pyproject: The parsed pyproject.toml.
        root: The project's folder.
        builds: The back end that builds now, `hatchling` or `setuptools`.

    Raises:
        ConfigError: It is such a project.
    """
    system = pyproject.get("build-system", {})
    named = str(system.get("build-backend", "")) if isinstance(system, dict) else ""
    hook = uninstalled_hook.table(str(root))
    if hook is None or not (builds == "setuptools" or named.startswith("setuptools.")):
        return
    message = (
        f"pyproject.toml has {hook}, which is for hatchling, and setuptools is to build [tool.aotcuda] too; drop that "
        'table, or write build-backend = "hatchling.build"'
    )
    raise ConfigError(message)


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
    extensions: Mapping[str, Path] = MappingProxyType({}),
    quiet: bool = False,
    dependencies_key: str = "project.dependencies",
) -> api.Output:
    """Build what a project's wheel gains.

    Args:
        table: `[tool.aotcuda]`.
        root: The project's folder.
        packages: The folders that hold the packages of the wheel.
        dependencies: The project's own, as metadata has them.
        editable: The files are for an editable install.
        extensions: Extension modules that the back end has compiled, where they are not beside the sources.
        quiet: Show no progress.
        dependencies_key: Where its dependencies stand.

    Raises:
        AotcudaError: As for `aotcuda.builder.api.build`.
    """
    # Before anything is compiled: it may refuse.
    of_dependencies = run_time_requirement.warnings(dependencies, key=dependencies_key)
    watcher = progress.Progress() if quiet else None
    built = api.build(table, root, packages, editable=editable, extensions=extensions, watcher=watcher)
    return replace(built, warnings=(*built.warnings, *of_dependencies))


def report(built: api.Output, *, verbose: bool = False) -> list[str]:
    """What a build says at its end, when all is well: what it did; if `verbose`, what of it was slowest."""
    return progress.report(built.summary, verbose=verbose)


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


def size_warnings(built: api.Output, wheel: Path) -> list[str]:
    """What to say of a wheel that is whole, and near the size that package indexes take; the build may have said it."""
    return [] if progress.size_warnings(built.files) else progress.wheel_warnings(wheel)


def tag(table: Mapping[str, object]) -> str | None:
    """The tag of a wheel that depends on the host's system; None for one that does not (`PURE_TAG`).

    It is the name that wheels for one system have that no repair tool has looked at.
    """
    if not table.get("host-abi") and not _has_host_code(table):
        return None
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{system}"


def _has_host_code(table: Mapping[str, object]) -> bool:
    """Whether a front end of the table, which was checked before, makes images with code for the host's processor."""
    modules = table.get("modules")
    tables = modules.values() if isinstance(modules, dict) else ()
    of_project = table.get("frontend", registry.DEFAULT)
    names = {one.get("frontend", of_project) for one in tables if isinstance(one, dict)}
    found = [registry.find(name) for name in names if isinstance(name, str)]
    return any(one is not None and one.host_code for one in found)


def staged(built: api.Output) -> Staged:
    """The files of a wheel, written into a temporary folder.

    Raises:
        BuildError: They cannot be written.
    """
    folder = temporary.folder()
    try:
        content, beside = folder / "content", folder / "beside"
        written = output.write(built.files, content)
        (bill,) = output.write({SBOM_NAME: built.sbom}, beside)
    except BaseException:
        temporary.remove(folder)
        raise
    return Staged(folder, {path: path.relative_to(content).as_posix() for path in written}, bill)


def assemble(built: api.Output, folder: Path, fresh: Container[Path]) -> list[Path]:
    """Write the files of a wheel into the folder that it is packed from; returns their paths.

    Args:
        built: The files.
        folder: The folder, in which builds before this one may have left theirs.
        fresh: What the back end has put there now.

    Raises:
        BuildError: They cannot be written.
    """
    source_tree.remove_stale(folder, fresh)
    return output.write(built.files, folder)


def named_files(table: Mapping[str, object], root: Path) -> list[str]:
    """The files of the project that the table names, by their paths from its folder; what an sdist needs besides code.

    Whatever key a path stands under counts: front ends have keys of their own. The folders of `include-dirs` count with
    all that is in them, and headers beside a `.cu`. What sources link is found by its name: a file below the folder
    counts that is called as a string of the package ends, as in `declare_device(..., link=HERE / "csrc" / "norm.cu")`.
    Nothing is checked, since an sdist is made without building.
    """
    root = root.resolve()
    found = {path for key, text in _texts(table) for path in _files(text, root, folders=key == "include-dirs")}
    for name in _linked_names(path for path in found if path.suffix == ".py"):
        for path in root.rglob(name):
            parts = path.relative_to(root).parts
            if not any(part.startswith(".") or part in _NOT_SOURCES for part in parts[:-1]):
                found.update(_files("/".join(parts), root, folders=False))
    return sorted(path.relative_to(root).as_posix() for path in found if "__pycache__" not in path.parts)


_NOT_SOURCES = frozenset(["build", "dist", "node_modules"])
"""Folders that hold what builds have made."""


def _linked_names(sources: Iterable[Path]) -> set[str]:
    """The names of files that Python modules may link, and those of their packages: strings with such a suffix.

    The modules are read and not run. One that does not parse is left to the build, which says what is wrong with it.
    """
    modules = set(sources)
    for source in [*modules]:
        if (source.parent / "__init__.py").is_file():
            modules.update(source.parent.rglob("*.py"))
    found: set[str] = set()
    for module in modules:
        try:
            tree = ast.parse(module.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        found.update(PurePosixPath(text).name for text in texts if PurePosixPath(text).suffix in linkable.KINDS)
    return {name for name in found if not any(character in name for character in "*?[\0\n")}


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings in a table, at any depth, each with the key that it stands under; and the files of modules."""
    if isinstance(value, str):
        yield key, value
        if key in _MODULES:
            path = f"{value.replace('.', '/')}.py"
            yield from ((key, path), (key, f"src/{path}"))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _files(text: str, root: Path, *, folders: bool) -> Iterator[Path]:
    """The files below `root` that a path stands for, or a glob, or a folder; none if it is no path."""
    path = root / text
    try:
        found = [path] if path.exists() else [*root.glob(text)] if "*" in text else []
    except (ValueError, NotImplementedError, OSError):  # null characters, a glob from the root, a name of 300 letters
        return
    for each in found:
        if not each.resolve().is_relative_to(root) or ".." in each.parts:
            continue
        if folders and each.is_dir():
            yield from (inner for inner in each.rglob("*") if inner.is_file())
        if each.is_file():
            yield each
        if each.suffix == ".cu":
            yield from (beside for beside in each.parent.iterdir() if beside.suffix in _HEADERS)


def leftovers(root: Path) -> list[str]:
    """The files of editable builds in the project, which a wheel must not take in."""
    return source_tree.leftovers(root)


def install(built: api.Output, root: Path) -> list[str]:
    """Write the files of an editable build where the import system finds them; what the user should know.

    An editable install imports from the source tree, where files of the wheel are not seen.
    """
    return source_tree.install(built, root)


@contextmanager
def installed(built: api.Output, root: Path) -> Iterator[list[str]]:
    """`install` for a block that may fail: then the source tree is as it was."""
    with source_tree.installed(built, root) as said:
        yield said


def clean(table: Mapping[str, object], root: Path, packages: Sequence[Path] = ()) -> None:
    """Remove what editable builds left in the source tree; `packages` as for `build`."""
    source_tree.clean(table, root, packages)
