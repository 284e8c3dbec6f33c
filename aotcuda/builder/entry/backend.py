"""Steps that all build back ends share: hatchling's hook and setuptools' plugin call them, and others may.

A back end passes the parsed table, the dependencies and the package folders. It builds inside
`aotcuda.builder.compile.interrupt.end_in_one_line`, after `check_single_back_end`.

| step | back end that lists the files to pack | back end that packs a folder |
|---|---|---|
| wheel | packs the files of `stage`, leaves out `source_tree.leftovers` | calls `assemble` |
| tag | `tag`, or `PURE_TAG` if there are no extension modules either | the same |
| editable install | `source_tree.install` after all other steps | `source_tree.install_around` around the other steps |
| sdist | calls `check_sdist`, adds `sdist_files`, leaves out `NOT_FOR_SDISTS` | the same |
| bill of materials | packs `StagedFiles.sbom` | writes `built.sbom` as `sbom.FILE_NAME` |
| packed wheel | `check_sources`, `size_warnings` | the same |

`source_tree.clean` undoes an editable install.
"""

from __future__ import annotations

import ast
import re
import shutil
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import manifest, registry
from aotcuda.builder.config.model import Options
from aotcuda.builder.emit import bundle, progress, report, sbom
from aotcuda.builder.entry import api
from aotcuda.builder.frontends import python_source
from aotcuda.builder.link import inputs
from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.project import files as files_of_project
from aotcuda.builder.project import run_time_requirement, wheel_content
from aotcuda.builder.write import output, source_tree, temporary
from aotcuda.common import foreign, project_file, triton_files, uninstalled_hook
from aotcuda.errors import BuildError, ConfigError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from aotcuda.builder.emit.built import Output
    from aotcuda.errors import AotcudaError


PURE_TAG = "py3-none-any"
"""The tag of a wheel without host code: its GPU code is data."""

_MODULES = frozenset(["prelude", "source"])
"""Keys that may name a Python module, which need not be in a package of the wheel."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The files of a wheel in a temporary folder, until the back end has packed them.

    Attributes:
        folder: The temporary folder.
        files: The name in the wheel of each file, by its path.
        sbom: The bill of materials, for the wheel's folder `.dist-info/sboms`.
    """

    folder: Path
    files: dict[Path, str]
    sbom: Path

    def discard(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def table(pyproject: Mapping[str, object], plugin: str) -> Mapping[str, object]:
    """Return `[tool.aotcuda]` of a parsed pyproject.toml that enables `plugin`, such as `hook`.

    Raises:
        ConfigError: There is no such table.
    """
    tools = pyproject.get("tool", {})
    settings = tools.get("aotcuda") if isinstance(tools, dict) else None
    if isinstance(settings, list):
        raise ConfigError(project_file.LISTED)
    if not isinstance(settings, dict):
        message = (
            f"pyproject.toml enables the {plugin} aotcuda and has no [tool.aotcuda] table; add one, or drop the "
            f"{plugin}"
        )
        raise ConfigError(message)
    return settings


def check_single_back_end(pyproject: Mapping[str, object], root: Path, back_end: str) -> None:
    """Refuse a project that names setuptools and also enables hatchling's hook: both would build it.

    Args:
        pyproject: The parsed pyproject.toml.
        root: The project's folder.
        back_end: The current back end, `hatchling` or `setuptools`.

    Raises:
        ConfigError: Two back ends would build the project.
    """
    system = pyproject.get("build-system", {})
    build_backend = str(system.get("build-backend", "")) if isinstance(system, dict) else ""
    hook = uninstalled_hook.enabled_table(str(root))
    if hook is None or not (back_end == "setuptools" or build_backend.startswith("setuptools.")):
        return
    message = (
        f"pyproject.toml has {hook}, which is for hatchling, and setuptools is to build [tool.aotcuda] too; drop that "
        'table, or write build-backend = "hatchling.build"'
    )
    raise ConfigError(message)


def check_settings(keys: Iterable[str], place: str) -> None:
    """Refuse keys in the back end's own table `place`, which only enables the plugin.

    Raises:
        ConfigError: The table has a key.
    """
    for name in sorted(keys):
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
    content: Mapping[str, Path] | None = None,
    remedy: str = "add {} to it",
) -> Output:
    """Build the files that a project's wheel gains.

    Args:
        table: `[tool.aotcuda]`.
        root: The project's folder.
        packages: The folders that hold the packages of the wheel.
        dependencies: The project's dependencies (PEP 508).
        editable: The files are for an editable install.
        extensions: Extension modules that the back end has compiled into another folder than the sources'.
        quiet: Show no progress.
        dependencies_key: The key of the dependencies, for messages.
        content: The project's files by their names in the wheel, if the back end passes them.
        remedy: How a package gets into the wheel, for messages; `{}` represents its folder.

    Raises:
        AotcudaError: As for `aotcuda.builder.entry.api.build`.
    """
    if content is not None:
        wheel_content.check(table, root, content, remedy)
        packages = [*packages, *wheel_content.import_roots(content)]
    is_bundled = table.get("runtime") == "bundled"
    requirement_warnings = [] if is_bundled else run_time_requirement.warnings(dependencies, key=dependencies_key)
    watcher = progress.Progress() if quiet else None
    built = api.build(table, root, packages, editable=editable, extensions=extensions, watcher=watcher)
    requirement_warnings += run_time_requirement.callback_warnings(
        dependencies, built.with_callbacks, key=dependencies_key
    )
    return replace(built, warnings=(*built.warnings, *requirement_warnings))


