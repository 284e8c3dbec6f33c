"""The result of a build: files in memory, and the content of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.builder.emit.report import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The result of a build.

    Attributes:
        files: The content of each file, by its path from the folder that holds the package.
        package_root: That folder (`.` or `src`), relative to the project.
        warnings: Warnings for the user.
        notes: Decisions that the report shows, such as answers to GPU queries.
        sbom: The bill of materials, CycloneDX JSON.
        needed: The sources that a wheel must contain for the JIT fallback, by their paths in it, each with a module
            that is compiled from it.
        sources: The SHA-256 of the sources that the modules were compiled from, by their paths in the wheel.
        summary: Counts and times.
        depends: The files and folders that the build has read, without pyproject.toml; empty if the build was not
            observed.
        with_callbacks: The modules whose setup or teardown callbacks need cuda-core at run time.
    """

    files: dict[str, bytes]
    package_root: str
    warnings: tuple[str, ...]
    summary: Summary
    notes: tuple[str, ...] = ()
    sbom: bytes = b""
    needed: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    depends: tuple[Path, ...] = ()
    with_callbacks: tuple[str, ...] = ()
