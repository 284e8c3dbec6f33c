"""Write the marks of sources that are packaged in place, which name the manifests with their kernels.

Each source with kernels has a mark in the data folder of its name. Sources without kernels do not need Numba: the mark
of their package's `__init__.py` is valid for them. A source in a folder without `__init__.py`, which distributions may
share, has its own mark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.builder.compile.job import Result


def files(
    results: Iterable[Result], built: Mapping[str, bytes], package_root: Path, *, editable: bool
) -> dict[str, bytes]:
    """Return the marks, by their path from the folder that holds the package.

    `built` are the files that the build has made so far, with the manifests among them.
    """
    digests: dict[str, str] = {}  # of the manifests, by module
    defined: dict[str, set[str]] = {}  # by source, the modules with its kernels
    sources: set[Path] = set()
    for result in results:
        for module in result.modules:
            if module.plan.in_place:
                name = module.plan.config.name
                data = built[f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}/{manifest.FILE_NAME}"]
                digests[name] = manifest.digest(data)
                kernels = [] if module.plan.config.pack else module.kernels  # a pack leaves its sources as they are
                for source in (name, *(kernel.definition.defined.partition(":")[0] for kernel in kernels)):
                    defined.setdefault(source, set()).add(name)
        sources |= {Path(item["path"]) for item in result.sources}
    if not digests:
        return {}
    marks = {
        name.replace(".", "/"): {module: digests[module] for module in sorted(modules)}
        for name, modules in defined.items()
    }
    for path in sources:
        if not path.is_relative_to(package_root):
            continue
        package = _package(path.relative_to(package_root), package_root)
        if package is not None:
            marks[f"{package.as_posix()}/__init__"] = {}
        elif _mentions_aotcuda(path):
            marks.setdefault(path.relative_to(package_root).with_suffix("").as_posix(), {})
    return {
        f"{base}{manifest.FOLDER_SUFFIX}/{manifest.IN_PLACE}": content(digests_of, editable=editable)
        for base, digests_of in sorted(marks.items())
    }


def _package(path: Path, package_root: Path) -> Path | None:
    """Return the outermost package that contains a file, or None."""
    above = [parent for parent in reversed(path.parents) if parent != Path()]
    return next((parent for parent in above if (package_root / parent / "__init__.py").is_file()), None)


def _mentions_aotcuda(source: Path) -> bool:
    """Return True if a source may import `aotcuda.numba`; other sources need no mark."""
    try:
        return b"aotcuda" in source.read_bytes()
    except OSError:  # it was removed while the build ran
        return False


def content(manifests: dict[str, str], *, editable: bool) -> bytes:
    """Return the text of a mark; `manifests` are digests by module."""
    lines = [manifest.EDITABLE if editable else manifest.WHEEL, *(" ".join(item) for item in manifests.items())]
    return "".join(f"{line}\n" for line in lines).encode()
