"""Compile one function for one signature and one target, by Numba-CUDA-MLIR."""

from __future__ import annotations

import inspect
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numba_cuda_mlir import cuda, decorators, mlir_compiler, mlir_optimization
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import config
from numba_cuda_mlir.numba_cuda.cudadrv import nvvm

from aotcuda.builder.frontends.numba import link_items, llvm_text
from aotcuda.builder.frontends.numba.front_end import NumbaFrontEnd, small_kernel
from aotcuda.builder.frontends.numba.link_items import Needs
from aotcuda.builder.frontends.numba.user_lines import RaisesError
from aotcuda.builder.frontends.numba_cuda_mlir import known_faults, llvm_ir, patches
from aotcuda.builder.frontends.numba_cuda_mlir.types import check, constants, convention
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from types import FunctionType

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.front_end import ErrorCode
    from aotcuda.builder.frontends.numba.jit_options import JitOptions
    from aotcuda.builder.frontends.protocol import Fault


class NumbaCudaMlir(NumbaFrontEnd):
    """Numba-CUDA-MLIR."""

    convention = convention
    dispatchers = patches.MLIRDispatcher
    packages = ("numba_cuda_mlir",)

    def start(self) -> dict[str, str]:
        patches.install()
        known_faults.install()
        return {
            "numba-cuda-mlir": version("numba-cuda-mlir"),
            "numpy": version("numpy"),
            "nvvm": ".".join(map(str, nvvm.NVVM().get_version())),
        }

    def warm_up(self) -> None:
        _warm_up()

    def compiling(
        self, unit: NumbaUnit, target: Target, jit: JitOptions, python: FunctionType, *, c_abi: bool
    ) -> AbstractContextManager[list[str]]:
        return patches.compiling(f"{unit.module}.{unit.symbol}", target, jit.options, python, c_abi=c_abi)

    def known_faults(self) -> AbstractContextManager[list[Fault]]:
        return known_faults.record(self.root)

    def lower(
        self, unit: NumbaUnit, python: FunctionType, args: Any, result: Any, jit: JitOptions, target: Target
    ) -> Any:
        """Implement NumbaFrontEnd.lower: to MLIR, which is in the metadata of the result."""
        check(inspect.signature(python).parameters, args)
        options = jit.options
        optimised = options.opt_level > 0 and not options.debug
        settings = decorators.verify_target_options(
            {
                "device": unit.kind == "function",
                "chip": f"sm_{target.number}",
                "abi_info": {"abi_name": unit.symbol},
                "fastmath": options.fastmath,
                "debug": options.debug,
                "lineinfo": options.lineinfo,
                "opt_level": 3 if optimised else 0,
                "launch_bounds": jit.launch_bounds or None,
                "link": list(jit.link),
                "lto": True,
                "experimental_ast_transforms": jit.ast_transforms,
            }
        )
        settings["_compile_output"] = "ltoir"
        compiled = mlir_compiler.compile_mlir(python, result, args, targetoptions=settings)
        if unit.kind == "kernel" and compiled.signature.return_type != types.none:
            message = f"a kernel returns nothing, and this one returns {compiled.signature.return_type}"
            raise CompileError(message)
        if compiled.metadata.get("needs_nrt"):
            message = "it allocates memory on the device (Numba's NRT), which a packaged kernel cannot do"
            raise CompileError(message)
        return compiled

    def result_type(self, compiled: Any) -> Any:
        returned = compiled.signature.return_type
        if isinstance(returned, types.Optional):
            message = "return None in some cases and a value in others; return a value in every case"
            raise RaisesError(message)
        return returned

    def kernel_texts(self, compiled: Any, unit: NumbaUnit, jit: JitOptions) -> list[str]:
        (text,) = self.function_texts(compiled, jit)
        args = compiled.signature.args
        layout = self.convention.layout(unit.head, [str(number) for number in range(len(args))], args)
        text = llvm_ir.with_constants(text, unit.symbol, constants(layout))
        if jit.max_registers:
            text = llvm_ir.with_register_limit(text, unit.symbol, jit.max_registers)
        if jit.options.debug:
            text = llvm_ir.with_reports(text, unit.symbol)
        return [text]

    def function_texts(self, compiled: Any, jit: JitOptions) -> list[str]:
        """Implement NumbaFrontEnd.function_texts: one text with all helpers, in libNVVM's dialect for the target."""
        mlir_optimization.optimize(compiled)
        text = llvm_ir.normalize(compiled.metadata["ltoir"].decode(), self.root)
        return [llvm_ir.with_fast_math(text) if jit.options.fastmath else text]

    def texts(
        self, compiled: Any, unit: NumbaUnit, jit: JitOptions, targets: Sequence[Target]
    ) -> list[tuple[Sequence[Target], list[str]]]:
        """Implement NumbaFrontEnd.texts: the MLIR for targets differs in the target's name alone."""
        texts: list[tuple[Sequence[Target], list[str]]] = []
        for target in targets:
            for_it = patches.retarget(compiled, target)
            texts += super().texts(for_it, unit, jit, [target])
        return texts

    def needs(self, compiled: Any, texts: list[str], jit: JitOptions) -> Needs:
        linker = compiled.metadata["linker"]
        (text,) = texts
        items = [item for item in linker.items if not (isinstance(item, str) and "cudadevrt" in Path(item).name)]
        inputs = [link_items.link_input(item, Path(self.root)) for item in items]
        if linker.cooperative:
            inputs.append(link_items.GRID_GROUP)  # in place of the library
        callbacks = [named for item in items for named in link_items.callbacks(item)]
        return Needs(inputs=tuple(inputs), callbacks=tuple(callbacks), externals=llvm_ir.externals(text))

    def is_cooperative(self, compiled: Any) -> bool:
        return bool(compiled.metadata["linker"].cooperative)

    def exceptions(self, compiled: Any) -> list[ErrorCode]:
        return patches.error_codes()

    def compile_ir(
        self, name: str, texts: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
    ) -> tuple[LinkInput, ...]:
        return (_generate(name, texts, options, target, form),)

    def include_dirs(self) -> list[str]:
        extra = getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "") or ""
        return [path for path in extra.split(":") if path]


