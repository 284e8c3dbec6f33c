"""Facts of GPUs, drivers and toolkits, read from gpus.toml, and what follows from them alone."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.arch import FIRST_WITH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.arch import Target

Version = tuple[int, ...]


class Branch(NamedTuple):
    """A branch of drivers for Linux.

    Attributes:
        number: `580`.
        cuda: The CUDA version that it supports, `(13, 0)`.
        first: Its lowest driver, `(580, 65, 6)`; `(565,)` where that is not known.
    """

    number: int
    cuda: tuple[int, int]
    first: Version

    def __str__(self) -> str:
        return short(self.first)


@dataclass(frozen=True, kw_only=True)
class Capability:
    """A compute capability.

    Attributes:
        number: `(9, 0)`.
        architecture: `Hopper`.
        tegra: Whether its GPUs are Tegra's, and so have no binary compatibility.
        first_cuda: The first CUDA whose toolkit builds for it and whose driver knows its GPUs.
        last_cuda: The last toolkit that builds for it; None if none has dropped it.
        renamed: What later toolkits call it; None if they call it the same.
        examples: GPUs that tables print for it; none if NVIDIA names none.
        gpus: All names that are known.
    """

    number: tuple[int, int]
    architecture: str
    tegra: bool
    first_cuda: tuple[int, int]
    last_cuda: tuple[int, int] | None
    renamed: tuple[int, int] | None
    examples: tuple[str, ...]
    gpus: tuple[str, ...]

    def known_to(self, cuda: tuple[int, int]) -> bool:
        """Return True if a toolkit of a CUDA version builds for the capability."""
        return self.first_cuda <= cuda <= (self.last_cuda or cuda)


@functools.cache
def data() -> dict[str, Any]:
    """Return the content of gpus.toml."""
    text = resources.files("aotcuda.common").joinpath("gpus.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.cache
def branches() -> tuple[Branch, ...]:
    """Return the driver branches, oldest first."""
    rows = data()["drivers"]["rows"]
    return tuple(
        Branch(row["branch"], pair(row["cuda"]), version(row.get("first", str(row["branch"])))) for row in rows
    )


@functools.cache
def capabilities() -> tuple[Capability, ...]:
    """Return the compute capabilities from Turing on, lowest first."""
    return tuple(
        Capability(
            number=pair(row["capability"]),
            architecture=row["architecture"],
            tegra=row.get("tegra", False),
            first_cuda=pair(row["first-cuda"]),
            last_cuda=pair(row["last-cuda"]) if "last-cuda" in row else None,
            renamed=pair(row["renamed"]) if "renamed" in row else None,
            examples=tuple(row["examples"]),
            gpus=tuple(row["gpus"]),
        )
        for row in data()["capabilities"]["rows"]
    )


def capability(number: tuple[int, int]) -> Capability | None:
    """Return the row of a compute capability; None for an unknown one."""
    return next((row for row in capabilities() if row.number == number), None)


def first_branch(cuda: tuple[int, int]) -> Branch | None:
    """Return the oldest driver branch that supports a CUDA version; None if all known ones are older."""
    return next((branch for branch in branches() if branch.cuda >= cuda), None)


def min_driver(target: Target, toolkit: tuple[int, int], *, compression: str = "") -> Version | None:
    """Return the lowest driver on Linux that loads an image; None if it is unknown.

    Machine code loads on every driver of its toolkit's major version, PTX on those that support the toolkit's own
    version. Neither does before there are drivers for the GPU.

    Args:
        target: What the image was built for.
        toolkit: The CUDA version that it was built with.
        compression: How its fatbin is compressed: nvFatbin's `-compress-mode`; empty for not at all.
    """
    first = None
    if target.kind == "sass":
        rows = data()["minor-version-compatibility"]["rows"]
        first = next((version(row["first"]) for row in rows if row["major"] == toolkit[0]), None)
    elif branch := first_branch(toolkit):
        first = branch.first
    if first is None:
        return None
    floors = [first]
    row = capability(target.capability)
    if target.kind == "sass" and row is not None:
        known = first_branch(row.first_cuda)
        if known is None:
            return None
        floors.append(known.first)
    modes = data()["compression"]["rows"]
    floors += [version(row["first"]) for row in modes if compression in row["modes"] and row["major"] == toolkit[0]]
    return max(floors)


def lowest_driver(images: Iterable[tuple[Target, tuple[int, int]]]) -> str | None:
    """Return the lowest driver that loads any machine code among images, else any PTX: `"580.65"`.

    Args:
        images: For each image its target and the CUDA version that it is written for.
    """
    listed = list(images)
    code = [image for image in listed if image[0].kind == "sass"] or listed
    found = [first for target, cuda in code if (first := min_driver(target, cuda)) is not None]
    return short(min(found)) if found else None


@functools.cache
def ptx_versions() -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Return the versions of PTX, lowest first, each with the first CUDA version that reads it."""
    return tuple((pair(row["isa"]), pair(row["cuda"])) for row in data()["ptx"]["rows"])


def cuda_of_ptx(isa: tuple[int, int]) -> tuple[int, int] | None:
    """Return the first CUDA version whose drivers read a version of PTX; None for an unlisted one."""
    return dict(ptx_versions()).get(isa)


def builders(target: Target) -> str:
    """Describe the toolkits that build for a target: `CUDA 13.4 or newer`; empty if none is known."""
    row = capability(target.capability)
    if row is None or target.capability < FIRST_WITH[target.suffix]:
        return ""
    first = max(row.first_cuda, (12, 9)) if target.suffix == "f" else row.first_cuda
    if row.last_cuda is None:
        return f"CUDA {dotted(first)} or newer"
    return f"CUDA {dotted(first)}" + (f" to {dotted(row.last_cuda)}" if first != row.last_cuda else "")


def pair(text: str) -> tuple[int, int]:
    """Return `"12.8"` as `(12, 8)`, without a third part."""
    major, minor, *_ = [*text.split("."), "0"]
    return int(major), int(minor)


def version(text: str) -> Version:
    """Return `"580.65.06"` as `(580, 65, 6)`."""
    return tuple(map(int, text.split(".")))


def dotted(number: tuple[int, int]) -> str:
    """Return `(12, 8)` as `"12.8"`."""
    return f"{number[0]}.{number[1]}"


def short(driver: Version) -> str:
    """Return a driver's version as manifests have it, without its last part: `"580.65"`."""
    return ".".join(f"{part:02}" for part in driver[:2])
