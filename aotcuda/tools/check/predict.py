"""Predict the image that a GPU and a driver take from a module, by the run time's own choice.

The choice itself is made by `aotcuda.runtime.images.choice`, which launches use too, so the two cannot differ.
Added here is what the run time need not know: whether such a pair exists, and what the JIT fallback would take.
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
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.tools.check.gpus import Driver, Gpu


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The prediction for one pair of GPU and driver.

    Attributes:
        gpu: The GPU.
        driver: The driver.
        exists: Whether that driver supports GPUs of that compute capability at all.
        takes: Machine code for exactly this compute capability, machine code of its major version, PTX that the driver
            compiles, what the JIT fallback compiles, or nothing.
        image: The image's target; None where no packaged one is taken.
        why: Why this, or why nothing.
        rejected: The other images, each with the reason why it is not taken.
    """

    gpu: Gpu
    driver: Driver
    exists: bool
    takes: str
    image: str | None
    why: str
    rejected: tuple[tuple[str, str], ...]

    @property
    def packaged(self) -> bool:
        """Return True if a packaged image runs."""
        return self.image is not None

    @property
    def runs(self) -> bool:
        """Return True if a packaged image or the JIT fallback runs."""
        return self.exists and self.takes != "nothing"


def predict(manifest: Manifest, gpu: Gpu, driver: Driver) -> Cell:
    """Predict the image that `gpu` takes from the module with `driver`."""
    words = f"a GPU of compute capability {gpu_facts.dotted(gpu.capability)}"
    choice = choose(manifest, gpu.capability, driver=driver.cuda, gpu=words)
    taken = Tier("", choice).tier or "nothing"
    image, why = choice.arch, choice.why
    if image is not None and choice.better is not None:  # a split wheel
        why = f"{why}; {choice.better} {dict(choice.rejected)[choice.better]}"
    if driver.cuda < LOWEST:
        taken, image = "nothing", None
        first = gpu_facts.branches()[0]
        why = f"the run time needs a driver for CUDA {gpu_facts.dotted(LOWEST)}, which {first} or newer is"
    elif image is None and manifest["kernels"]:
        taken, why = _fallback(manifest, gpu, driver, choice)
    row = BY_NUMBER.get(gpu.capability)
    exists = row is None or gpu_facts.knows_gpu(driver.cuda, row)
    if row is not None and not exists:
        oldest = gpu_facts.first_branch(row.first_cuda)
        since = f"driver {oldest} (CUDA {gpu_facts.dotted(row.first_cuda)})" if oldest else "none that is known"
        support = f"the first that has is {since}"
        if driver.cuda > row.first_cuda:
            support = f"the last that has is of branch {row.last_driver}"
        why = f"the driver has no support for this GPU; {support}"
    return Cell(gpu=gpu, driver=driver, exists=exists, takes=taken, image=image, why=why, rejected=choice.rejected)


def _fallback(manifest: Manifest, gpu: Gpu, driver: Driver, choice: Choice) -> tuple[str, str]:
    """Return the result of the JIT fallback for a pair without a packaged image."""
    if manifest["fallback"] != "jit":
        return "nothing", f'{choice.why}; fallback = "{manifest["fallback"]}" compiles nothing'
    if "rebuild" not in manifest:
        return "nothing", f"{choice.why}; the package has no recipe for the JIT fallback"
    row = BY_NUMBER.get(gpu.capability)
    if row is not None and row.renamed is not None:
        return "nothing", f"{choice.why}; the JIT fallback has no compiler for it either"
    last = row.last_cuda if row is not None else None
    cuda = (last or driver.cuda)[0]
    known = registry.BUILT_IN.get(manifest["frontend"])
    compiler = known.requirement(jit=True, cuda=cuda) if known else f"the compiler of {manifest['frontend']}"
    return "jit", f"{choice.why}; the JIT fallback compiles it where {compiler} is installed"
