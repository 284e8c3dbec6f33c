"""Make the run time that a wheel holds as a private package, with `runtime = "bundled"`.

The private package `mypkg._aotcuda` is a copy of the modules of aotcuda that a launch by the general path can need.
Imports of aotcuda are rewritten to import the copy: in the copy itself, and in the wheel's copies of the project's
modules. Lines keep their numbers.
"""

from __future__ import annotations

import ast
import functools
import os
import shutil
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.emit import sbom, wheel_files
from aotcuda.errors import BuildError, ConfigError
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aotcuda.builder.config.model import Config
    from aotcuda.builder.emit.built import Output

NAME = "_aotcuda"
VERSION = "VERSION"
"""The file of a private copy that has the version of aotcuda."""

_ROOT = Path(manifest.__file__).parents[1]
_ROOT_MODULES = (
    "aotcuda.bundled",
    "aotcuda.runtime.module",
    "aotcuda.numba",
    "aotcuda.numba_cuda_mlir",
    "aotcuda.triton",
)
"""The modules that packaged modules and sources import; the others are found by imports."""

_EXCLUDED = ("aotcuda.builder", "aotcuda.tools", "aotcuda.binary", "aotcuda.runtime.launch.fast._launch")
"""Parts of aotcuda that only an installed one has: builds, commands, and the fast path in C."""

_IN_PLACE_MODULES = {
    "aotcuda.numba": ("aotcuda.integrations.in_place", "entry"),
    "aotcuda.numba_cuda_mlir": ("aotcuda.integrations.in_place", "entry"),
    "aotcuda.triton": ("aotcuda.integrations.in_place.triton", "entry"),
}
"""Modules for sources that are packaged in place, with the parts of the chosen run time that they import."""

_ERRORS = """

from {package}.bundled import installed_errors as _installed_errors

globals().update(_installed_errors(globals()))
"""


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change of one line: the columns (in bytes) of the replaced text, and the new text."""

    line: int
    start: int
    end: int
    text: str


def add_run_time(built: Output, settings: Config, package_root: Path) -> Output:
    """Return a build with the private copies of the run time, and with rewritten sources.

    Raises:
        ConfigError: A source imports a part of aotcuda that no bundled run time has, or a module is in no package.
    """
    contents = dict(built.files)
    for package in _packages(settings):
        contents |= files(package) | rewrite_sources(package_root, package)
    return replace(built, files=contents, sbom=sbom.with_run_time(built.sbom))


def sources(items: Sequence[manifest.Source], package_root: Path, module: str) -> list[manifest.Source]:
    """Return the sources of a module's manifest, with the digests of rewritten files."""
    rewritten = rewrite_sources(package_root, module.partition(".")[0])
    return [
        {**item, "sha256": manifest.digest(rewritten[item["path"]])} if item["path"] in rewritten else item
        for item in items
    ]


def remove_stale(folder: Path) -> None:
    """Remove private copies of earlier builds from a folder from which wheels are packed."""
    for version in folder.glob(f"*/{NAME}/{VERSION}"):
        shutil.rmtree(version.parent)


def age_rewritten_sources(folder: Path, paths: Iterable[str]) -> None:
    """Give rewritten sources in the folder of a wheel an old time, so the next build copies the originals again."""
    for name in paths:
        if name.endswith(".py") and f"/{NAME}/" not in name and not wheel_files.is_generated(folder / name):
            os.utime(folder / name, (0, 0))


def _packages(settings: Config) -> list[str]:
    names = [module.name for module in settings.modules]
    for name in names:
        if "." not in name:
            message = (
                f"tool.aotcuda.runtime: {name} is in no package, and a bundled run time needs one; move the "
                "module into a package"
            )
            raise ConfigError(message)
    return sorted({name.partition(".")[0] for name in names})


def files(package: str) -> dict[str, bytes]:
    """Return the files of the private package of `package`, by their paths from the folder that holds `package`."""
    copy = f"{package}.{NAME}"
    sources = _modules()
    contents = {}
    for name, path in sources.items():
        text = _rewrite(path.read_text(encoding="utf-8"), copy, sources, name)
        if name in _IN_PLACE_MODULES:
            module, attribute = _IN_PLACE_MODULES[name]
            line = f"from {copy}{module.removeprefix('aotcuda')} import {attribute} as _{attribute}"
            assert line in text  # noqa: S101 (tests build a bundle)
            part = f"{module}.{attribute}".removeprefix("aotcuda.")
            text = text.replace(line, f"import {copy}.bundled; _{attribute} = {copy}.bundled.part({part!r})")
        if name == "aotcuda.errors":
            text += _ERRORS.format(package=copy)
        contents[_path(package, path)] = text.encode()
    for path in (_ROOT / "py.typed", *sorted(_ROOT.glob("common/*.toml"))):
        contents[_path(package, path)] = path.read_bytes()
    contents[f"{package}/{NAME}/LICENSE"] = _licence()
    contents[f"{package}/{NAME}/{VERSION}"] = f"{__version__}\n".encode()
    return contents


