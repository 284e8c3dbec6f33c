"""Read the configuration's `link`: files, packaged modules, and callbacks that can be found by name."""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.binary import targets
from aotcuda.builder.frontends.protocol import Callbacks, LinkInput
from aotcuda.common import data_folder, foreign
from aotcuda.common.stamp import TABLE
from aotcuda.errors import ConfigError, ManifestError, SourceError, TargetError
from aotcuda.manifest.linkable import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aotcuda.builder.config.model import LinkItem


OUTSIDE = "outside"
"""The folder for copies of linked files that are not in the project."""

LARGEST = 1 << 30
"""The size limit of a linked file, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The items of one module's `link`, read."""

    inputs: tuple[LinkInput, ...]
    callbacks: tuple[Callbacks, ...]


def read(items: Iterable[LinkItem], root: Path, built: Mapping[str, Linked]) -> Linked:
    """Read the files that `items` name, relative to the project's folder `root`, and check the callbacks.

    `built` has modules of the same wheel, which have precedence over installed modules.

    Raises:
        ConfigError: A file cannot be read.
        SourceError: A callback cannot be imported or called.
    """
    inputs: list[LinkInput] = []
    callbacks: list[Callbacks] = []
    for item in items:
        if item.module is not None:
            module = built.get(item.module) or from_module(item.module, item.key)
            inputs += module.inputs
            callbacks += module.callbacks
        else:
            inputs.append(from_file(root / str(item.path), root, item.key))
        for kind in ("setup", "teardown"):
            name = getattr(item, kind)
            if name is not None:
                _check_callback(name, f"{item.key}.{kind}")
        if item.setup is not None or item.teardown is not None:
            origin = str(item.path or item.module)
            callbacks.append(Callbacks(setup=item.setup, teardown=item.teardown, origin=origin))
    return Linked(inputs=tuple(inputs), callbacks=tuple(callbacks))


def from_file(path: Path, root: Path, key: str) -> LinkInput:
    """Return the file at `path` as a link input; its name is relative to `root` if possible, and keeps symbolic links.

    Raises:
        ConfigError: It cannot be read, or its suffix is unknown.
    """
    kind = KINDS.get(path.suffix)
    if kind is None:
        message = f"{key}: {path.name} has no suffix that can be linked; use one of {', '.join(KINDS)}"
        raise ConfigError(message)
    try:
        data = foreign.content(path, LARGEST)
    except foreign.UnreadableError as error:
        message = f"{key}: {foreign.escape(path)} {error}; {remedy_for(path, root)}"
        raise ConfigError(message) from None
    absolute = place(path, root)
    plain = Path(os.path.normpath(path))
    named = plain if plain.is_relative_to(root) and plain.resolve() == path.resolve() else absolute
    name = named.relative_to(root).as_posix() if named.is_relative_to(root) else absolute.name
    return LinkInput(kind=kind, name=name, data=data, folder=str(absolute.parent))


def place(path: Path, root: Path) -> Path:
    """Return the absolute path of a file: in the project's folder `root` if possible, else without symbolic links.

    A folder of the project may be a symbolic link that leads out of it. Its files have their paths below the link.
    A file that is a symbolic link has the path that it leads to, since its headers are there.
    """
    resolved = path.resolve()
    if path.is_symlink():
        return resolved
    plain = Path(os.path.normpath(path))
    if resolved.is_relative_to(root) or not plain.is_relative_to(root):
        return resolved
    return plain if plain.resolve() == resolved else resolved


def outside_folders(items: Iterable[str], root: Path) -> dict[Path, str]:
    """Return the folders outside of the project with linked files, each with its name among a wheel's copies.

    Args:
        items: The paths of linked files, as the table has them.
        root: The project's folder.
    """
    places = [place(root / item, root) for item in items]
    folders = {path.parent for path in places if not path.is_relative_to(root)}
    ordered = sorted(folders, key=lambda folder: os.path.relpath(folder, root))
    return {folder: f"{OUTSIDE}/{number}" for number, folder in enumerate(ordered)}


def carried_name(path: Path, root: Path, outside: Mapping[Path, str]) -> str | None:
    """Return the name of a file among a wheel's copies; None for a file that wheels do not hold.

    Args:
        path: The absolute path of a file as `place` returns it.
        root: The project's folder.
        outside: The result of `outside_folders`.
    """
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    folder = next((folder for folder in path.parents if folder in outside), None)
    return None if folder is None else f"{outside[folder]}/{path.relative_to(folder).as_posix()}"


def remedy_for(path: Path, root: Path) -> str:
    """Return the remedy for an unreadable file that the table names. Sdists lack files that git ignores."""
    if not path.exists() and (root / "PKG-INFO").is_file():
        if not place(path, root).is_relative_to(root):
            return "it is outside of the project, and an sdist has only the project's files; move it into the project"
        return (
            "the sdist lacks it: enable the hook by [tool.hatch.build.hooks.aotcuda], or list the file in "
            "tool.hatch.build.targets.sdist.artifacts (setuptools: MANIFEST.in)"
        )
    return "paths are relative to the folder of pyproject.toml"


