"""Find the installed distribution of a module, also of a module that is imported under another top-level name.

A package may put a folder of its own onto `sys.path`. The name of a module in this folder then lacks the name of the
package, and the module can be imported only after the package.
"""

from __future__ import annotations

import functools
import sys
from importlib import metadata, util

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def of_module(module: str) -> metadata.Distribution | None:
    """Return the installed distribution with the file of a module, or None."""
    named = [metadata.distribution(name) for name in dict.fromkeys(_of_packages().get(module.partition(".")[0], ()))]
    if len(named) == 1:
        return named[0]
    if named:
        return next((each for each in named if any(path in _files(module) for path in _paths(each))), None)
    file = getattr(sys.modules.get(module), "__file__", None)
    return next((each for each, path in _owners(module) if file in (None, str(each.locate_file(path)))), None)


@functools.cache
def packages_to_import(module: str) -> list[str]:
    """Return the packages that may make a module importable; none if its top-level package can be imported."""
    top = module.partition(".")[0]
    if top in sys.modules or util.find_spec(top) is not None:
        return []
    owners = {each.name for each, _ in _owners(module)}
    return [package for package, names in sorted(_of_packages().items()) if owners.intersection(names)]


def _owners(module: str) -> Iterator[tuple[metadata.Distribution, str]]:
    """Yield each distribution that has the file of a module in a folder of a package, with its path."""
    ends = tuple(f"/{file}" for file in _files(module))
    for each in metadata.distributions():
        for path in _paths(each):
            if path.endswith(ends):
                yield each, path


def _files(module: str) -> tuple[str, str]:
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def _paths(distribution: metadata.Distribution) -> list[str]:
    return [line.partition(",")[0] for line in (distribution.read_text("RECORD") or "").splitlines()]


@functools.cache
def _of_packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
