"""Find the mark of a source that is packaged in place, and the modules with its kernels.

The mark of `mypkg/solver.py` is the file `mypkg/solver.aotcuda/in-place`. It says if the source belongs to a wheel or
an editable install, and has the names of modules with the SHA-256 of their manifests, as a generated module would. A
source tree without a build has no mark. The mark of a package, `mypkg/__init__.aotcuda/in-place`, serves the modules of
the package that have none.
"""

from __future__ import annotations

import os

from ...common import data_folder, variables
from ...runtime.module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...runtime.kernel import Kernel

MODULE = "__aotcuda__"
"""The name under which a source has its `Module`."""

_sources: dict[str, Source | None] = {}  # by the path of the mark
_decisions: dict[object, tuple[dict[str, Any], bool]] = {}  # by the name of a source; see `is_packaged`
_modules: dict[str, InPlaceModule] = {}  # by the path of the manifest


class InPlaceModule(Module):
    """The `Module` of a source that is packaged in place; its kernels have the semantics of their compiler."""

    def attribute(self, name: str) -> object:
        """Return an export by name; the source keeps its own names.

        Raises:
            AttributeError: The module does not export the name.
        """
        value = self._export(name)
        if value is None:
            raise self._unknown(name)
        return value

    def _kernel(self, name: str) -> Kernel:
        if self.manifest.get("by_grid"):
            from .triton.kernel import InPlaceKernel  # noqa: PLC0415 (not before a launch)

            return self._kernels.setdefault(name, InPlaceKernel(name, self._images, os.path.dirname(self.path)))
        from .kernel import PackagedKernel  # noqa: PLC0415 (not before a launch)

        return self._kernels.setdefault(name, PackagedKernel(name, self._images))


class Source:
    """A source that is packaged in place.

    Attributes:
        name: Its name as a module.
        namespace: Its names.
        editable: True in an editable install.
    """

    def __init__(self, name: str, namespace: dict[str, Any], path: str) -> None:
        self.name = name
        self.namespace = namespace
        self.editable = False
        self._path = path
        self._digests: dict[str, str] = {}
        self._problem = self._read()

    def own(self) -> InPlaceModule | None:
        """Return the module that packages its kernels under its own name; None if only other modules do."""
        return self._module(self.name) if self.name in self._digests else None

    def modules(self) -> list[InPlaceModule]:
        """Return the modules with kernels of this source, its own first.

        Raises:
            ManifestError: A file that the build wrote next to the source was altered.
        """
        if self._problem is not None:
            from ...errors import ManifestError  # noqa: PLC0415 (errors.py is not needed for an import)

            raise ManifestError(self._problem)
        names = sorted(self._digests, key=lambda name: name != self.name)
        return [self._module(name) for name in names]

    def _module(self, name: str) -> InPlaceModule:
        folder = os.path.dirname(os.path.dirname(self._path))  # of the source's file
        for _ in range(self.name.count(".")):
            folder = os.path.dirname(folder)
        path = os.path.join(folder, *name.split(".")) + data_folder.FOLDER_SUFFIX
        path = os.path.join(path, data_folder.FILE_NAME)
        if path not in _modules:
            namespace = self.namespace if name == self.name else {}
            _modules[path] = InPlaceModule(name, namespace, path, self._digests[name], editable=self.editable)
        return _modules[path]

    def _read(self) -> str | None:
        """Read the mark; return its problem, or None."""
        with open(self._path, encoding="utf-8", errors="replace") as file:
            first, *lines = file.read(1 << 16).split("\n") or [""]
        if first not in (data_folder.WHEEL, data_folder.EDITABLE):
            newer = first.startswith("aotcuda in-place ")
            what = "needs a newer aotcuda: pip install --upgrade aotcuda" if newer else "was altered"
            return f"{self._path} {what}{'' if newer else '; install the package again'}"
        self.editable = first == data_folder.EDITABLE
        for line in filter(None, lines):
            name, _, digest = line.partition(" ")
            if len(digest) != 64 or not digest.isalnum():
                return f"{self._path} was altered; install the package again"
            self._digests[name] = digest
        return None


def find_source(namespace: dict[str, Any]) -> Source | None:
    """Return the source of a namespace; None without a mark."""
    file, name = namespace.get("__file__"), _name(namespace)
    if not isinstance(file, str) or name == "__main__":  # a script belongs to no package
        return None
    folder, base = os.path.split(os.path.splitext(os.path.abspath(file))[0])
    path = _mark(folder if base == "__init__" else os.path.join(folder, base))
    source = _sources.get(path)
    if source is None or source.namespace is not namespace:  # a module may run again, or as __main__, too
        source = _sources[path] = Source(name, namespace, path) if os.path.isfile(path) else None
    return source


def is_switched_off() -> bool:
    """Return True in builds and with `AOTCUDA_IN_PLACE=0`; all sources then get their compiler itself.

    Raises:
        ConfigError: `AOTCUDA_IN_PLACE` has an unknown value.
    """
    variables.check("AOTCUDA_IN_PLACE")
    return os.environ.get("AOTCUDA_BUILDING") == "1" or os.environ.get("AOTCUDA_IN_PLACE") == "0"


def is_packaged(namespace: dict[str, Any]) -> bool:
    """Return True if the importing source or its package was built in place.

    It stores the `Module` of a source with kernels as `__aotcuda__` of the source.
    """
    name = namespace.get("__name__")
    decision = _decisions.get(name)
    if decision is None or decision[0] is not namespace:  # a program may use `nb.cuda` in a loop
        decision = _decisions[name] = namespace, _is_packaged(namespace)
    return decision[1]


def _is_packaged(namespace: dict[str, Any]) -> bool:
    source = find_source(namespace)
    if source is not None:
        module = source.own()
        if module is not None:
            namespace.setdefault(MODULE, module)
        return True
    folder = os.path.dirname(os.path.abspath(str(namespace.get("__file__", ""))))
    name = _name(namespace)
    if name == "__main__":
        return False
    for _ in range(name.count(".") + 1):
        if os.path.isfile(_mark(os.path.join(folder, "__init__"))):
            return True
        folder = os.path.dirname(folder)
    return False


def _mark(base: str) -> str:
    """Return the mark of a source, by its path without suffix."""
    return os.path.join(base + data_folder.FOLDER_SUFFIX, data_folder.IN_PLACE)


def _name(namespace: dict[str, Any]) -> str:
    """Return the name of a module, also if `python -m` runs it."""
    return str(getattr(namespace.get("__spec__"), "name", None) or namespace.get("__name__", ""))
