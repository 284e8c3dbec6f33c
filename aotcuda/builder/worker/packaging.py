"""The end of a build, of which there are two: the files of a wheel, or one bare cubin for the JIT fallback."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aotcuda.builder.c_header import header
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvfatbin
from aotcuda.builder.link.inputs import Linked
from aotcuda.builder.worker.job import BuiltModule
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import Callbacks, CompiledFunction, CompiledKernel
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.job import Job, LinkedItem

    Compile = Callable[[ModulePlan, LinkInput, Sequence[Target]], Mapping[Target, bytes]]
    """Compiles CUDA C++ for targets: to LTOIR for machine code, to PTX for PTX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One module, compiled and linked.

    Attributes:
        plan: Its plan.
        images: Its kernels linked for each target; empty when it has none.
        kernels: What was compiled for each kernel unit.
        functions: What was compiled for each function unit.
        merged: Its exported functions as LTOIR or PTX, for each of the packager's targets; empty when it has none.
        callbacks: Its callbacks, in order, each once.
        foreign: Symbols of what was linked in, by the name of the item.
        linked: The same items, as the bill of materials has them.
        called: What has to be linked wherever its exported functions are.
        files: The project's files that it links or is compiled from, with the headers that they include.
    """

    plan: ModulePlan
    images: tuple[Image, ...]
    kernels: tuple[CompiledKernel, ...]
    functions: tuple[CompiledFunction, ...]
    merged: dict[Target, bytes]
    callbacks: tuple[Callbacks, ...]
    foreign: tuple[tuple[str, tuple[str, ...]], ...]
    linked: tuple[LinkedItem, ...]
    called: tuple[LinkInput, ...]
    files: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The module's name."""
        return self.plan.config.name

    def declared(self) -> bytes:
        """The C header of the exported functions, for modules that call them."""
        names = [unit.name for unit in self.plan.functions]
        return header.render(self.name, list(zip(names, self.functions, strict=True))).encode()


class Packager(Protocol):
    """What a build makes of the parts of its modules."""

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """What the exported functions are merged for."""

    def tools(self) -> dict[str, str]:
        """The versions of tools that no other build needs."""

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:
        """What packs each image of a module, of such CUDA versions; None if they stay as they are. Children call it."""

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """A module's images, of which each is packed for the wheel."""

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:
        """The module as it leaves the worker, with what was `packed`."""

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:
        """A module's functions for other modules of the wheel to call."""


class WheelPackager:
    """Packs what a wheel gains: fatbins, what users of the functions link, what the JIT fallback would build from."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """See Packager."""
        return plan.function_targets

    def tools(self) -> dict[str, str]:
        """See Packager."""
        return {"nvfatbin": nvfatbin.version()}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:
        """See Packager."""
        others = (image.cuda for image in self._job.images.get(module, ()))
        return partial(nvfatbin.packed, module, nvfatbin.options([*versions, *others]))

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """See Packager; with those that other toolkits have made of it."""
        return (*parts.images, *self._job.images.get(parts.name, ()))

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:
        """See Packager."""
        ltoir = tuple(parts.merged.items())
        root = Path(self._job.root)
        return BuiltModule(
            plan=parts.plan,
            images=self.images(parts),
            kernels=parts.kernels,
            ltoir=ltoir,
            functions=parts.functions,
            kernel_fatbin=nvfatbin.joined(packed) if packed else b"",
            function_fatbin=nvfatbin.functions(ltoir, parts.name) if ltoir else b"",
            callbacks=parts.callbacks,
            foreign=parts.foreign,
            linked=parts.linked,
            function_links=tuple(_function_links(parts, compile_source)),
            carried=tuple(
                (path.relative_to(root).as_posix(), path.read_bytes())
                for path in (parts.files if self._job.carry else ())
            ),
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:
        """See Packager; what a user of the wheel would link."""
        del compile_source
        return inputs.packaged(
            parts.name, built.function_fatbin, parts.declared(), built.function_links, built.callbacks
        )


class JitPackager:
    """Leaves images as they are: for the one GPU of this machine, with no packer installed."""

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """See Packager."""
        return plan.ltoir_targets

    def tools(self) -> dict[str, str]:
        """See Packager."""
        return {}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:
        """See Packager."""
        del module, versions
        return None

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """See Packager."""
        return parts.images

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:
        """See Packager; exported functions are not kept."""
        del packed, compile_source
        return BuiltModule(
            plan=parts.plan,
            images=parts.images,
            kernels=parts.kernels,
            callbacks=parts.callbacks,
            foreign=parts.foreign,
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:
        """See Packager; the code itself."""
        ((target, merged),) = parts.merged.items()
        own = f"code of {parts.name}'s functions"
        found = [LinkInput(kind="ltoir", name=own, data=merged, header=parts.declared())]
        for item in parts.called:
            if item.kind == "cu":
                code = compile_source(parts.plan, item, [target])[target]
                found.append(LinkInput(kind="ltoir", name=f"code of {item.name}", data=code))
            else:
                found.append(item)
        return Linked(inputs=tuple(found), callbacks=built.callbacks)


def make(job: Job) -> Packager:
    """The packager of a job."""
    return JitPackager() if job.product == "jit" else WheelPackager(job)


def _function_links(parts: Parts, compile_source: Compile) -> Iterator[tuple[str, bytes]]:
    """What the exported functions call, for whoever links them: CUDA C++ compiled to LTOIR, the rest as it is."""
    for number, item in enumerate(parts.called):
        path = Path(item.name)  # or the name of a module, maybe with a file of its
        plain = path.stem if path.suffix in linkable.KINDS else path.name
        stem = f"link{number}_" + re.sub(r"\W+", "_", plain)
        if item.kind == "cu":
            compiled = compile_source(parts.plan, item, parts.plan.function_targets)
            yield f"{stem}.fatbin", nvfatbin.functions(compiled.items(), item.name)
        else:
            yield f"{stem}{linkable.SUFFIXES[item.kind]}", item.data
