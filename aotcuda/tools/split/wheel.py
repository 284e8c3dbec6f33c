"""Read the metadata and the images of a wheel that will be split."""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_bytes
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda import manifest as manifests
from aotcuda.errors import TargetError
from aotcuda.gpus import CAPABILITIES, TEGRA
from aotcuda.tools import wheel_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

    from aotcuda.arch import Target
    from aotcuda.manifest import Manifest
    from aotcuda.tools.wheel_archive import Wheel

RESTORE = "aotcuda-split.json"
"""A file in the metadata folder of each part; `aotcuda join` restores the full wheel from it."""

_MANIFEST = f"{manifests.FOLDER_SUFFIX}/{manifests.FILE_NAME}"
"""The end of the path of each manifest."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A packaged module with kernels.

    Attributes:
        folder: Its data folder in the wheel.
        manifest: Its manifest.
        fatbin: The file with its images.
        targets: Their targets, in order.
    """

    folder: str
    manifest: Manifest
    fatbin: str
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
        wheel: Its files.
        name, version: Name and version of the distribution.
        about: The core metadata.
        modules: Its packaged modules with kernels.
        capabilities: The compute capabilities for which it has machine code.
    """

    wheel: Wheel
    name: str
    version: str
    about: Message
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
    """Read a wheel.

    Raises:
        TargetError: The file is no wheel, was split already, or has no machine code.
        ManifestError: A manifest or an image is altered.
    """
    wheel = wheel_archive.read(path)
    if f"{wheel.metadata}/{RESTORE}" in wheel.files:
        message = f"{path} is a part of a wheel that was split; name the full wheel, or make it: aotcuda join"
        raise TargetError(message)
    if f"{wheel.metadata}/METADATA" not in wheel.files:
        message = f"{path} is no wheel: it has no METADATA; name a .whl file"
        raise TargetError(message)
    about, modules = message_from_bytes(wheel.files[f"{wheel.metadata}/METADATA"]), tuple(_modules(wheel))
    capabilities = {target.capability for module in modules for target in module.targets if target.kind == "sass"}
    if not capabilities:
        message = f"{path} has no machine code to split by architecture; name a wheel that was built for sm_XY"
        raise TargetError(message)
    return FullWheel(
        wheel=wheel,
        name=str(about["Name"]),
        version=str(about["Version"]),
        about=about,
        modules=modules,
        capabilities=tuple(sorted(capabilities)),
    )


def _modules(wheel: Wheel) -> Iterator[Module]:
    for name in sorted(name for name in wheel.files if name.endswith(_MANIFEST)):
        folder = name.rpartition("/")[0]
        manifest = manifests.parse(wheel.files[name], f"{wheel.path}/{name}")
        kernels = manifest["files"].get("kernels")
        if kernels is not None:
            fatbin = f"{folder}/{kernels['path']}"
            manifests.check_file(wheel.files.get(fatbin, b""), kernels, f"{wheel.path}/{fatbin}")
            targets = tuple(arch.parse(image["arch"]) for image in manifest["images"])
            yield Module(folder=folder, manifest=manifest, fatbin=fatbin, targets=targets)
