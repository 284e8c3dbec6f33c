"""Make of a module's parts the files of a wheel, or one bare cubin for the JIT fallback."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvfatbin
from aotcuda.builder.link.inputs import Linked
from aotcuda.builder.worker.job import BuiltModule
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.job import Job
    from aotcuda.builder.worker.parts import Parts

    Compile = Callable[[ModulePlan, LinkInput, Sequence[Target]], Mapping[Target, bytes]]
    """Compiles CUDA C++ for targets: to LTOIR for machine code, to PTX for PTX."""


class JitPackager:
    """Leaves images as they are: for the one GPU of this machine, with no packer installed."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """Return the targets that the exported functions are merged for."""
        return plan.ltoir_targets

    def tools(self) -> dict[str, str]:
        """Return the versions of tools that no other build needs."""
        return {}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:  # noqa: ARG002
        """Return a function for children that packs an image of a module, which has images of these CUDA versions."""
        return None

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """Return a module's images, of which each is packed for the wheel."""
        return parts.images

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:  # noqa: ARG002
        """Return the module as it leaves the worker, with its `packed` images; JIT builds keep no functions."""
        return BuiltModule(
            plan=parts.plan,
            images=parts.images,
            kernels=parts.kernels,
            callbacks=parts.callbacks,
            foreign=parts.foreign,
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:
        """Return a module's functions for other modules of the wheel to call."""
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


class WheelPackager(JitPackager):
    """Packs what a wheel gains: fatbins, what users of the functions link, what the JIT fallback would build from."""

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """Add a target for PTX."""
        return plan.function_targets

    def tools(self) -> dict[str, str]:
        """Name the packer."""
        return {"nvfatbin": nvfatbin.version()}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:
        """Pack so that all drivers for these versions, and for those of other toolkits' images, read it."""
        others = (image.cuda for image in self.job.images.get(module, ()))
        return partial(nvfatbin.packed, module, nvfatbin.options([*versions, *others]))

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """Add the images that other toolkits have made of it."""
        return (*parts.images, *self.job.images.get(parts.name, ()))

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:
        """Pack the functions too."""
        ltoir = tuple(parts.merged.items())
        root = Path(self.job.root)
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
            left_out=parts.left_out,
            function_links=tuple(_function_links(parts, compile_source)),
            carried=tuple(
                (path.relative_to(root).as_posix(), path.read_bytes())
                for path in (parts.files if self.job.carry else ())
            ),
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:  # noqa: ARG002
        """Return what a user of the wheel would link."""
        return inputs.packaged(
            parts.name, built.function_fatbin, parts.declared(), built.function_links, built.callbacks
        )


def make(job: Job) -> JitPackager:
    """Return the packager of a job."""
    return JitPackager(job) if job.product == "jit" else WheelPackager(job)


def _function_links(parts: Parts, compile_source: Compile) -> Iterator[tuple[str, bytes]]:
    """Yield what users of the exported functions link: CUDA C++ compiled to LTOIR, the rest as it is."""
    for number, item in enumerate(parts.called):
        path = Path(item.name)  # or the name of a module, maybe with a file of its
        plain = path.stem if path.suffix in linkable.KINDS else path.name
        stem = f"link{number}_" + re.sub(r"\W+", "_", plain)
        if item.kind == "cu":
            compiled = compile_source(parts.plan, item, parts.plan.function_targets)
            yield f"{stem}.fatbin", nvfatbin.functions(compiled.items(), item.name)
        else:
            yield f"{stem}{linkable.SUFFIXES[item.kind]}", item.data