def check_sources(built: Output, included: Collection[str], read: Callable[[str], bytes]) -> None:
    """Refuse a wheel that lacks sources of its JIT fallback, or whose sources are not those that were compiled.

    Args:
        built: The build.
        included: The names of the wheel's files.
        read: A function that returns the content of a file of the wheel.

    Raises:
        ConfigError: A source is missing.
        BuildError: A source has another content.
    """
    for path, digest in sorted(built.sources.items()):
        if path in included and manifest.digest(read(path)) != digest:
            message = (
                f"{path} in the wheel is not the file that the kernels were compiled from, so it was saved during the "
                f"build, or by a later step; {python_source.WRITTEN_LATER}, and build again"
            )
            raise BuildError(message)
    for path, module in sorted(built.needed.items()):
        if path not in included:
            message = (
                f"tool.aotcuda.fallback: {path} is not in the wheel, and the JIT fallback would compile the kernels of "
                f'{module} from it; include it in the wheel, or set fallback = "error"'
            )
            raise ConfigError(message)


def with_later_steps(error: AotcudaError, steps: Sequence[str]) -> AotcudaError:
    """Return an error about a source that a later step may write, with the names of the steps after aotcuda's."""
    if not steps or python_source.WRITTEN_LATER not in str(error):
        return error
    return type(error)(f"{error} (after it run: {', '.join(steps)})")


def size_warnings(built: Output, wheel: Path) -> list[str]:
    """Return a warning if a packed wheel is near the size limit of package indexes, unless the build has warned."""
    return [] if report.size_warnings(built.files) else report.wheel_warnings(wheel)


def tag(table: Mapping[str, object]) -> str | None:
    """Return the platform tag of a wheel with host code, before repair; None for other wheels (`PURE_TAG`).

    A wheel with the C extension of the installed aotcuda has the tag of that wheel.
    """
    has_host_code = _has_host_code(table)
    if not table.get("host-abi") and not has_host_code:
        return None
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    is_bundled = table.get("host-abi") and table.get("runtime") == "bundled"
    of_extension = bundle.extension_tag() if is_bundled else None
    if of_extension is None:
        return f"py3-none-{system}"
    return f"{of_extension.rpartition('-')[0]}-{system}" if has_host_code else of_extension


def _has_host_code(table: Mapping[str, object]) -> bool:
    """Return True if a front end of the table, which has been checked before, makes images with host code."""
    modules = table.get("modules")
    tables = modules.values() if isinstance(modules, dict) else ()
    project_front_end = table.get("frontend", registry.DEFAULT)
    names = {item.get("frontend", project_front_end) for item in tables if isinstance(item, dict)}
    registrations = [registry.find(name) for name in names if isinstance(name, str)]
    return any(item is not None and item.host_code for item in registrations)


def stage(built: Output) -> StagedFiles:
    """Write the files of a wheel into a temporary folder.

    Raises:
        BuildError: A file cannot be written.
    """
    folder = temporary.make_folder()
    try:
        content, bill_folder = folder / "content", folder / "bill"
        paths = output.write(built.files, content)
        (bill,) = output.write({sbom.FILE_NAME: built.sbom}, bill_folder)
    except BaseException:
        temporary.remove(folder)
        raise
    return StagedFiles(folder, {path: path.relative_to(content).as_posix() for path in paths}, bill)


def assemble(built: Output, folder: Path, new_files: Container[Path]) -> list[Path]:
    """Write the files of a wheel into the folder from which it is packed, and return their paths.

    Args:
        built: The build.
        folder: The folder, which may have files of earlier builds.
        new_files: The files that the back end has copied there in this build.

    Raises:
        BuildError: A file cannot be written.
    """
    source_tree.remove_stale(folder, new_files)
    bundle.remove_stale(folder)
    paths = output.write(built.files, folder)
    bundle.age_rewritten_sources(folder, built.files)
    return paths


