"""Import the modules that hold the user's functions, in the worker, before anything is compiled."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from types import ModuleType


_installed_folders: list[str] = []
"""Folders of installed packages that may be inside the project's folder."""


class Placeholder:
    """A stand-in for a packaged kernel or function while the package that will hold it is being built.

    A package's `__init__` may import the modules that its wheel gains. The functions are compiled from modules of the
    same package, so the names must be importable before the functions exist. Using a placeholder is an error.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def _refuse(self, *_: object) -> Any:
        message = f"{self.__name__} is being built; it can be used once the package is installed"
        raise RuntimeError(message)

    __call__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return f"<{self.__name__}, being built>"


class _OwnModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find the modules that the wheel gains, filled with placeholders, and compiled extension modules.

    A back end has compiled the extension modules and put them into another folder than the project's sources.
    """

    def __init__(self, names: Mapping[str, Sequence[str]], extensions: Mapping[str, str]) -> None:
        self.names = names
        self.extensions = extensions

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname in self.names:
            return importlib.machinery.ModuleSpec(fullname, self)
        file = self.extensions.get(fullname)
        return importlib.util.spec_from_file_location(fullname, file) if file else None

    def exec_module(self, module: ModuleType) -> None:
        for name in self.names[module.__name__]:
            setattr(module, name, Placeholder(f"{module.__name__}.{name}"))
        module.__dict__["__aotcuda__"] = Placeholder(f"{module.__name__}.__aotcuda__")


class _FinderForOthers:
    """A wrapper of another package's finder, which finds no modules of the project.

    The finder of an editable install by meson-python or scikit-build-core comes before `sys.path`. It finds a package
    in its source tree, which may be another checkout; in this checkout it would start the running build again.
    """

    def __init__(self, finder: Any, is_own: Callable[[str], bool]) -> None:
        self._finder = finder
        self._is_own = is_own

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        return None if self._is_own(fullname) else self._finder.find_spec(fullname, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def _ownership_test(roots: Sequence[str], generated: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that returns True for the name of a module that belongs to the project in `roots`.

    A module that does not exist belongs to the project if the project has a package above it.
    """
    parents = {name.rpartition(".")[0] for name in generated}
    packages = {".".join(name.split(".")[:size]) for name in parents for size in range(1, name.count(".") + 2)}

    @functools.cache
    def is_own(fullname: str) -> bool:
        folders: Sequence[str] | None = roots
        parts = fullname.split(".")
        for size in range(1, len(parts) + 1):
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:size]), folders)
            if spec is None:
                return False
            if spec.loader is not None:
                return True
            folders = list(spec.submodule_search_locations or ())  # a namespace, which other projects may share
        return fullname in packages

    return is_own


_PYTHON_MODULES = ("_frozen_importlib", "importlib", "zipimport", "_distutils_hack")
"""Modules with finders of Python itself, and of setuptools."""


def prepare_imports(
    roots: Sequence[str],
    generated: Mapping[str, Sequence[str]],
    extensions: Mapping[str, str] = MappingProxyType({}),
    installed: str = "",
) -> None:
    """Make the project importable from `roots`, and the modules that its wheel gains importable as placeholders.

    Args:
        roots: The folders that contain the project's packages.
        generated: The modules that the wheel gains, with the names in each.
        extensions: The files of extension modules that are not in `roots`, by the modules' names.
        installed: A folder whose packages have precedence over those of the environment; may be empty.
    """
    sys.dont_write_bytecode = True
    sys.path[:0] = [*([installed] if installed else []), *(root for root in roots if root not in sys.path)]
    _installed_folders.extend([f"{Path(installed).resolve()}/"] if installed else [])
    is_own = _ownership_test(roots, generated)
    finders: list[Any] = [
        finder if _belongs_to_python(finder) else _FinderForOthers(finder, is_own) for finder in sys.meta_path
    ]
    sys.meta_path[:] = [_OwnModules(generated, extensions), *finders]
    importlib.invalidate_caches()
    packages = tuple(f"{Path(root, name.partition('.')[0])}/" for root in roots for name in generated)
    _distrust_bytecode(packages, tuple(f"{root.rstrip('/')}/" for root in roots))


def _belongs_to_python(finder: object) -> bool:
    finder_type = finder if isinstance(finder, type) else type(finder)
    return finder_type.__module__.partition(".")[0].startswith(_PYTHON_MODULES)


def _distrust_bytecode(packages: tuple[str, ...], roots: tuple[str, ...]) -> None:
    """Import the project's packages, and other modules below `roots` that are not installed, from sources alone.

    Python uses bytecode if the size and the time (in whole seconds) of the source match. After two edits in one second,
    old code would be compiled and stored under the digest of the new source.
    """
    loader = importlib.machinery.SourceFileLoader
    stats = loader.path_stats

    def path_stats(self: importlib.machinery.SourceFileLoader, path: str) -> Mapping[str, Any]:
        if path.startswith(packages) or _is_below(path, roots):
            raise OSError(path)  # Python ignores bytecode for a loader without file times
        return stats(self, path)

    loader.path_stats = path_stats  # type: ignore[method-assign]


def project_files(roots: Sequence[str], elsewhere: Container[str] = ()) -> tuple[manifest.Source, ...]:
    """Return the Python files below `roots` that have been imported, with their digests; the paths are absolute.

    Files in `elsewhere` are left out, because they are in no source tree.
    """
    folders = with_resolved(roots)
    paths = {path for path in files_of(list(sys.modules), roots) if path not in elsewhere and _is_below(path, folders)}
    return tuple({"path": path, "sha256": manifest.digest(Path(path).read_bytes())} for path in sorted(paths))


def file_of(module: object) -> str | None:
    """Return the file of an entry of `sys.modules`, which may be any object."""
    try:
        file = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001 (a lazy module may import a package that is not installed)
        return None
    return file if isinstance(file, str) else None


def files_of(names: Iterable[str], roots: Sequence[str]) -> set[str]:
    """Return the absolute paths of the modules' files.

    Paths below `roots` are not resolved, since wheels and stamps have the content of a symbolic link under its name.
    """
    folders = with_resolved(roots)
    resolved = functools.cache(os.path.realpath)  # a compiler has thousands of files, in a few folders
    paths = set()
    for path in filter(None, (file_of(sys.modules.get(name)) for name in names)):
        if path.startswith(folders) and os.path.isfile(path):  # noqa: PTH113 (thousands of Path objects are slow)
            paths.add(os.path.normpath(path))
            continue
        if os.path.islink(path):  # noqa: PTH114 (as above)
            path = os.path.realpath(path)  # noqa: PLW2901
        if os.path.isfile(path):  # noqa: PTH113 (as above)
            folder, name = os.path.split(path)
            paths.add(os.path.join(resolved(folder), name))  # noqa: PTH118 (as above)
    return paths


def is_of_project(file: str, roots: Sequence[str]) -> bool:
    """Return True if a file is below a folder of the project, and not in an environment there."""
    folders = with_resolved(roots)
    return _is_below(os.path.normpath(file), folders) or _is_below(str(Path(file).resolve()), folders)


def with_resolved(roots: Iterable[str]) -> tuple[str, ...]:
    """Return folders with a slash at the end, each as it is and without symbolic links."""
    both = [path for root in roots for path in (os.path.abspath(root), os.path.realpath(root))]  # noqa: PTH100
    return tuple(dict.fromkeys(f"{path.rstrip('/')}/" for path in both))


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    is_installed = "site-packages" in Path(path).parts or path.startswith(tuple(_installed_folders))
    return not is_installed and path.startswith(folders)
