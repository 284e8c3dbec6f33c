"""Compile Triton's kernels: each variant becomes PTX, and all PTX of a module becomes one image.

Triton's own assembler makes the image with Triton's options, so the machine code equals that of Triton's JIT. Triton's
cache is not used.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from typing import TYPE_CHECKING

from aotcuda.builder.frontends import python_source, variants
from aotcuda.builder.frontends.protocol import (
    Assembled,
    Assembler,
    CompiledKernel,
    Definition,
    Launch,
    LinkInput,
    ParameterBlock,
)
from aotcuda.builder.frontends.triton import (
    compilation,
    compile_errors,
    config,
    decorators,
    gpu,
    launches,
    ptx,
    source_function,
)
from aotcuda.builder.frontends.triton.source_function import Loaded
from aotcuda.builder.link import images
from aotcuda.builder.plan import toolchain
from aotcuda.common import distributions
from aotcuda.common import gpu_facts as versions
from aotcuda.errors import CompileError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from aotcuda.arch import Target
    from aotcuda.builder.cache.compile_cache import CompileCache
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import GpuQuery, LeftOut, Session
    from aotcuda.builder.frontends.triton.config import TritonUnit

_OLDEST = (3, 6)
"""The oldest version of Triton that was tested."""

_KNOWN_TARGET = re.compile(r"'sm_(\d+)'")


class TritonFrontEnd:
    """Implement `aotcuda.builder.frontends.protocol.FrontEnd` for Triton."""

    def __init__(self, root: str = "") -> None:
        """Make a front end; `root` is for a process that only loads sources, and does not call `prepare`."""
        self._root = root
        self._cache: CompileCache | None = None

    def prepare(self, session: Session) -> dict[str, str]:
        """Implement FrontEnd.prepare; the cache spares the time from Triton's IR to PTX, which is most of a build.

        Raises:
            ToolchainError: This Triton is too old, does not compile, or has no assembler for a target.
        """
        self._root, self._cache = session.root, session.cache
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # line information contains absolute paths
        import triton  # noqa: PLC0415 (imported at the first use: errors of the import name the key)

        if compilation.release(triton.__version__) < _OLDEST:
            message = (
                f"Triton {triton.__version__} is older than {versions.dotted(_OLDEST)}, the oldest supported release; "
                "install a newer one: pip install --upgrade 'aotcuda[triton]'"
            )
            raise ToolchainError(message)
        if session.warm:
            try:
                compilation.warm_up()
            except Exception as error:
                reason = compile_errors.first_line(error)
                message = f"Triton {triton.__version__} does not compile here: {reason}; install it again"
                raise ToolchainError(message) from error
        for target in session.targets:
            _check_target(target, session.arch_key)
        return {"triton": triton.__version__}

    def importing(self, target: Target) -> AbstractContextManager[Iterable[GpuQuery]]:
        """Implement FrontEnd.importing."""
        return gpu.importing(target, compilation.gpu_target(target), self._root)

    def load(self, unit: TritonUnit) -> Loaded:
        """Implement FrontEnd.load.

        Raises:
            SourceError: A source cannot be imported, or lacks the kernel.
        """
        for package in distributions.packages_to_import(unit.sources[0]) if unit.pack else ():
            python_source.import_source(package, unit, self._root)
        name, value = python_source.find(unit, unit.sources, self._root)
        inner, function = decorators.layers(value)
        source_function.check_function(unit, name, function)
        around = [*source_function.decorators_on_path(unit, self._root), *inner]
        tuners = decorators.tuners(around)
        if not unit.in_place:
            source_function.check_hooks(unit, name, tuners, function)
        computed = decorators.heuristics(around)
        digest, problem = source_function.digest(function, computed) if unit.pack else ("", "")
        return Loaded(
            function=function,
            tuned=frozenset(key for item in tuners for config in item.configs for key in config.kwargs)
            if tuners
            else None,
            computed=computed,
            digest=digest,
            problem=problem,
        )

    def resolve(self, unit: TritonUnit, loaded: Loaded) -> Iterable[tuple[TritonUnit, str]]:
        """Implement FrontEnd.resolve: leave out hints that the source switches off.

        Raises:
            CompileError: The table does not fit the function.
        """
        source_function.check(unit, loaded)
        plain = [parameter for parameter in loaded.function.params if not parameter.is_constexpr]
        unhinted = {number: source_function.disabled_hints(parameter) for number, parameter in enumerate(plain)}
        return [(completed, completed.signature) for completed in config.completed(unit, unhinted)]

    def compile_unit(
        self, unit: TritonUnit, loaded: Loaded, targets: Sequence[Target]
    ) -> dict[Target, CompiledKernel | LeftOut]:
        """Implement FrontEnd.compile_unit: to PTX; the key in the compile cache is Triton's IR."""
        return variants.compile_each(unit, targets, lambda target: self._kernel(unit, loaded, target))

    def _kernel(self, unit: TritonUnit, loaded: Loaded, target: Target) -> CompiledKernel:
        """Return a compiled kernel.

        Raises:
            CompileError: Triton refuses it, or a packaged kernel or the target lacks something that it needs.
        """
        if loaded.problem:
            message = f"{unit.head}: {loaded.problem}, so that no pack can serve it"
            raise CompileError(message)
        compiled = compilation.compile_variant(unit, loaded.function, target, self._root, self._cache)
        text = compiled.ptx
        fields = ptx.fields(text)
        return CompiledKernel(
            code=(LinkInput(kind="ptx", name=unit.symbol, data=ptx.rename(text, unit.symbol).encode()),),
            signature=unit.signature,
            parameters=tuple(launches.parameters(unit, loaded.function, compiled.metadata, fields)),
            parameter_block=ParameterBlock(
                size=fields[-1].offset + fields[-1].size if fields else 0,
                layout=tuple((field.offset, field.size) for field in fields),
                one_by_one=unit.has_descriptors,  # the GPU's code aligns tensor maps
                reserved=tuple(field.offset for field in fields[-launches.SCRATCH :]) if unit.has_descriptors else (),
            ),
            launch=Launch(
                cooperative=unit.launch_cooperative_grid,
                fixed=launches.fixed_launch(unit, compiled.metadata, target, fields),
            ),
            definition=Definition(
                defined=source_function.definition(loaded.function),
                arguments=tuple(launches.arguments(unit, loaded)),
                heuristics=tuple(loaded.computed),
                exact=True,
                adopts=not unit.in_place,
                fixed=unit.fixed,
                digest=loaded.digest,
            ),
            generated=compiled.generated,
        )

    def is_fresh(self) -> bool:
        """Implement FrontEnd.is_fresh: Triton's JIT also compiles all kernels of a program in one process."""
        return True

    def assembler(self, target: Target) -> Assembler:
        """Implement FrontEnd.assembler; sources may set other tools by `triton.knobs` or its environment variables."""
        from triton import knobs  # noqa: PLC0415 (imported at the first use)

        libdevice = knobs.nvidia.libdevice_path
        tools = [_ptxas(target), *([libdevice] if libdevice else [])]
        return Assembler(tools=tools, assemble=functools.partial(_assemble, target))