def sdist_files(table: Mapping[str, object], root: Path) -> list[str]:
    """Return the files that an sdist needs in addition to code, relative to the project's folder.

    The files are all paths in the table, under any key, because each front end has other keys; all files in
    `include-dirs`; linked files, found by name: a string in a Python file of the package ends with it, as in
    `declare_device(..., link=HERE / "csrc" / "norm.cu")`; and the headers that `.cu` files and `nvrtc-options` include.
    Nothing is checked, since an sdist is made without a build.
    """
    root = root.resolve()
    texts = [*_texts(table)]
    files = {path for key, text in texts for path in _files(text, root, folders=key == "include-dirs")}
    linked = _linked_names(path for path in files if path.suffix == ".py")
    for folder, folders, names in files_of_project.walk(str(root)) if linked else ():
        folders[:] = [item for item in folders if not files_of_project.is_result(Path(folder, item))]
        for name in linked.intersection(names):
            files.update(_files(Path(folder, name).relative_to(root).as_posix(), root, folders=False))
    sources = []
    for path in files:
        if path.suffix == ".cu":
            with suppress(ConfigError):  # the build reports it
                sources.append(inputs.from_file(path, root, ""))
    options = Options(nvrtc_options=tuple(text for key, text in texts if key == "nvrtc-options"))
    with suppress(ValueError):  # a wrong option, which the build reports
        found = Headers(sources, root, [text for key, text in texts if key == "include-dirs"], options)
        files |= found.project_files
        files |= {link for link in found.links if link.is_relative_to(root) and ".." not in link.parts}
    return sorted(path.relative_to(root).as_posix() for path in files if "__pycache__" not in path.parts)


def check_sdist(table: Mapping[str, object], root: Path) -> None:
    """Refuse an sdist of a project that links files outside of its folder.

    Raises:
        ConfigError: A linked file or a source is outside of the project.
    """
    root = root.resolve()
    modules = table.get("modules")
    for name, module in modules.items() if isinstance(modules, dict) else ():
        for key, text in _texts(
            {key: module.get(key) for key in ("link", "source")} if isinstance(module, dict) else {}
        ):
            is_file = PurePosixPath(text).suffix in linkable.KINDS and "\0" not in text
            if is_file and not inputs.place(root / text, root).is_relative_to(root):
                message = (
                    f'tool.aotcuda.modules."{name}".{"link" if key == "path" else key}: {text} is outside of the '
                    f"project, and an sdist has only the project's files; move it into {root}"
                )
                raise ConfigError(message)


NOT_FOR_SDISTS = (".aotcuda-record.json",)
"""Files that `aotcuda record` keeps in a project."""


_MAY_LINK = re.compile(rb"(?:%b)/*['\"{]" % "|".join(map(re.escape, linkable.KINDS)).encode())
"""The end of a string, or of a part of an f-string, with the name of a linkable file."""


def _linked_names(sources: Iterable[Path]) -> set[str]:
    """Return the names of files that modules and their packages may link: their strings with a linkable suffix.

    The modules are parsed, not run. The build reports a module that cannot be parsed.
    """
    modules = set(sources)
    for source in [*modules]:
        if (source.parent / "__init__.py").is_file():
            modules.update(source.parent.rglob("*.py"))
    names: set[str] = set()
    for module in modules:
        try:
            content = foreign.content(module)
            tree = ast.parse(content if _MAY_LINK.search(content) else b"")  # to parse all files takes seconds
        except (foreign.UnreadableError, SyntaxError, ValueError, RecursionError):
            continue
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        names.update(PurePosixPath(text).name for text in texts if PurePosixPath(text).suffix in linkable.KINDS)
    return {name for name in names if not any(character in name for character in "*?[\0\n")}


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all strings in a table with their keys, file paths of module names, and tuning files."""
    if isinstance(value, str):
        yield key, value
        if key in _MODULES:
            path = f"{value.replace('.', '/')}.py"
            yield from ((key, path), (key, f"src/{path}"))
        if key == "variants":
            yield key, triton_files.tuning_name(value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _files(text: str, root: Path, *, folders: bool) -> Iterator[Path]:
    """Yield the files below `root` that a path, a glob or (with `folders`) a folder names."""
    path = root / text
    try:
        matches = [path] if path.exists() else [*root.glob(text)] if "*" in text else []
    except (ValueError, NotImplementedError, OSError):  # null characters, a glob from the root, a name of 300 letters
        return
    for match in matches:
        if ".." in match.parts or not match.is_relative_to(root):
            continue
        if folders and match.is_dir():
            yield from (file for file in match.rglob("*") if file.is_file())
        if match.is_file():
            yield match
