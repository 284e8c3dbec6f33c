"""What a wheel gains for sources that are packaged in place: marks, which say which manifests have their kernels.

A mark lies beside the file that it is about: beside each source with kernels, and beside the `__init__.py` of each
package that the build imported sources of. So what has device functions alone, or nothing, needs no Numba either.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.builder.worker.job import Result


def files(
    results: Iterable[Result], built: Mapping[str, bytes], package_root: Path, *, editable: bool
) -> dict[str, bytes]:
    """The marks, by their path from the folder that holds the package.

    Args:
        results: What workers built.
        built: The files that the build has made so far, with the manifests among them.
        package_root: The folder that holds the package.
        editable: They are for an editable install.
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
                for source in (name, *(kernel.defined.partition(":")[0] for kernel in module.kernels)):
                    defined.setdefault(source, set()).add(name)
        sources |= {Path(item["path"]) for item in result.sources}
    if not digests:
        return {}
    own = [path.relative_to(package_root) for path in sources if path.is_relative_to(package_root)]
    wanted = {path for path in own if path.suffix == ".py" and _name(path) in defined}
    wanted |= {top for path in own if (top := _package(path, package_root)) is not None}
    return {
        f"{path.with_suffix(manifest.FOLDER_SUFFIX).as_posix()}/{manifest.IN_PLACE}": _content(
            {module: digests[module] for module in sorted(defined.get(_name(path), ()))}, editable=editable
        )
        for path in sorted(wanted)
    }


def _name(path: Path) -> str:
    """The name of the module that a file is, by its path from the folder that holds the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(path: Path, package_root: Path) -> Path | None:
    """The `__init__.py` of the outermost package that a file lies in; None if it lies in none."""
    above = [parent / "__init__.py" for parent in reversed(path.parents)]
    return next((init for init in above if (package_root / init).is_file() and init.parent != Path()), None)


def _content(manifests: dict[str, str], *, editable: bool) -> bytes:
    lines = [manifest.EDITABLE if editable else manifest.WHEEL, *(" ".join(item) for item in manifests.items())]
    return "".join(f"{line}\n" for line in lines).encode()
