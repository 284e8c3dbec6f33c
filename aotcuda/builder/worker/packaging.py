"""Package a compiled module: as files of a wheel, or as one cubin for the JIT fallback."""

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
    """A function that compiles CUDA C++ for targets: to LTOIR for `sm_*`, to PTX for `compute_*`."""


class JitPackager:
    """A packager that does not change images, for the GPU of this machine; it needs no nvFatbin."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """Return the targets that the exported functions are merged for."""
        return plan.ltoir_targets

    def tools(self) -> dict[str, str]:
        """Return the versions of the tools that only this packager uses."""
        return {}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes] | None:  # noqa: ARG002
        """Return a function for children that packs an image of a module, which has images of these CUDA versions."""
        return None

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """Return a module's images, each packed for the wheel."""
        return parts.images

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:  # noqa: ARG002
        """Return the worker's result for a module, with its `packed` images; JIT builds store no functions."""
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
    """A packager for wheels: fatbins, files that users of the functions link, and the inputs of the JIT fallback."""

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
        """Return the files that a user of the wheel links."""
        return inputs.packaged(
            parts.name, built.function_fatbin, parts.declared(), built.function_links, built.callbacks
        )


def make(job: Job) -> JitPackager:
    """Return the packager of a job."""
    return JitPackager(job) if job.product == "jit" else WheelPackager(job)


def _function_links(parts: Parts, compile_source: Compile) -> Iterator[tuple[str, bytes]]:
    """Yield the files that users of the exported functions link: CUDA C++ compiled to LTOIR, other files unchanged."""
    for number, item in enumerate(parts.called):
        path = Path(item.name)  # or the name of a module, possibly with one of its files
        plain = path.stem if path.suffix in linkable.KINDS else path.name
        stem = f"link{number}_" + re.sub(r"\W+", "_", plain)
        if item.kind == "cu":
            compiled = compile_source(parts.plan, item, parts.plan.function_targets)
            yield f"{stem}.fatbin", nvfatbin.functions(compiled.items(), item.name)
        else:
            yield f"{stem}{linkable.SUFFIXES[item.kind]}", item.data