def from_module(name: str, key: str) -> Linked:
    """Return the device functions of the packaged module `name`, with their link inputs and callbacks.

    Raises:
        ConfigError: The module is not installed, not built by aotcuda, damaged, exports no functions, or is an
            editable install whose sources were edited after its build.
    """
    try:
        module = targets.find_module(name)
        document = module.manifest
        files = tuple((file["path"], manifest.read_file(str(module.path), file)) for file in document["function_links"])
    except (TargetError, ManifestError) as error:
        message = f"{key}: {error}; add the package to build-system.requires, or correct the name"
        raise ConfigError(message) from None
    if "functions" not in module.files:
        message = f"{key}: {name} exports no device functions, so there is nothing to link"
        raise ConfigError(message)
    if (changed := _edited(module)) is not None:
        message = f"{key}: {name} was built before {changed}; install that project again: pip install -e ..."
        raise ConfigError(message)
    callbacks = tuple(
        Callbacks(setup=item["setup"], teardown=item["teardown"], origin=item["origin"])
        for item in document["callbacks"]
    )
    return packaged(name, module.files["functions"], module.files.get("header", b""), files, callbacks)


def _edited(module: targets.PackagedModule) -> str | None:
    """Return the first change of an editable install's sources after its build, or None."""
    for path, digest in editable_sources(module).items():
        if not path.is_file():
            return f"{path} was removed"
        if manifest.digest(foreign.read(path, LARGEST, error=ConfigError)) != digest:
            return f"{path} was edited"
    return None


def editable_sources(module: targets.PackagedModule) -> dict[Path, str]:
    """Return the source files of an editable install with their digests at its build; none for other modules."""
    name, folder = module.manifest["module"], module.path
    python = folder.with_suffix(".py") if folder is not None else None
    try:
        if python is None or b"editable=True" not in python.read_bytes():
            return {}
    except OSError:
        return {}
    root = Path(data_folder.linked_file(str(python.absolute()))).parents[name.count(".")]
    return {
        Path(os.path.normpath(root / source["path"])): source["sha256"]
        for source in module.manifest["sources"]
        if not source["path"].endswith(TABLE)
    }


def packaged(
    name: str, functions: bytes, header: bytes, files: Iterable[tuple[str, bytes]], callbacks: tuple[Callbacks, ...]
) -> Linked:
    """Return a module's device functions as link items; `files` has the files that they need in a link."""
    links = [
        LinkInput(kind=KINDS[PurePath(path).suffix], name=f"{name} {path}", data=data, module=name)
        for path, data in files
    ]
    functions_input = LinkInput(kind="fatbin", name=name, data=functions, module=name, header=header)
    return Linked(inputs=(functions_input, *links), callbacks=callbacks)


def importable_name(function: Callable[..., object], kind: str) -> str:
    """Return the name by which `function` can be imported: `mypkg._hooks:upload`.

    Raises:
        SourceError: It cannot be imported by its name, like a lambda or a nested function.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    value: object = None
    if module and name and "<" not in name:
        try:
            value = importlib.import_module(module)
            for part in name.split("."):
                value = getattr(value, part)
        except (ImportError, AttributeError):
            value = None
    if value is not function:
        name_text = name or type(function).__name__
        message = (
            f"the {kind} callback {name_text} of {module} cannot be packaged: it is called by its importable name at "
            "run time, and a lambda or a function inside another one has none; define it at the top of a module"
        )
        raise SourceError(message)
    check_parameter(function, f"the {kind} callback {module}:{name}")
    return f"{module}:{name}"


def _check_callback(name: str, key: str) -> None:
    """Refuse a callback that cannot be imported or called."""
    module, _, attribute = name.partition(":")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        message = f"{key}: {module} cannot be imported: {error}"
        raise SourceError(message) from error
    except AttributeError:
        message = f"{key}: {module} has no {attribute}; name a function as 'package.module:function'"
        raise SourceError(message) from None
    if not callable(value):
        message = f"{key}: {name} is of type {type(value).__name__}, which cannot be called; name a function"
        raise SourceError(message)
    check_parameter(value, f"{key}: {name}")


_NOT_RUN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_parameter(function: Callable[..., object], where: str) -> None:
    """Refuse a callback that cannot be called with one argument.

    Raises:
        SourceError: A call would run nothing, or it has no parameter, or more than one without a default.
    """
    if any(test(function) or test(type(function).__call__) for test in _NOT_RUN):
        message = f"{where} is a generator or a coroutine, which a call does not run; name an ordinary function"
        raise SourceError(message)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable of an extension module
        return
    try:
        signature.bind(None)
    except TypeError:
        message = (
            f"{where} is called with one argument, the loaded module, and takes {signature}; give it one parameter"
        )
        raise SourceError(message) from None
