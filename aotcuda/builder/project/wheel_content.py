"""Compare the modules that a build imports with the modules that the wheel has, by the back end's own list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Content = Mapping[str, Path]
    """Files of the project by their names in the wheel."""


def import_roots(content: Content) -> list[Path]:
    """Return the project's folders from which the wheel's modules can be imported."""
    roots = (_import_root(name, path) for name, path in content.items() if name.endswith(".py"))
    return list(dict.fromkeys(root for root in roots if root is not None))


def check(table: Mapping[str, object], root: Path, content: Content, remedy: str) -> None:
    """Refuse modules whose package the wheel lacks, and sources that the wheel has under another name.

    Args:
        table: `[tool.aotcuda]`, not checked yet.
        root: The project's folder.
        content: The project's files in the wheel.
        remedy: How a package gets into the wheel; `{}` represents its folder.

    Raises:
        ConfigError: The wheel lacks a module's package, or renames a source.
    """
    modules = table.get("modules")
    for name, module in modules.items() if isinstance(modules, Mapping) else ():
        key = f'tool.aotcuda.modules."{name}"'
        _check_package(key, name.split(".")[:-1], root, content, remedy)
        source = module.get("source") if isinstance(module, Mapping) else None
        for text in source if isinstance(source, list) else [source]:
            if isinstance(text, str):
                _check_source(f"{key}.source", text, root, content)


def _check_package(key: str, parents: Sequence[str], root: Path, content: Content, remedy: str) -> None:
    if not parents:
        return
    package, folder = ".".join(parents), "/".join(parents)
    inside = {name: path for name, path in content.items() if name.startswith(f"{folder}/")}
    if not inside:
        folder_in_project = next((path for path in (root / "src" / folder, root / folder) if path.is_dir()), None)
        if folder_in_project is not None:  # others are misspelt; the build reports them
            advice = remedy.format(folder_in_project.relative_to(root).as_posix())
            message = f"{key}: the package {package} is missing from the wheel; {advice}"
            raise ConfigError(message)
    moved = [(name, path) for name, path in inside.items() if name.endswith(".py") and _import_root(name, path) is None]
    if moved and len(moved) == sum(name.endswith(".py") for name in inside):
        name, path = moved[0]
        place = path.relative_to(root).as_posix() if path.is_relative_to(root) else path
        message = (
            f"{key}: the wheel has {place} as {name}, and a build imports modules by their folders; name the "
            f"folder {parents[-1]}"
        )
        raise ConfigError(message)


def _check_source(key: str, source: str, root: Path, content: Content) -> None:
    """Refuse a Python module that is imported by one name in a build and by another one from the wheel."""
    names = [f"{source.replace('.', '/')}{ending}" for ending in (".py", "/__init__.py")]
    if any(name in content for name in names):
        return
    for name, path in content.items():
        if any(path == root / file for file in names):
            in_wheel = ".".join(PurePosixPath(name).with_suffix("").parts).removesuffix(".__init__")
            message = f'{key}: the wheel has {source} as {in_wheel}; write source = "{in_wheel}"'
            raise ConfigError(message)


def _import_root(name: str, path: Path) -> Path | None:
    """Return the folder from which a file is imported by its name in the wheel."""
    text = path.as_posix()
    return Path(text[: -len(name) - 1]) if text.endswith(f"/{name}") else None


def packages_content(modules: Iterable[tuple[str, str, Path]]) -> dict[str, Path]:
    """Return the content of a wheel by packages, names of files (empty for a folder) and their places."""
    return {"/".join([*filter(None, package.split(".")), name]): file for package, name, file in modules}
