"""Read the metadata and the images of a wheel that will be split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda import manifest as manifests
from aotcuda.binary import targets
from aotcuda.errors import TargetError
from aotcuda.gpus import CAPABILITIES, TEGRA
from aotcuda.tools import wheel_archive
from aotcuda.tools.inspect import collect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from aotcuda.arch import Target
    from aotcuda.binary.targets import PackagedModule
    from aotcuda.manifest import Manifest
    from aotcuda.tools.wheel_archive import Wheel

VARIANT = "variant.json"
"""The file in the metadata folder that marks a variant wheel."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A packaged module with kernels.

    Attributes:
        folder: Its data folder in the wheel.
        manifest: Its manifest.
        targets: The targets of its kernels, in order.
    """

    folder: str
    manifest: Manifest
    targets: tuple[Target, ...]

    def targets_for(self, capability: tuple[int, int]) -> set[Target]:
        """Return the targets of the machine code that GPUs of `capability` run; they differ only in the suffix."""
        sass = [target for target in self.targets if target.kind == "sass"]
        ranked = [(key, target.capability) for target in sass if (key := arch.preference(target, capability))]
        return {target for target in sass if ranked and target.capability == min(ranked)[1]}


@dataclass(frozen=True, kw_only=True)
class FullWheel:
    """A wheel that will be split.

    Attributes:
        wheel: Its files and metadata.
        modules: Its packaged modules with kernels.
        capabilities: The compute capabilities for which it has machine code.
    """

    wheel: Wheel
    modules: tuple[Module, ...]
    capabilities: tuple[tuple[int, int], ...]

    def has_variant(self, capability: tuple[int, int]) -> bool:
        """Return True if every GPU that an installer gives the variant for `capability` runs its machine code.

        Installers give it to GPUs of the same major version and the same or a later minor one. Tegra GPUs are ignored,
        because installers do not distinguish them from others.
        """
        later = {row.number for row in CAPABILITIES if row.number[0] == capability[0] and row.number >= capability}
        code = [targets for module in self.modules if (targets := module.targets_for(capability))]
        return all(any(target.runs_on(gpu) for target in targets) for targets in code for gpu in later - TEGRA)


def read(path: Path) -> FullWheel:
    """Read a wheel, and check its files and its images.

    Raises:
        TargetError: The file is no wheel, was altered, was split already, or has no machine code.
        ManifestError: A manifest or an image is altered.
        ImageError: An image cannot be read.
    """
    wheel = wheel_archive.read(path)
    packaged = list(targets.wheel_modules(path))
    parts = (f"{wheel.metadata}/{VARIANT}", *(f"{folder}/{manifests.PARTS}" for folder, _ in packaged))
    if any(name in wheel.files for name in parts):
        message = f"{path} is a part of a wheel that was split; name the full wheel, as the build wrote it"
        raise TargetError(message)
    modules = tuple(_modules(packaged))
    capabilities = {target.capability for module in modules for target in module.targets if target.kind == "sass"}
    if not capabilities:
        message = f"{path} has no machine code to split by architecture; name a wheel that was built for sm_XY"
        raise TargetError(message)
    return FullWheel(wheel=wheel, modules=modules, capabilities=tuple(sorted(capabilities)))


def _modules(packaged: Iterable[tuple[str, PackagedModule]]) -> Iterator[Module]:
    for folder, module in packaged:
        collect.module_report(module)  # compares the images with the manifest
        if module.manifest["fatbins"]:
            archs = tuple(map(arch.parse, manifests.kernel_targets(module.manifest)))
            yield Module(folder=folder, manifest=module.manifest, targets=archs)
