"""Predict the image that each GPU takes with each driver, for a wheel, module or folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import arch
from aotcuda.binary import targets
from aotcuda.binary.targets import PackagedModule
from aotcuda.common import gpu_facts
from aotcuda.errors import TargetError
from aotcuda.gpus import CAPABILITIES
from aotcuda.manifest import kernel_images
from aotcuda.tools import packs
from aotcuda.tools.check import gpus
from aotcuda.tools.check.gpus import Driver, Gpu
from aotcuda.tools.check.predict import Cell, predict
from aotcuda.tools.left_out import LeftOut, left_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.manifest import Manifest

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Image:
    """A packaged image: its target, and the lowest driver that loads it or None if it is unknown."""

    arch: str
    kind: str
    min_driver: str | None


@dataclass(frozen=True, kw_only=True)
class ModuleReport:
    """The facts and predictions of a module.

    Attributes:
        name: `mypkg.kernels`.
        where: Its data folder.
        toolkit: The CUDA version that its images were built with.
        others: The CUDA versions of further toolkits.
        min_driver: The lowest driver that loads any image.
        fallback: `jit` or `error`.
        recipe: True if it has the inputs of the JIT fallback.
        runtime: `installed` or `bundled`.
        images: Its images.
        cells: The image for each requested pair.
        left_out: The kernels that its images for some targets lack.
        pack: The package that a pack is made from, with its version; empty for other modules.
    """

    name: str
    where: str
    toolkit: str
    others: tuple[str, ...]
    min_driver: str | None
    fallback: str
    recipe: bool
    runtime: str
    images: tuple[Image, ...]
    cells: tuple[Cell, ...]
    left_out: tuple[LeftOut, ...] = ()
    pack: str = ""


@dataclass(frozen=True, kw_only=True)
class UnmetRequirement:
    """An item of `--require` that a module does not serve, and the reason."""

    item: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All modules of a target, and the unmet requirements."""

    modules: tuple[ModuleReport, ...]
    unmet: tuple[UnmetRequirement, ...]
    single: bool  # a GPU or a driver was named, so a module without code for it is a problem
    packs: tuple[dict[str, Any], ...] = ()
    required: bool = False

    def answer(self) -> str:
        """Return the last line of the output: the GPUs that all modules serve, and the kernels of packs here."""
        newest = [cell for module in self.modules for cell in module.cells if cell.exists]
        drivers = list(dict.fromkeys(cell.driver for cell in newest))
        newest = [cell for cell in newest if cell.driver == drivers[-1]] if drivers else []
        by_gpu: dict[Gpu, list[Cell]] = {}
        for cell in newest:
            by_gpu.setdefault(cell.gpu, []).append(cell)
        served = [gpu for gpu, cells in by_gpu.items() if all(cell.has_image for cell in cells)]
        names = self.modules[0].name if len(self.modules) == 1 else f"{len(self.modules)} modules"
        verb = "has" if len(self.modules) == 1 else "have"
        driver = f" with driver {drivers[-1].name}" if drivers else ""
        text = f"{names} {verb} images for {len(served)} of {len(by_gpu)} compute capabilities{driver}"
        if self.required:
            text = f"{names} {verb} images for all GPUs of --require"
        if self.packs:
            kernels = [kernel for pack in self.packs for kernel in pack["kernels"]]
            count = sum(kernel["reason"] is None for kernel in kernels)
            text += f"; packs serve {count} of {len(kernels)} kernels in this environment"
        return text

    def _problem_of_packs(self) -> str | None:
        for pack in self.packs if self.required else ():
            lacking = [kernel for kernel in pack["kernels"] if kernel["reason"] is not None]
            if lacking:
                first = lacking[0]
                return (
                    f"{pack['pack']}: {len(lacking)} of {len(pack['kernels'])} kernels are not served in this "
                    f"environment: {first['source']}.{first['path']}: {first['reason']}"
                )
            if pack["problem"]:
                return f"{pack['pack']}: {pack['problem']}"
        return None

    def problem(self) -> str | None:
        """Return the first problem in one line, or None."""
        if self.unmet:
            first, *rest = self.unmet
            others = ", ".join(dict.fromkeys(item.item for item in rest if item.item != first.item))
            return f"{first.item}: {first.why}" + (f". Nor are these served: {others}" if others else "")
        if (problem := self._problem_of_packs()) is not None:
            return problem
        if not self.single:
            return None
        for module in self.modules:
            cells = [cell for cell in module.cells if cell.exists]
            if not any(cell.runs for cell in cells):
                cell = (cells or module.cells)[0]
                return f"{module.name}: nothing runs on {_pair(cell)}: {cell.why}"
        return None

    def json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {
            "version": VERSION,
            "data": gpu_facts.data()["date"],
            "modules": [_module(module) for module in self.modules],
            **({"packs": list(self.packs)} if self.packs else {}),
            "unmet": [asdict(item) for item in self.unmet],
        }


