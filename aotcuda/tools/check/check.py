"""Predict the image that each GPU takes with each driver, for a wheel, module or folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import arch
from aotcuda.binary import targets
from aotcuda.binary.targets import PackagedModule
from aotcuda.common import gpu_facts
from aotcuda.errors import TargetError
from aotcuda.gpus import CAPABILITIES
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
class Checked:
    """One module.

    Attributes:
        name: `mypkg.kernels`.
        where: Its data folder.
        toolkit: The CUDA version that its images were built with.
        others: The CUDA versions of further toolkits.
        min_driver: The lowest driver that loads any image.
        fallback: `jit` or `error`.
        recipe: True if it has the inputs of the JIT fallback.
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
class Unmet:
    """An unmet item of `--require`."""

    item: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All modules of a target, and the unmet requirements."""

    modules: tuple[Checked, ...]
    unmet: tuple[Unmet, ...]
    single: bool
    packs: tuple[dict[str, Any], ...] = ()

    def problem(self) -> str | None:
        """Return the first problem in one line, or None."""
        if self.unmet:
            first, *rest = self.unmet
            others = ", ".join(dict.fromkeys(item.item for item in rest if item.item != first.item))
            return f"{first.item}: {first.why}" + (f". Nor are these served: {others}" if others else "")
        if not self.single:
            return None
        for module in self.modules:
            cells = [cell for cell in module.cells if cell.exists]
            cell = (cells or module.cells)[0]
            if not any(one.runs for one in cells):
                return f"{module.name}: nothing runs on {_pair(cell)}: {cell.why}"
        return None

    def json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {
            "version": VERSION,
            "data": gpu_facts.data()["date"],
            "modules": [_module(module) for module in self.modules],
            **({"packs": list(self.packs)} if self.packs else {}),
            "unmet": [{"item": item.item, "why": item.why} for item in self.unmet],
        }


def check(target: str, *, gpu: str | None = None, driver: str | None = None, require: str | None = None) -> Report:
    """Predict the images that GPUs take from the modules in `target` with drivers for Linux.

    Args:
        target: A wheel, an importable module or package, or a folder.
        gpu: A GPU's name or `sm_XY`; by default all known GPUs.
        driver: A driver's version, or the CUDA version that it supports; by default all known drivers.
        require: GPUs that packaged images must serve, `A100,H100,RTX 5090@525`, each with this driver and all newer
            ones that support the GPU. Items without a driver start from `driver`, by default from the oldest.

    Raises:
        TargetError: There is no such target, GPU or driver, or the target holds no kernels.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
    """
    chosen_gpus = [gpus.gpu(gpu)] if gpu is not None else _all_gpus()
    chosen_drivers = [gpus.driver(driver)] if driver is not None else _all_drivers()
    requirements = [_requirement(item, driver) for item in _items(require)] if require is not None else []
    found = [_kernels(module) for module in targets.find(target)]
    modules = [module for module in found if module is not None]
    if not modules:
        message = f"{target} has no kernels; device functions run where the code that links them runs"
        raise TargetError(message)
    unmet = [
        Unmet(item=item, why=why)
        for item, wanted, drivers in requirements
        for module in modules
        if (why := _unmet(module, wanted, drivers))
    ]
    return Report(
        modules=tuple(_checked(module, chosen_gpus, chosen_drivers) for module in modules),
        unmet=tuple(unmet),
        single=(gpu is not None or driver is not None) and require is None,
        packs=()
        if Path(target).exists()
        else tuple(map(packs.status, packs.names(module.manifest for module in modules))),
    )


def _kernels(found: PackagedModule | targets.BareImage) -> PackagedModule | None:
    if not isinstance(found, PackagedModule):
        message = (
            f"{found.where} is an image without a manifest, so its toolchain is unknown; name a wheel, module or folder"
        )
        raise TargetError(message)
    return found if found.manifest["kernels"] else None


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
    """Return an item of `--require`: the GPU, and the drivers."""
    name, _, version = item.partition("@")
    wanted = gpus.gpu(name)
    if "@" in item and not version.strip():
        message = f"{item!r} in --require has no driver behind its @; write one, as in '{name.strip()}@535'"
        raise TargetError(message)
    given = version or default
    if not given:
        return item, wanted, _all_drivers()
    first = gpus.driver(given)
    return item, wanted, [first, *(one for one in _all_drivers() if one.cuda > first.cuda)]


def _unmet(module: PackagedModule, wanted: Gpu, drivers: Sequence[Driver]) -> str:
    """Return the reason that a module does not serve a GPU with each driver that supports it, or an empty text."""
    cells = [cell for cell in (predict(module.manifest, wanted, driver) for driver in drivers) if cell.exists]
    if not cells:
        return "no driver that is known supports this GPU"
    bad = [cell for cell in cells if not cell.packaged]
    if not bad:
        return ""
    names = bad[0].driver.name if len(bad) == 1 else f"{bad[0].driver.name} to {bad[-1].driver.name}"
    return f"{module.manifest['module']} has no image for it with driver {names}: {bad[0].why}"


def _checked(module: PackagedModule, chosen_gpus: Sequence[Gpu], chosen_drivers: Sequence[Driver]) -> Checked:
    manifest = module.manifest
    return Checked(
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
        pack=_made_from(manifest),
    )


def _made_from(manifest: Manifest) -> str:
    pack = manifest.get("pack")
    return "" if pack is None else f"{pack['source']} of {pack['distribution']} {pack['version']}"


def _images(manifest: Manifest) -> Iterator[Image]:
    for image in manifest["images"]:
        if "absent" in image:  # the wheel was split
            continue
        lowest = image.get("min_driver")
        toolkit = image.get("cuda", manifest["toolchain"].get("cuda", ""))
        if lowest is None and toolkit:
            first = gpu_facts.min_driver(arch.parse(image["arch"]), gpu_facts.pair(toolkit))
            lowest = gpu_facts.short(first) if first else None
        yield Image(arch=image["arch"], kind=image["kind"], min_driver=lowest)


def _pair(cell: Cell) -> str:
    capability = gpu_facts.dotted(cell.gpu.capability)
    name = "a GPU" if cell.gpu.name.startswith("sm_") or not cell.gpu.name else cell.gpu.name
    note = f", {cell.driver.note}" if cell.driver.note else ""
    return f"{name} (compute capability {capability}) with driver {cell.driver.name}{note}"


def _module(module: Checked) -> dict[str, object]:
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
        "images": [{"arch": image.arch, "kind": image.kind, "min_driver": image.min_driver} for image in module.images],
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
