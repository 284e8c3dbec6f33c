"""Choose the packaged image for a GPU, by the tiers of `aotcuda.arch.preference` and the driver's version.

SASS runs on all drivers of the CUDA major version of its build, and on newer drivers. PTX states its CUDA version, and
drivers for an older version refuse it.
"""

from __future__ import annotations

from ... import arch
from ... import manifest as manifests
from ...errors import DriverTooOldError, NoImageError
from ...gpus import CAPABILITIES, FIRST_CURRENT, TEGRA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...arch import Target
    from ...errors import RuntimeUnavailableError
    from ...manifest import Image, Manifest
    from ..driver import Driver


class Choice:
    """The image for one GPU, or the reason why there is none.

    Attributes:
        gpu: A text that names the GPU.
        capability: The GPU's compute capability.
        arch: The image's target, such as `"sm_90"`; None if no packaged image can run.
        kind: `"sass"`, `"ptx"`, `"jit"` for an image of the JIT fallback, or None.
        why: The reason for this image, or for no image.
        rejected: The other images, each with a reason.
        better: The target of a better image that only another part of a split wheel has; None without one.
    """

    __slots__ = ("arch", "better", "capability", "gpu", "kind", "rejected", "too_old", "why")

    def __init__(
        self,
        gpu: str,
        capability: tuple[int, int],
        target: Target | None,
        why: str,
        rejected: tuple[tuple[str, str], ...],
        *,
        too_old: bool = False,
        better: Target | None = None,
    ) -> None:
        self.gpu = gpu
        self.capability = capability
        self.arch = None if target is None else str(target)
        self.kind = None if target is None else target.kind
        self.why = why
        self.rejected = rejected
        self.too_old = too_old
        self.better = None if better is None else str(better)

    def __str__(self) -> str:
        image = f"{self.arch}, {self.why}" if self.arch else f"no image: {self.why}"
        others = "; ".join(f"{name} {reason}" for name, reason in self.rejected)
        return f"{self.gpu} takes {image}" + (f". Not used: {others}" if others else "")

    def __repr__(self) -> str:
        return f"<Choice: {self}>"

    def compiled(self, target: str, why: str) -> Choice:
        """Return the choice that replaces this one after the JIT fallback compiled an image for `target`."""
        choice = Choice(self.gpu, self.capability, arch.parse(target), why, self.rejected)
        choice.kind = "jit"
        return choice

    def error(self, module: str) -> RuntimeUnavailableError:
        """Return the error of a launch for which no image can run."""
        kind = DriverTooOldError if self.too_old else NoImageError
        others = "; ".join(f"{name} {reason}" for name, reason in self.rejected if name != self.better)
        message = f"{module} has no image for {self.gpu}: {self.why}" + (f" ({others})" if others else "")
        if others and not self.too_old and self.better is None:
            message += f"; it runs here if it is built with {self._missing()}"
        return kind(message)

    def _missing(self) -> str:
        """Return a text for the targets that a build needs to run on this GPU."""
        major, minor = self.capability
        targets = f"sm_{major}{minor} in arch, or compute_XY of at most that"
        if self.capability >= FIRST_CURRENT:
            return targets
        first = _dotted(FIRST_CURRENT)
        return f"{targets}, by the compilers of CUDA 12 (extra cu12 or wide): CUDA 13's begin with {first}"


class Tier:
    """The image of one overload on one GPU.

    Attributes:
        signature: The overload's signature.
        tier: `"exact"` for machine code for exactly this GPU, `"same-major"` for machine code of a lower minor version,
            `"ptx"` for PTX that the driver compiles, `"jit"` for the JIT fallback, None if nothing fits.
        choice: The image, with reasons for it and against the others.
    """

    __slots__ = ("choice", "signature", "tier")

    def __init__(self, signature: str, choice: Choice) -> None:
        self.signature = signature
        self.choice = choice
        major, minor = choice.capability
        exact = (choice.arch or "").rstrip("af") == f"sm_{major}{minor}"
        self.tier = ("exact" if exact else "same-major") if choice.kind == "sass" else choice.kind

    def __repr__(self) -> str:
        return f"<Tier {self.tier or 'none'}: {self.signature}: {self.choice}>"


