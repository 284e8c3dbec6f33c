"""Make the run time that a wheel holds as a private package, with `runtime = "bundled"`.

The private package `mypkg._aotcuda` is a copy of the folders of aotcuda that a launch needs. Their modules import each
other relatively. In the wheel's copies of the project's modules, imports of aotcuda name the private package; lines
keep their numbers. With `host-abi = true` the copy has the C extension of the installed aotcuda.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
import sysconfig
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
FOLDERS = ("cache", "common", "integrations/in_place", "manifest", "runtime")
FILES = (
    "__init__",
    "arch",
    "bundled",
    "errors",
    "gpus",
    "integrations/__init__",
    "numba",
    "numba_cuda_mlir",
    "registry",
    "triton",
    "typing",
    "version",
)
"""The folders and modules of a bundled run time."""

_EXTENSION = "runtime/launch/fast/_launch."
"""The beginning of the path of the C extension; its suffix depends on the platform."""


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
        contents |= files(package, extension=settings.host_abi) | rewrite_sources(package_root, package)
    warnings = built.warnings
    if settings.host_abi and extension_tag() is None:
        warning = (
            "tool.aotcuda.host-abi: the installed aotcuda has no C extension, so the bundled run time launches by "
            "Python; install a wheel of aotcuda for this platform"
        )
        warnings = (*warnings, warning)
    return replace(built, files=contents, sbom=sbom.with_run_time(built.sbom), warnings=warnings)


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


def files(package: str, *, extension: bool = False) -> dict[str, bytes]:
    """Return the files of the private package of `package`, by their paths from the folder that holds `package`.

    With `extension`, they have the C extension of the installed aotcuda, if it has one.
    """
    paths = [*modules().values(), _ROOT / "py.typed", *sorted(_ROOT.glob("common/*.toml"))]
    found = _extension() if extension else None
    paths += [found] if found is not None else []
    contents = {f"{package}/{NAME}/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in paths}
    contents[f"{package}/{NAME}/LICENSE"] = _licence()
    contents[f"{package}/{NAME}/{VERSION}"] = f"{__version__}\n".encode()
    return contents


def is_extension(name: str) -> bool:
    """Return True if a file of a wheel is the C extension of a private copy."""
    return f"/{NAME}/{_EXTENSION}" in name


def extension_tag() -> str | None:
    """Return the wheel tag of the installed aotcuda if it has the C extension, else None.

    An editable install has no such tag; its extension is for this machine.
    """
    extension = _extension()
    if extension is None:
        return None
    try:
        text = metadata.distribution("aotcuda").read_text("WHEEL") or ""
    except metadata.PackageNotFoundError:
        text = ""
    tags = [line.partition(":")[2].strip().split("-") for line in text.splitlines() if line.startswith("Tag:")]
    if tags and all(len(parts) == 3 and parts[2] != "any" for parts in tags):
        return "-".join([".".join(sorted(set(column))) for column in zip(*tags, strict=True)])
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    python = f"{version}-{version}t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "cp311-abi3"
    return f"{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _extension() -> Path | None:
    """Return the C extension of the installed aotcuda, None if it has none."""
    folder, _, name = _EXTENSION.rpartition("/")
    found = [path for path in (_ROOT / folder).glob(f"{name}*") if path.suffix in (".so", ".pyd")]
    return min(found, default=None)


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
    sources = modules()
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
            changed = _rewrite(text, f"{package}.{NAME}", sources, name)
        except (SyntaxError, ValueError, UnicodeDecodeError):
            continue  # if the build imports the file, it reports the error
        if changed != text:
            contents[name] = changed.encode()
    return contents


def modules() -> Mapping[str, Path]:
    """Return the modules of a bundled run time, and their files."""
    paths = [_ROOT / f"{name}.py" for name in FILES]
    for folder in FOLDERS:
        paths += sorted((_ROOT / folder).rglob("*.py"))
    return {_name(path): path for path in paths}


def _name(path: Path) -> str:
    return ".".join(("aotcuda", *path.relative_to(_ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _rewrite(text: str, copy: str, sources: Mapping[str, Path], file: str) -> str:
    """Return a module's text with imports of the private package `copy` in place of aotcuda."""
    lines = text.encode().splitlines(keepends=True)
    edits = sorted(_edits(ast.parse(text), copy, sources, file, lines), key=lambda item: -item.start)
    for edit in edits:
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text.encode() + line[edit.end :]
    return b"".join(lines).decode()


def _edits(tree: ast.Module, copy: str, sources: Mapping[str, Path], file: str, lines: list[bytes]) -> Iterator[_Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.partition(".")[0] != "aotcuda":
                    continue
                _check(item.name, sources, file, node.lineno)
                name = f"{copy}{item.name.removeprefix('aotcuda')}"
                # Without `as`, the statement binds the top of the name.
                text = f"{name} as {item.asname}" if item.asname else f"{copy} as aotcuda"
                text += "" if item.asname or name == copy else f", {name} as _"
                yield _Edit(item.lineno, item.col_offset, item.end_col_offset or 0, text)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.partition(".")[0] != "aotcuda":
                continue
            _check(node.module, sources, file, node.lineno)
            for name in (item.name for item in node.names if node.module == "aotcuda"):
                if (_ROOT / f"{name}.py").is_file():
                    _check(f"aotcuda.{name}", sources, file, node.lineno)
            start = lines[node.lineno - 1].index(b"aotcuda", node.col_offset)
            yield _Edit(node.lineno, start, start + len("aotcuda"), copy)


def _check(name: str, sources: Mapping[str, Path], file: str, line: int) -> None:
    if name not in sources:
        message = (
            f'{file}:{line}: {name} is not part of a bundled run time; set runtime = "installed", or remove the import'
        )
        raise ConfigError(message)
