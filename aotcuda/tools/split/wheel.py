"""Read the wheel that is to be split: its metadata and the images of its modules."""

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
    from collections.abc import Iterable
    from email.message import Message
    from pathlib import Path
    from zipfile import ZipInfo

    from aotcuda.arch import Target
    from aotcuda.manifest import Manifest

RESTORE = "aotcuda-split.json"
"""The member that tells how the full wheel is made again, in the metadata folder of its parts."""

_ENDING = f"{manifests.FOLDER_SUFFIX}/{manifests.FILE_NAME}"


@dataclass(frozen=True, kw_only=True)
class Module:
    """A packaged module with kernels in a wheel.

    Attributes:
        folder: Its data folder.
        manifest: Its manifest.
        targets: The targets of its images, in the order of its fatbin.
        fatbin: The member with its images.
    """

    folder: str
    manifest: Manifest
    targets: tuple[Target, ...]
    fatbin: str

    def taken(self, capability: tuple[int, int]) -> set[Target]:
        """Return the machine code for the compute capability that GPUs of `capability` take their code from."""
        sass = [target for target in self.targets if target.kind == "sass"]
        fitting = [(key, target.capability) for target in sass if (key := arch.preference(target, capability))]
        return {target for target in sass if fitting and target.capability == min(fitting)[1]}


@dataclass(frozen=True, kw_only=True)
class FullWheel:
    """A wheel that is to be split.

    Attributes:
        path: Its path.
        data: Its bytes.
        files: The contents of its members.
        infos: Their ZIP entries.
        folder: Its metadata folder.
        metadata: Its core metadata.
        modules: The packaged modules with kernels.
    """

    path: Path
    data: bytes
    files: dict[str, bytes]
    infos: dict[str, ZipInfo]
    folder: str
    metadata: Message
    modules: tuple[Module, ...]

    @property
    def name(self) -> str:
        """The distribution's name."""
        return str(self.metadata["Name"])

    @property
    def version(self) -> str:
        """The distribution's version."""
        return str(self.metadata["Version"])

    @property
    def capabilities(self) -> list[tuple[int, int]]:
        """The compute capabilities for which it has machine code."""
        every = [target for module in self.modules for target in module.targets]
        return sorted({target.capability for target in every if target.kind == "sass"})


def read(path: Path) -> FullWheel:
    """Read a wheel.

    Raises:
        TargetError: It is no wheel, was split already, or has no machine code.
        ManifestError: A manifest or an image is altered.
    """
    files, infos = wheel_archive.read(path)
    folder = wheel_archive.metadata_folder(files) or ""
    if f"{folder}/{RESTORE}" in files:
        message = f"{path} is a part of a wheel that was split; name the full wheel, or make it: aotcuda join"
        raise TargetError(message)
    modules = tuple(_modules(path, files))
    if f"{folder}/METADATA" not in files:
        message = f"{path} is no wheel: it has no METADATA; name a .whl file"
        raise TargetError(message)
    found = FullWheel(
        path=path,
        data=path.read_bytes(),
        files=files,
        infos=infos,
        folder=folder,
        metadata=message_from_bytes(files[f"{folder}/METADATA"]),
        modules=modules,
    )
    if not found.capabilities:
        message = f"{path} has no machine code to split by architecture; name a wheel that was built for sm_XY"
        raise TargetError(message)
    return found


def _modules(path: Path, files: dict[str, bytes]) -> Iterable[Module]:
    for name in sorted(name for name in files if name.endswith(_ENDING)):
        folder = name.rpartition("/")[0]
        manifest = manifests.parse(files[name], f"{path}/{name}")
        kernels = manifest["files"].get("kernels")
        if kernels is None:
            continue
        fatbin = f"{folder}/{kernels['path']}"
        manifests.check_file(files.get(fatbin, b""), kernels, f"{path}/{fatbin}")
        targets = tuple([arch.parse(image["arch"]) for image in manifest["images"]])
        yield Module(folder=folder, manifest=manifest, targets=targets, fatbin=fatbin)


def suits_variant(modules: Iterable[Module], capability: tuple[int, int]) -> bool:
    """Return True if every GPU that an installer gives the variant for `capability` can run its machine code.

    Installers give it to GPUs of the same major version and the same or a later minor one. Tegra GPUs are left out of
    account: no installer knows them.
    """
    gpus = [row.number for row in CAPABILITIES if row.number[0] == capability[0] and row.number >= capability]
    return all(
        any(target.runs_on(gpu) for target in taken)
        for module in modules
        if (taken := module.taken(capability))
        for gpu in {capability, *gpus} - TEGRA
    )
