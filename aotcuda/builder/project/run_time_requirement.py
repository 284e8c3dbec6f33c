"""Check that a project's dependencies admit no run time that is too old for the wheel.

The build hook calls this module. `packaging` is installed, because hatchling requires it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from aotcuda import manifest
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.specifiers import SpecifierSet

_FIRST = "0.1.0"
"""The first version of aotcuda, which a project without a lower bound may get."""


def warnings(
    dependencies: Iterable[str], floor: str = manifest.FLOOR, *, key: str = "project.dependencies"
) -> list[str]:
    """Return warnings if the wheel may be installed without a run time, or with a run time that cannot read it.

    `dependencies` are the project's, as in PEP 508; `key` is their place.

    Raises:
        ConfigError: The dependencies admit no run time that reads the wheel.
    """
    parsed = [Requirement(text) for text in dependencies]
    requirements = [requirement for requirement in parsed if canonicalize_name(requirement.name) == "aotcuda"]
    if not requirements:
        entry = "aotcuda" if floor == _FIRST else f"aotcuda>={floor}"
        return [f'{key} does not name aotcuda, which the generated modules import; add "{entry}" to it']
    return [
        f'{key}: "{requirement}" admits run times older than {floor}, the oldest that reads this wheel; '
        f'write "aotcuda>={floor}"'
        for requirement in requirements
        if requirement.url is None and _admits_older(requirement, floor, key)
    ]


_BRINGS_CUDA_CORE = frozenset(["cuda-core", "numba-cuda", "numba-cuda-mlir"])


def callback_warnings(
    dependencies: Iterable[str], modules: Iterable[str], *, key: str = "project.dependencies"
) -> list[str]:
    """Return a warning for each of `modules`, which have callbacks, if the wheel does not require cuda-core."""
    if any(canonicalize_name(Requirement(text).name) in _BRINGS_CUDA_CORE for text in dependencies):
        return []
    return [
        f"{key} does not name cuda-core, which the callbacks of {module} need at run time; add "
        '"cuda-core[cu13]" to it, with CUDA 12 "cuda-core[cu12]"'
        for module in modules
    ]


def _admits_older(requirement: Requirement, floor: str, key: str) -> bool:
    """Return True if a requirement admits a version older than the floor.

    The admitted versions form intervals. If there are any, one of them is at a bound or just after it.
    """
    lowest, first, specifier = Version(floor), Version(_FIRST), requirement.specifier
    bounds = {first, _bump(first), lowest, _bump(lowest), *_bounds(specifier)}
    admitted = sorted(version for version in bounds if version >= first and version in specifier)
    if not admitted or admitted[-1] < lowest:
        message = (
            f'{key}: "{requirement}" allows no aotcuda that can read the modules of this build; write '
            f'"aotcuda>={floor}"'
        )
        raise ConfigError(message)
    return admitted[0] < lowest


def _bounds(specifier: SpecifierSet) -> Iterator[Version]:
    """Yield the versions that a specifier names, those just after them, and those at which `.*` ends."""
    for clause in specifier:
        try:
            bound = Version(clause.version.removesuffix(".*"))
        except InvalidVersion:  # `===` takes any text
            continue
        *front, last = bound.release
        yield from (bound, Version(bound.base_version), _bump(bound), Version(".".join(map(str, [*front, last + 1]))))


def _bump(version: Version) -> Version:
    """Return a version just after this one."""
    return Version(".".join(map(str, [*version.release, *[0] * (4 - len(version.release)), 1])))
