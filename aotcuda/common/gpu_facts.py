"""Read the facts of drivers and toolkits in drivers.toml, and combine them with the table of `aotcuda.gpus`."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ..gpus import BY_NUMBER, FIRST_WITH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..arch import Target
    from ..gpus import Capability

Version = tuple[int, ...]


class Branch(NamedTuple):
    """A branch of drivers for Linux.

    Attributes:
        number: `580`.
        cuda: The CUDA version that it supports, `(13, 0)`.
        first: Its lowest driver, `(580, 65, 6)`; `(565,)` if that is unknown.
    """

    number: int
    cuda: tuple[int, int]
    first: Version

    def __str__(self) -> str:
        return short(self.first)


@functools.cache
def data() -> dict[str, Any]:
    """Return the content of drivers.toml."""
    text = resources.files("aotcuda.common").joinpath("drivers.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.cache
def branches() -> tuple[Branch, ...]:
    """Return the driver branches, oldest first."""
    rows = data()["drivers"]["rows"]
    return tuple(
        Branch(row["branch"], pair(row["cuda"]), version(row.get("first", str(row["branch"])))) for row in rows
    )


def first_branch(cuda: tuple[int, int]) -> Branch | None:
    """Return the oldest driver branch that supports a CUDA version; None if no known branch does."""
    return next((branch for branch in branches() if branch.cuda >= cuda), None)


def knows_gpu(cuda: tuple[int, int], row: Capability) -> bool:
    """Return True if drivers for a CUDA version support the GPUs of a compute capability."""
    last = next((branch.cuda for branch in branches() if branch.number == row.last_driver), cuda)
    return row.first_cuda <= cuda <= last


def min_driver(target: Target, toolkit: tuple[int, int], *, compression: str = "") -> Version | None:
    """Return the lowest driver on Linux that loads an image; None if it is unknown.

    Machine code loads on every driver of its toolkit's major version, PTX on drivers that support the toolkit's
    version. The driver must support the GPU, too.

    Args:
        target: The image's target.
        toolkit: The CUDA version that built the image.
        compression: The fatbin's compression: nvFatbin's `-compress-mode`; empty for none.
    """
    first = None
    if target.kind == "sass":
        rows = data()["minor-version-compatibility"]["rows"]
        first = next((version(row["first"]) for row in rows if row["major"] == toolkit[0]), None)
    elif branch := first_branch(toolkit):
        first = branch.first
    if first is None:
        return None
    lowest = [first]
    row = BY_NUMBER.get(target.capability)
    if target.kind == "sass" and row is not None:
        branch_for_gpu = first_branch(row.first_cuda)
        if branch_for_gpu is None:
            return None
        lowest.append(branch_for_gpu.first)
    modes = data()["compression"]["rows"]
    lowest += [version(row["first"]) for row in modes if compression in row["modes"] and row["major"] == toolkit[0]]
    return max(lowest)


def lowest_driver(images: Iterable[tuple[Target, tuple[int, int]]]) -> str | None:
    """Return the lowest driver that loads any machine code among images, else any PTX: `"580.65"`.

    Args:
        images: Target and CUDA version of each image.
    """
    listed = list(images)
    code = [image for image in listed if image[0].kind == "sass"] or listed
    drivers = [driver for target, cuda in code if (driver := min_driver(target, cuda)) is not None]
    return short(min(drivers)) if drivers else None


@functools.cache
def ptx_versions() -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Return the versions of PTX, lowest first, each with the first CUDA version that reads it."""
    return tuple((pair(row["isa"]), pair(row["cuda"])) for row in data()["ptx"]["rows"])


def cuda_of_ptx(isa: tuple[int, int]) -> tuple[int, int] | None:
    """Return the first CUDA version whose drivers read a version of PTX; None for an unknown version."""
    return dict(ptx_versions()).get(isa)


def builders(target: Target) -> str:
    """Return the toolkits that build for a target: `CUDA 13.4 or newer`; an empty text if no known toolkit does."""
    row = BY_NUMBER.get(target.capability)
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
    """Return a driver's version without its last part, as in manifests: `"580.65"`."""
    return ".".join(f"{part:02}" for part in driver[:2])