def check(*names: str, gpu: str | None = None, driver: str | None = None, require: str | None = None) -> Report:
    """Predict the images that GPUs take from the modules in targets with drivers for Linux.

    Args:
        names: Wheels, importable modules or packages, or folders.
        gpu: A GPU's name or `sm_XY`; by default all known GPUs.
        driver: A driver's version, or the CUDA version that it supports; by default all known drivers.
        require: GPUs that packaged images must serve, `A100,H100,RTX 5090@525`, each with this driver and all newer
            ones that support the GPU. Items without a driver start from `driver`, by default from the oldest.
            The kernels of installed packs must also be served in this environment.

    Raises:
        TargetError: There is no such target, GPU or driver, or the target holds no kernels.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
    """
    chosen_gpus = [gpus.gpu(gpu)] if gpu is not None else _all_gpus()
    chosen_drivers = [gpus.driver(driver)] if driver is not None else _all_drivers()
    requirements = [_requirement(item, driver) for item in _items(require)] if require is not None else []
    modules: list[PackagedModule] = []
    installed: list[Manifest] = []
    for target in names:
        found = list(_modules_with_kernels(target))
        if not found:
            message = f"{target} has no kernels; device functions run where the code that links them runs"
            raise TargetError(message)
        modules += found
        installed += [module.manifest for module in found if not Path(target).exists()]
    unmet = [
        UnmetRequirement(item=item, why=why)
        for item, required_gpu, drivers in requirements
        for module in modules
        if (why := _why_unmet(module, required_gpu, drivers))
    ]
    return Report(
        modules=tuple(_report(module, chosen_gpus, chosen_drivers) for module in modules),
        unmet=tuple(unmet),
        single=(gpu is not None or driver is not None) and require is None,
        packs=tuple(packs.status(name, installed) for name in packs.names(installed)),
        required=require is not None,
    )


def _modules_with_kernels(target: str) -> Iterator[PackagedModule]:
    for module in targets.find(target):
        if not isinstance(module, PackagedModule):
            message = (
                f"{module.where} is an image without a manifest, so its toolchain is unknown; name a wheel, module or "
                "folder"
            )
            raise TargetError(message)
        if module.manifest["kernels"]:
            yield module


def _all_gpus() -> list[Gpu]:
    return [
        Gpu(", ".join(row.examples) or "no GPU that NVIDIA names", row.number)
        for row in CAPABILITIES
        if row.renamed is None
    ]


def _all_drivers() -> list[Driver]:
    return [Driver(str(branch), branch.cuda) for branch in gpu_facts.branches()]


def _items(require: str) -> Iterator[str]:
    items = [item.strip() for item in require.replace(";", ",").replace("\n", ",").split(",")]
    if not any(items):
        message = "--require names no GPU; write a list such as 'A100,H100,RTX 5090@525'"
        raise TargetError(message)
    return (item for item in items if item)


def _requirement(item: str, default: str | None) -> tuple[str, Gpu, list[Driver]]:
    """Return an item of `--require` with its GPU, and the drivers with which images must serve the GPU."""
    name, _, version = item.partition("@")
    gpu = gpus.gpu(name)
    if "@" in item and not version.strip():
        message = f"{item!r} in --require has no driver after its @; write one, as in '{name.strip()}@535'"
        raise TargetError(message)
    oldest = version or default
    if not oldest:
        return item, gpu, _all_drivers()
    first = gpus.driver(oldest)
    return item, gpu, [first, *(driver for driver in _all_drivers() if driver.cuda > first.cuda)]


def _why_unmet(module: PackagedModule, gpu: Gpu, drivers: Sequence[Driver]) -> str:
    """Return the reason that a module does not serve a GPU with each driver that supports it, or an empty text."""
    cells = [cell for cell in (predict(module.manifest, gpu, driver) for driver in drivers) if cell.exists]
    if not cells:
        return "no known driver supports this GPU"
    missing = [cell for cell in cells if not cell.has_image]
    if not missing:
        return next(filter(None, (_why_incomplete(module.manifest, str(cell.image)) for cell in cells)), "")
    first, last = missing[0].driver.name, missing[-1].driver.name
    names = first if len(missing) == 1 else f"{first} to {last}"
    return f"{module.manifest['module']} has no image for it with driver {names}: {missing[0].why}"


