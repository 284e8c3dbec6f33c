"""Combine the compiled and linked parts of a module."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda import manifest
from aotcuda.binary import grid_sync
from aotcuda.builder.compile.job import LinkedItem
from aotcuda.builder.emit.c_header import header
from aotcuda.builder.frontends.protocol import Assembled
from aotcuda.builder.link import nvjitlink
from aotcuda.builder.link.images import make_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aotcuda.arch import Target
    from aotcuda.builder.compile.module_inputs import ModuleInputs
    from aotcuda.builder.frontends.protocol import (
        Callbacks,
        CompiledFunction,
        CompiledKernel,
        LinkInput,
        Unit,
    )
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.plan.plan import ModulePlan

    Compiled = Mapping[tuple[Unit, Target], Any]

_HEAD = 4096
_LICENCE = re.compile(rb"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() \t-]+)")
"""The line with a source's licence, near its beginning; SPDX 2.2.2, annex E:
https://spdx.github.io/spdx-spec/v2.2.2/using-SPDX-short-identifiers-in-source-files."""


class ModuleCode(NamedTuple):
    """The linked code of a module: its exported functions, and each image, by target."""

    functions: dict[Target, bytes]
    images: tuple[dict[Target, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One module, compiled and linked.

    Attributes:
        merged: Its exported functions as LTOIR or PTX, for each of the packager's targets; empty when it has none.
        foreign: Symbols of linked items, by the name of the item.
        linked: The linked items, for the bill of materials.
        function_inputs: The inputs that must be linked together with its exported functions.
        files: The files that it links or is compiled from, with the headers that they include, each with its name among
            a wheel's copies.
        left_out: The kernels that targets cannot have.
        general_left_out: The number of optional variants that some target lacks, for each kernel with such variants.
    """

    plan: ModulePlan
    images: tuple[Image, ...]
    kernels: tuple[CompiledKernel, ...]
    functions: tuple[CompiledFunction, ...]
    merged: dict[Target, bytes]
    callbacks: tuple[Callbacks, ...]
    foreign: tuple[tuple[str, tuple[str, ...]], ...]
    linked: tuple[LinkedItem, ...]
    function_inputs: tuple[LinkInput, ...]
    files: tuple[tuple[str, Path], ...]
    left_out: tuple[manifest.LeftOut, ...] = ()
    general_left_out: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """Return the module's name."""
        return self.plan.config.name

    def c_header(self) -> bytes:
        """Return the C header of the exported functions, for modules that call them."""
        names = [unit.name for unit in self.plan.functions]
        return header.render(self.name, list(zip(names, self.functions, strict=True))).encode()


def combine(plan: ModulePlan, compiled: Compiled, linked_code: ModuleCode, inputs: ModuleInputs) -> Parts:
    """Return a module's parts, compiled and linked for its targets."""
    name = plan.config.name
    surveyed = inputs.surveyed[name]
    kernels = tuple(_with_launches(plan, unit, compiled) for unit in plan.kernels)
    functions = tuple(compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.functions)
    linked = tuple(
        _image(name, target, images[target])
        for name, images in zip(plan.images, linked_code.images, strict=True)
        for target in plan.targets
        if target in images
    )
    kernels = _mark_cooperative(plan, kernels, linked, inputs)
    callbacks: dict[Callbacks, None] = dict.fromkeys(inputs.linked[name].callbacks if plan.has_links else ())
    for built in (*kernels, *functions):
        callbacks |= dict.fromkeys(built.callbacks)
    return Parts(
        plan=plan,
        images=linked,
        kernels=kernels,
        functions=tuple(replace(function, ir=b"", needed=()) for function in functions),
        merged=linked_code.functions,
        callbacks=tuple(callbacks),
        foreign=tuple((item.name, symbols.functions) for item, symbols in surveyed.items() if not item.internal),
        linked=tuple(_linked_item(item) for item in surveyed if not item.internal),
        function_inputs=tuple(inputs.function_inputs(plan, functions)),
        files=inputs.carried_files(plan),
    )


def _mark_cooperative(
    plan: ModulePlan, kernels: tuple[CompiledKernel, ...], linked: Sequence[Image], inputs: ModuleInputs
) -> tuple[CompiledKernel, ...]:
    """Mark kernels that synchronize the grid in CUDA C++ or other foreign code; front ends mark their own."""
    surveyed = inputs.surveyed[plan.config.name]
    foreign = any(not item.internal for item in surveyed) or bool(inputs.sources_of(plan.units))
    if hasattr(inputs.front, "assembler") or not foreign:
        return kernels
    synchronizing: set[tuple[str, str]] = set()
    for image in linked:
        if image.target.kind == "ptx":
            symbols = grid_sync.in_ptx(image.data.decode())
        else:
            symbols = grid_sync.in_cubin(image.data, image.target.major)
        synchronizing |= {(image.name, symbol) for symbol in symbols}
    return tuple(
        replace(kernel, launch=replace(kernel.launch, cooperative=True))
        if (unit.image, unit.symbol) in synchronizing
        else kernel
        for unit, kernel in zip(plan.kernels, kernels, strict=True)
    )


def _image(name: str, target: Target, code: Assembled | tuple[bytes, dict[str, int]]) -> Image:
    linker = nvjitlink.number()
    if isinstance(code, Assembled):
        return make_image(target, code.data, linker, cuda=code.cuda, name=name)
    data, spills = code
    return make_image(target, data, linker, spills=spills, name=name)


def _with_launches(plan: ModulePlan, unit: Unit, compiled: Compiled) -> CompiledKernel:
    """Return a linked kernel without its code, with the launch configuration of each image.

    Its `values` are those that its source reads for any target.
    """
    built: CompiledKernel = compiled[unit, plan.compiled_for(unit)[0]]
    has = {*plan.compiled_for(unit)}
    codes = [(str(target), plan.code_targets[target]) for target in plan.targets]
    launches = [(arch, compiled[unit, code].launch.fixed) for arch, code in codes if code in has]
    values = [pair for target in plan.compiled_for(unit) for pair in compiled[unit, target].values]
    return replace(
        built,
        code=(),
        needed=(),
        launches=tuple((arch, launch) for arch, launch in launches if launch is not None),
        values=tuple([pair for number, pair in enumerate(values) if pair not in values[:number]]),
    )


def _linked_item(item: LinkInput) -> LinkedItem:
    licence = _LICENCE.search(item.data[:_HEAD]) if item.kind in {"cu", "ptx"} else None
    return LinkedItem(
        name=item.name,
        sha256=manifest.digest(item.data),
        module=item.module,
        licence=licence[1].decode().strip() if licence else "",
    )