FRONT_END = TritonFrontEnd()


def _ptxas(target: Target) -> str:
    """Return the path of Triton's assembler for a target; some targets have another assembler."""
    from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415 (imported at the first use)

    path: str = get_ptxas(compilation.gpu_target(target).arch).path
    return path


def _check_target(target: Target, where: str) -> None:
    """Check that Triton's assembler knows a target."""
    import triton  # noqa: PLC0415 (imported at the first use)

    output = subprocess.run([_ptxas(target), "--help"], check=False, capture_output=True, text=True).stdout
    supported = sorted(set(_KNOWN_TARGET.findall(output)), key=int)
    if supported and f"{target.major}{target.minor}" not in supported:
        name = f"{str(target).partition('_')[0]}_{target.major}{target.minor}"
        raise toolchain.unknown_target(
            name, where, f"Triton {triton.__version__}", [f"sm_{number}" for number in supported]
        )


def _assemble(target: Target, module: str, inputs: Sequence[LinkInput], options: Options) -> Assembled:
    """Return the image of a module's kernels.

    Raises:
        CompileError: The assembler refuses all kernels.
    """

    def assemble(items: Sequence[LinkInput]) -> tuple[str, bytes, tuple[int, int]]:
        text = ptx.merge([item.data.decode() for item in items])
        return text, *compilation.assemble(module, text, target, options.fma)

    (text, data, cuda), left_out = variants.assemble_kernels(module, inputs, assemble)
    if target.kind == "sass":
        return Assembled(data=data, cuda=cuda, left_out=left_out)

    def machine_code(candidate: bytes) -> bytes | None:
        try:
            return compilation.assemble(module, candidate.decode(), target, options.fma)[0]
        except CompileError:
            return None

    older = images.lower_ptx_version(text.encode(), machine_code)
    return Assembled(data=older, cuda=cuda, left_out=left_out)