def _why_incomplete(manifest: Manifest, image: str) -> str:
    """Return the reason that an image lacks a kernel, in all of its variants; an empty text if it has all kernels.

    A kernel that the image has with other variants counts: autotuners have configs that some GPUs cannot launch.
    """
    present = {
        kernel["name"]
        for kernel in manifest["kernels"]
        if any(image in overload.get("launches", (image,)) for overload in kernel["overloads"])
    }
    entries = [entry for entry in manifest.get("left_out", ()) if entry["kernel"] not in present]
    if not entries:
        return ""
    first = next((entry for entry in entries if entry["target"] == image), entries[0])
    names = ", ".join(dict.fromkeys(entry["kernel"] for entry in entries))
    return f"{manifest['module']} lacks {names} in its image {image}: {first['reason']}"


def _report(module: PackagedModule, chosen_gpus: Sequence[Gpu], chosen_drivers: Sequence[Driver]) -> ModuleReport:
    manifest = module.manifest
    return ModuleReport(
        name=manifest["module"],
        where=module.where,
        toolkit=manifest["toolchain"].get("cuda", ""),
        others=tuple(other["versions"]["cuda"] for other in manifest.get("toolchains", ())),
        min_driver=manifest["min_driver"],
        fallback=manifest["fallback"],
        recipe="rebuild" in manifest,
        runtime=manifest.get("runtime", "installed"),
        images=tuple(_images(manifest)),
        cells=tuple(predict(manifest, gpu, driver) for gpu in chosen_gpus for driver in chosen_drivers),
        left_out=left_out(manifest.get("left_out", [])),
        pack=_pack_source(manifest),
    )


def _pack_source(manifest: Manifest) -> str:
    pack = manifest.get("pack")
    return "" if pack is None else f"{pack['source']} of {pack['distribution']} {pack['version']}"


def _images(manifest: Manifest) -> list[Image]:
    """Return the images that a choice sees: one for each target, with the newest driver that any fatbin needs."""
    found: dict[str, Image] = {}
    for image in kernel_images(manifest):
        if "absent" in image:  # the wheel was split, and another part has the image
            continue
        lowest = image.get("min_driver")
        toolkit = image.get("cuda", manifest["toolchain"].get("cuda", ""))
        if lowest is None and toolkit:
            first = gpu_facts.min_driver(arch.parse(image["arch"]), gpu_facts.pair(toolkit))
            lowest = gpu_facts.short(first) if first else None
        other = found.get(image["arch"])
        if other is None or _is_higher(lowest, other.min_driver):
            found[image["arch"]] = Image(arch=image["arch"], kind=image["kind"], min_driver=lowest)
    return list(found.values())


def _is_higher(driver: str | None, other: str | None) -> bool:
    """Return True if an image that needs `driver` needs a newer one than an image that needs `other`."""
    return driver is not None and (other is None or gpu_facts.version(driver) > gpu_facts.version(other))


def _pair(cell: Cell) -> str:
    capability = gpu_facts.dotted(cell.gpu.capability)
    name = "a GPU" if cell.gpu.name.startswith("sm_") or not cell.gpu.name else cell.gpu.name
    note = f", {cell.driver.note}" if cell.driver.note else ""
    return f"{name} (compute capability {capability}) with driver {cell.driver.name}{note}"


def _module(module: ModuleReport) -> dict[str, object]:
    return {
        "name": module.name,
        "where": module.where,
        "cuda": module.toolkit,
        **({"also": list(module.others)} if module.others else {}),
        "min_driver": module.min_driver,
        "fallback": module.fallback,
        "recipe": module.recipe,
        "runtime": module.runtime,
        **({"made_from": module.pack} if module.pack else {}),
        "images": [asdict(image) for image in module.images],
        "cells": [_cell(cell) for cell in module.cells],
        "left_out": [item._asdict() for item in module.left_out],
    }


def _cell(cell: Cell) -> dict[str, object]:
    return {
        "gpu": cell.gpu.name,
        "capability": gpu_facts.dotted(cell.gpu.capability),
        "driver": cell.driver.name,
        "cuda": gpu_facts.dotted(cell.driver.cuda),
        "note": cell.driver.note or None,
        "supported": cell.exists,
        "takes": cell.takes,
        "image": cell.image,
        "why": cell.why,
        "not_taken": [{"image": image, "why": why} for image, why in cell.rejected],
    }