FRONT_END = NumbaCudaMlir()


def _generate(
    name: str, texts: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
) -> LinkInput:
    level = 3 if options.opt_level > 0 and not options.debug else 0  # libNVVM has no others; the linker does
    settings: dict[str, Any] = {"arch": f"compute_{target.number}", "opt": level}
    if options.fastmath:
        settings |= {"ftz": True, "fma": True, "prec_div": False, "prec_sqrt": False}
    if options.fma is not None:
        settings["fma"] = options.fma
    if form == "ltoir":
        settings["gen-lto"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVVM's log is about its own internals; errors are raised as exceptions
        unit = _program(texts, settings)
        if llvm_text.verifier_misjudges(target):
            _program([llvm_text.without_additions(text) for text in texts], settings).verify()
        else:
            unit.verify()
        unit.lazy_add_module(nvvm.LibDevice().get())
        data: bytes = unit.compile()
    return LinkInput(
        kind=form,
        name=f"code of {name}",
        data=data if form == "ltoir" else data.rstrip(b"\x00 \n") + b"\n",
    )


def _program(texts: list[str], settings: dict[str, Any]) -> Any:
    unit = nvvm.CompilationUnit(settings)
    for text in texts:
        unit.add_module(text.encode())
    return unit


def _warm_up() -> None:
    warm = small_kernel(cuda, types)
    args = (types.float32, types.float32[::1], types.float32[::1])
    settings = decorators.verify_target_options({"lto": True})
    settings["_compile_output"] = "ltoir"
    mlir_optimization.optimize(mlir_compiler.compile_mlir(warm, types.void, args, targetoptions=settings))