def _licence() -> bytes:
    """Return the licence of aotcuda, from the checkout or the installed distribution."""
    file = _ROOT.parent / "LICENSE"
    if file.is_file():
        return file.read_bytes()
    text = metadata.distribution("aotcuda").read_text("licenses/LICENSE")
    if text is None:
        message = "the installed aotcuda has no licence file, and a bundled run time needs it; install aotcuda again"
        raise BuildError(message)
    return text.encode()


def rewrite_sources(package_root: Path, package: str) -> dict[str, bytes]:
    """Return the Python files of a package that import aotcuda, with imports of its private copy instead.

    Raises:
        ConfigError: A file imports a part of aotcuda that no bundled run time has.
    """
    sources = _modules()
    contents = {}
    for path in sorted((package_root / package).rglob("*.py")):
        if wheel_files.is_generated(path):
            continue
        data = path.read_bytes()
        if b"aotcuda" not in data:
            continue
        name = path.relative_to(package_root).as_posix()
        try:
            text = data.decode()
            changed = _rewrite(text, f"{package}.{NAME}", sources, name, is_project=True)
        except (SyntaxError, ValueError, UnicodeDecodeError):
            continue  # if the build imports the file, it reports the error
        if changed != text:
            contents[name] = changed.encode()
    return contents


def _path(package: str, path: Path) -> str:
    return f"{package}/{NAME}/{path.relative_to(_ROOT).as_posix()}"


@functools.cache  # aotcuda does not change while it builds
def _modules() -> Mapping[str, Path]:
    """Return the modules of a bundled run time, and their files."""
    paths = {_name(path): path for path in _ROOT.rglob("*.py")}
    modules: dict[str, Path] = {}
    queue = list(_ROOT_MODULES)
    while queue:
        name = queue.pop()
        if name in modules or name not in paths or name.startswith(_EXCLUDED):
            continue
        modules[name] = paths[name]
        queue.append(name.rpartition(".")[0])
        queue += _imported_names(ast.parse(paths[name].read_bytes()))
    return dict(sorted(modules.items()))


def _name(path: Path) -> str:
    return ".".join(("aotcuda", *path.relative_to(_ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{item.name}" for item in node.names)


def _rewrite(text: str, copy: str, sources: Mapping[str, Path], file: str, *, is_project: bool = False) -> str:
    """Return a module's text with imports of the private package `copy` in place of aotcuda."""
    lines = text.encode().splitlines(keepends=True)
    edits = sorted(
        _edits(ast.parse(text), copy, sources, file, lines, is_project=is_project),
        key=lambda item: -item.start,
    )
    for edit in edits:
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text.encode() + line[edit.end :]
    return b"".join(lines).decode()


def _edits(
    tree: ast.Module, copy: str, sources: Mapping[str, Path], file: str, lines: list[bytes], *, is_project: bool
) -> Iterator[_Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.partition(".")[0] != "aotcuda" or _is_excluded(item.name, sources):
                    continue
                if is_project:
                    _check(item.name, sources, file, node.lineno)
                name = f"{copy}{item.name.removeprefix('aotcuda')}"
                # Without `as`, the statement binds the top of the name.
                text = f"{name} as {item.asname}" if item.asname else f"{copy} as aotcuda"
                text += "" if item.asname or name == copy else f", {name} as _"
                yield _Edit(item.lineno, item.col_offset, item.end_col_offset or 0, text)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.partition(".")[0] != "aotcuda" or _is_excluded(node.module, sources):
                continue
            if is_project:
                _check(node.module, sources, file, node.lineno)
                for name in (item.name for item in node.names if node.module == "aotcuda"):
                    if (_ROOT / f"{name}.py").is_file():
                        _check(f"aotcuda.{name}", sources, file, node.lineno)
            start = lines[node.lineno - 1].index(b"aotcuda", node.col_offset)
            yield _Edit(node.lineno, start, start + len("aotcuda"), copy)
        elif isinstance(node, ast.Constant) and not is_project and _is_module_key(node.value, sources):
            text = repr(f"{copy}{str(node.value).removeprefix('aotcuda')}")
            yield _Edit(node.lineno, node.col_offset, node.end_col_offset or 0, text)


def _is_module_key(value: object, sources: Mapping[str, Path]) -> bool:
    """Return True if a string is the name of a module of the bundle, as keys of `sys.modules` are."""
    return isinstance(value, str) and "." in value and value in sources and value not in _IN_PLACE_MODULES


def _is_excluded(name: str, sources: Mapping[str, Path]) -> bool:
    """Return True if our own modules import this name only from an installed aotcuda."""
    return name.startswith(_EXCLUDED) and name not in sources


def _check(name: str, sources: Mapping[str, Path], file: str, line: int) -> None:
    if name not in sources:
        message = (
            f'{file}:{line}: {name} is not part of a bundled run time; set runtime = "installed", or remove the import'
        )
        raise ConfigError(message)
