"""Package a compiled module: as files of a wheel, or as one cubin for the JIT fallback."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.compile.job import BuiltModule
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvfatbin
from aotcuda.builder.link.inputs import Linked
from aotcuda.builder.plan import toolchain
from aotcuda.common import gpu_facts
from aotcuda.errors import LinkError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.compile.parts import Parts
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.plan.plan import ModulePlan

    Compile = Callable[[ModulePlan, LinkInput, Sequence[Target]], Mapping[Target, bytes]]
    """A function that compiles CUDA C++ for targets: to LTOIR for `sm_*`, to PTX for `compute_*`."""


class JitPackager:
    """Package a module for the JIT fallback: one cubin, unchanged, and no functions. nvFatbin is not needed."""

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """Return the targets of the module's LTOIR."""
        return plan.ltoir_targets

    def tools(self) -> dict[str, str]:
        """Return no tools, because the JIT fallback does not pack."""
        return {}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> None:
        """Return None, because the JIT fallback loads the cubin unchanged."""

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """Return the image of the build."""
        return parts.images

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:  # noqa: ARG002
        """Return the module with its image; the JIT fallback stores no functions."""
        return BuiltModule(
            plan=parts.plan,
            images=parts.images,
            kernels=parts.kernels,
            callbacks=parts.callbacks,
            foreign=parts.foreign,
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:
        """Return the LTOIR of a module's functions and the link inputs that they need."""
        ((target, merged),) = parts.merged.items()
        title = f"code of {parts.name}'s functions"
        linked = [LinkInput(kind="ltoir", name=title, data=merged, module=parts.name, header=parts.c_header())]
        for item in parts.function_inputs:
            if item.kind == "cu":
                code = compile_source(parts.plan, item, [target])[target]
                linked.append(LinkInput(kind="ltoir", name=f"code of {item.name}", data=code, module=parts.name))
            else:
                linked.append(item)
        return Linked(inputs=tuple(linked), callbacks=built.callbacks)


class WheelPackager:
    """Package a module for a wheel: fatbins, link inputs for users of its functions, and inputs of the JIT fallback."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def function_targets(self, plan: ModulePlan) -> tuple[Target, ...]:
        """Return the targets of the module's LTOIR, and one target for PTX."""
        return plan.function_targets

    def tools(self) -> dict[str, str]:
        """Return the version of nvFatbin."""
        return {"nvfatbin": nvfatbin.version()}

    def packer(self, module: str, versions: Iterable[tuple[int, int]]) -> Callable[[Target, bytes], bytes]:
        """Return a function that packs an image into a fatbin."""
        # The fatbins are for the drivers of all images, including images that builds with other toolkits made.
        others = (image.cuda for image in self._job.others.images.get(module, ()))
        return partial(nvfatbin.pack, module, nvfatbin.options([*versions, *others]))

    def images(self, parts: Parts) -> tuple[Image, ...]:
        """Return the images of this build and of builds with other toolkits, in the order in which they are packed."""
        others = self._job.others.images.get(parts.name, ())
        names = parts.plan.images
        images = (*parts.images, *others)
        if names and (other := next((image for image in others if image.name not in names), None)):
            message = (
                f"{parts.plan.config.key}: CUDA {gpu_facts.dotted(other.cuda)} compiles {other.name or 'all files'} to "
                f"one image, where CUDA {gpu_facts.dotted(toolchain.toolkit_version())} has an image of "
                f"{' and one of '.join(names) or 'all files'}, since files refer to each other's names with one of "
                "the two alone; write relocatable = true"
            )
            raise LinkError(message)
        return tuple(sorted(images, key=lambda image: names.index(image.name))) if names else images

    def finish(self, parts: Parts, packed: Sequence[bytes], compile_source: Compile) -> BuiltModule:
        """Return the module with its packed images and functions."""
        ltoir = tuple(parts.merged.items())
        images = self.images(parts)
        return BuiltModule(
            plan=parts.plan,
            images=images,
            kernels=parts.kernels,
            ltoir=ltoir,
            functions=parts.functions,
            kernel_fatbins=tuple(
                nvfatbin.join([data for image, data in zip(images, packed, strict=True) if image.name == name])
                for name in dict.fromkeys(image.name for image in images)
            ),
            function_fatbin=nvfatbin.functions(ltoir, parts.name) if ltoir else b"",
            callbacks=parts.callbacks,
            foreign=parts.foreign,
            linked=parts.linked,
            left_out=parts.left_out,
            general_left_out=parts.general_left_out,
            function_links=tuple(_function_links(parts, compile_source)),
            carried=tuple((name, str(path)) for name, path in (parts.files if self._job.product.carry else ())),
        )

    def linkable(self, parts: Parts, built: BuiltModule, compile_source: Compile) -> Linked:  # noqa: ARG002
        """Return the link inputs that other projects read from the wheel."""
        return inputs.packaged(
            parts.name, built.function_fatbin, parts.c_header(), built.function_links, built.callbacks
        )


Packager = JitPackager | WheelPackager
"""Each class turns the compiled code of a module into the worker's result."""


def make(job: Job) -> Packager:
    """Return the packager of a job."""
    return JitPackager() if job.product.kind == "jit" else WheelPackager(job)


def _function_links(parts: Parts, compile_source: Compile) -> Iterator[tuple[str, bytes]]:
    """Yield the files that users of the exported functions link: CUDA C++ compiled to LTOIR, other files unchanged."""
    for number, item in enumerate(parts.function_inputs):
        path = Path(item.name)  # a module's name, possibly with a file, is handled as a path too
        plain = path.stem if path.suffix in linkable.KINDS else path.name
        stem = f"link{number}_" + re.sub(r"\W+", "_", plain)
        if item.kind == "cu":
            compiled = compile_source(parts.plan, item, parts.plan.function_targets)
            yield f"{stem}.fatbin", nvfatbin.functions(compiled.items(), item.name)
        else:
            yield f"{stem}{linkable.SUFFIXES[item.kind]}", item.data
