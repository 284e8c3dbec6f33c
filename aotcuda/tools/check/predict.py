"""Predict the image that a GPU and a driver load from a module.

`aotcuda.runtime.images.choice` makes the choice, for launches and for this module. This module adds facts that the run
time does not need: the support of drivers for GPUs, and the result of the JIT fallback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import gpu_facts
from aotcuda.gpus import BY_NUMBER
from aotcuda.runtime.driver import LOWEST
from aotcuda.runtime.images.choice import Tier, choose

if TYPE_CHECKING:
    from aotcuda.manifest import Manifest
    from aotcuda.tools.check.gpus import Driver, Gpu


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The prediction for one pair of GPU and driver.

    Attributes:
        gpu: The GPU.
        driver: The driver.
        exists: True if the driver supports GPUs of this compute capability.
        takes: `exact` and `same-major` for machine code, `ptx`, `jit` for the JIT fallback, or `nothing`.
        image: The image's target; None without a packaged image.
        reason: The reason for this choice of an image, or for none.
        rejected: The other images, each with the reason against it.
        compiler: The requirement for the compiler of the JIT fallback; empty if `takes` is not `jit`.
        refusal: The reason that the JIT fallback compiles no image; empty if one is packaged or compiled.
    """

    gpu: Gpu
    driver: Driver
    exists: bool
    takes: str
    image: str | None
    reason: str
    rejected: tuple[tuple[str, str], ...]
    compiler: str = ""
    refusal: str = ""

    @property
    def why(self) -> str:
        """Return the reason for this choice, and the result of the JIT fallback if no image is packaged."""
        fallback = f"the JIT fallback compiles it where {self.compiler} is installed" if self.compiler else self.refusal
        return f"{self.reason}; {fallback}" if fallback else self.reason

    @property
    def has_image(self) -> bool:
        """Return True if a packaged image runs."""
        return self.image is not None

    @property
    def runs(self) -> bool:
        """Return True if a packaged image or the JIT fallback runs."""
        return self.exists and self.takes != "nothing"


def predict(manifest: Manifest, gpu: Gpu, driver: Driver) -> Cell:
    """Predict the image that `gpu` loads from the module with `driver`."""
    choice = choose(manifest, gpu.capability, driver=driver.cuda)
    tier = Tier("", choice).tier or "nothing"
    image, reason, compiler, refusal = choice.arch, choice.why, "", ""
    if image is not None and choice.better is not None:  # the wheel was split
        reason = f"{reason}; {choice.better} {dict(choice.rejected)[choice.better]}"
    if driver.cuda < LOWEST:
        tier, image = "nothing", None
        lowest = gpu_facts.branches()[0]
        reason = f"the run time needs a driver for CUDA {gpu_facts.dotted(LOWEST)}: {lowest} or newer"
    elif image is None and manifest["kernels"]:
        compiler, refusal = _fallback(manifest, gpu, driver)
        tier = "jit" if compiler else "nothing"
    row = BY_NUMBER.get(gpu.capability)
    exists = row is None or gpu_facts.knows_gpu(driver.cuda, row)
    if row is not None and not exists:
        first = gpu_facts.first_branch(row.first_cuda)
        support = (
            f"the first that does is {first} (CUDA {gpu_facts.dotted(row.first_cuda)})" if first else "none does yet"
        )
        if driver.cuda > row.first_cuda:
            support = f"the last branch that does is {row.last_driver}"
        reason, compiler, refusal = f"the driver does not support this GPU; {support}", "", ""
    return Cell(
        gpu=gpu,
        driver=driver,
        exists=exists,
        takes=tier,
        image=image,
        reason=reason,
        rejected=choice.rejected,
        compiler=compiler,
        refusal=refusal,
    )


def _fallback(manifest: Manifest, gpu: Gpu, driver: Driver) -> tuple[str, str]:
    """Return the compiler of the JIT fallback for a pair without a packaged image, or the reason for none."""
    if manifest["fallback"] != "jit":
        return "", f'fallback = "{manifest["fallback"]}" compiles nothing'
    if "rebuild" not in manifest:
        return "", "the package has no recipe for the JIT fallback"
    row = BY_NUMBER.get(gpu.capability)
    if row is not None and row.renamed is not None:
        return "", "the JIT fallback has no compiler for it either"
    last = row.last_cuda if row is not None else None
    front_end = registry.BUILT_IN.get(manifest["frontend"])
    if front_end is None:
        return f"the compiler of {manifest['frontend']}", ""
    return front_end.requirement(jit=True, cuda=(last or driver.cuda)[0]), ""