def choose(
    manifest: Manifest,
    capability: tuple[int, int],
    *,
    driver: tuple[int, int] | None = None,
    gpu: str | None = None,
) -> Choice:
    """Choose the target of `manifest` for a GPU; all fatbins of the module use it.

    Args:
        manifest: The module's manifest.
        capability: The GPU's compute capability.
        driver: The CUDA version that the driver supports; None for any driver.
        gpu: A text that names the GPU.
    """
    gpu = gpu or f"a GPU of compute capability {_dotted(capability)}"
    general = manifest["toolchain"].get("cuda", "0.0")
    images = manifests.kernel_images(manifest)
    versions = _versions(images, general)
    absent = {arch.parse(image["arch"]): image["absent"] for image in images if "absent" in image}
    targets = list(versions)
    fitting = sorted((key, str(target), target) for target in targets if (key := arch.preference(target, capability)))
    loadable = [target for _, _, target in fitting if driver is None or _loads(target, versions[target], driver)]
    chosen = next((target for target in loadable if target not in absent), None)
    better = loadable[0] if loadable and loadable[0] in absent else None
    rejected = []
    for target in targets:
        if target == chosen:
            continue
        if not target.runs_on(capability):
            reason = f"is {_needs(target)}"
            if target.kind == "sass" and not target.suffix and capability in TEGRA and target.major == capability[0]:
                reason += f", and {_dotted(capability)} is Tegra's, which runs only machine code of Tegra"
        elif driver is not None and not _loads(target, versions[target], driver):
            reason = f"needs a driver for CUDA {_dotted(_floor(target, versions[target]))}"
        elif target == better:
            reason = absent[target]
        else:
            reason = f"would also run here, but {loadable[0]} is preferred"
        rejected.append((str(target), reason))
    if chosen is not None:
        return Choice(gpu, capability, chosen, _why(chosen, capability), tuple(rejected), better=better)
    if better is not None:
        return Choice(gpu, capability, None, f"{better} {absent[better]}", tuple(rejected), better=better)
    if fitting and driver is not None:
        floor, first = min((_floor(target, versions[target]), str(target)) for _, _, target in fitting)
        needed = next(image.get("min_driver") for image in images if image["arch"] == first)
        if needed is None and floor[1] == 0:
            needed = manifest["min_driver"]
        why = (
            f"the driver supports CUDA {_dotted(driver)}, and the images need CUDA {_dotted(floor)}"
            + (f", which driver {needed} or newer has" if needed else "")
            + "; update the driver"
        )
        return Choice(gpu, capability, None, why, tuple(rejected), too_old=True)
    why = "none of the packaged images runs on it" if targets else "the module has no kernels"
    return Choice(gpu, capability, None, why, tuple(rejected))


def _versions(images: list[Image], general: str) -> dict[Target, tuple[int, int]]:
    """Return the CUDA version of each target: the newest of its images; `general` is that of most images."""
    versions: dict[Target, tuple[int, int]] = {}
    for image in images:
        if image["kind"] != "ltoir":
            target = arch.parse(image["arch"])
            versions[target] = max(_version(image.get("cuda", general)), versions.get(target, (0, 0)))
    return versions


def survey(manifest: Manifest, driver: Driver) -> dict[int, Choice]:
    """Return the choice of each GPU of this machine, by its ordinal."""
    return {
        device.index: choose(manifest, device.capability, driver=driver.version, gpu=str(device))
        for device in driver.devices
    }


def _loads(target: Target, cuda: tuple[int, int], driver: tuple[int, int]) -> bool:
    return driver >= _floor(target, cuda)


def _floor(target: Target, cuda: tuple[int, int]) -> tuple[int, int]:
    """Return the lowest CUDA version whose drivers load an image for `cuda`."""
    return cuda if target.kind == "ptx" else (cuda[0], 0)


def _needs(target: Target) -> str:
    """Return a text for the GPUs of a target."""
    capability = _dotted(target.capability)
    code = "PTX" if target.kind == "ptx" else "machine code"
    if target.suffix == "f":
        family = [row.number for row in CAPABILITIES if target.runs_on(row.number)]
        return f"{code} for compute capability {' and '.join(map(_dotted, family)) or capability} alone"
    if target.suffix == "a" or (target.kind == "sass" and target.capability in TEGRA):
        return f"{code} for compute capability {capability} alone"
    if target.kind == "sass":
        return f"{code} for compute capability {capability} to {target.major}.x"
    return f"{code} for compute capability {capability} and newer"


def _why(target: Target, capability: tuple[int, int]) -> str:
    if target.kind == "ptx":
        return f"PTX for compute capability {_dotted(target.capability)} that the driver compiles for this GPU"
    if target.capability == capability:
        return "machine code for exactly this compute capability"
    older = _dotted(target.capability)
    return f"machine code for compute capability {older}, which runs on later ones of its major version"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)
