"""Compiling one function for one signature and one target."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from numba_cuda_mlir import cuda, decorators, mlir_compiler, mlir_optimization
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core.errors import NumbaError
from numba_cuda_mlir.numba_cuda.cudadrv import nvvm

from aotcuda.builder.frontends.numba import c_abi, declarations, units
from aotcuda.builder.frontends.numba.messages import RaisesError, explained, relative
from aotcuda.builder.frontends.numba_cuda_mlir import linking, llvm_ir
from aotcuda.builder.frontends.numba_cuda_mlir import patches as adapt
from aotcuda.builder.frontends.numba_cuda_mlir.types import check, notation, passing
from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, LinkInput
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FunctionType

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.tables import NumbaUnit
    from aotcuda.builder.frontends.numba.units import JitOptions

_state: dict[str, str] = {"root": ""}


def prepare(root: str) -> dict[str, str]:
    """Adapt the compiler, compile once so that what every unit needs is there, and name the versions."""
    _state["root"] = root
    adapt.install()
    _warm_up()
    return {
        "numba-cuda-mlir": version("numba-cuda-mlir"),
        "numpy": version("numpy"),
        "nvvm": ".".join(map(str, nvvm.NVVM().get_version())),
    }


def resolve(unit: NumbaUnit, function: object) -> str:
    """Check that `function` can be compiled and that the unit's signature parses and fits it; returns it as understood.

    Raises:
        SourceError: `function` is no function.
        CompileError: The signature is not one, or has the wrong number of arguments.
    """
    return units.resolve(unit, _python(unit, function), notation, _state["root"])


def compile_kernel(unit: NumbaUnit, function: object, target: Target) -> CompiledKernel:
    """Compile a kernel to LTOIR (to PTX for debugging) for one target.

    Raises:
        CompileError: The compiler refuses it, or it takes an argument that cannot be passed to a packaged kernel.
    """
    python, root = _python(unit, function), _state["root"]
    jit = _jit_options(unit, function)
    args, _ = units.signature(unit, python, notation)
    layout = passing.layout(f"{unit.key}: {unit.signature}", list(inspect.signature(python).parameters), args)
    tag = f"{unit.module}.{unit.symbol}"
    with (
        explained(unit, python, root, NumbaError),
        adapt.compiling(tag, target, jit.options, python, c_abi=False),
    ):
        compiled = _lower(unit, python, args, types.void, jit, target)
        text = _llvm_ir(compiled, fastmath=jit.options.fastmath)
        linker = compiled.metadata["linker"]
        needed = linking.needs(linker.items, root, cooperative=linker.cooperative)
        if jit.max_registers:
            text = llvm_ir.with_register_limit(text, unit.symbol, jit.max_registers)
        if jit.options.debug:
            text = llvm_ir.with_reports(text, unit.symbol)
        code = _generate(unit.symbol, [text], jit.options, target, "ptx" if jit.options.debug else "ltoir")
        exceptions = [
            (number, kind, given, where, relative(path, root), line)
            for number, kind, given, where, path, line in adapt.raised()
        ]
    return CompiledKernel(
        code=(code,),
        needed=needed.inputs,
        signature=notation.spell_signature(types.none, args),
        parameters=tuple(layout.parameters),
        parameter_bytes=layout.size,
        layout=tuple(layout.fields),
        cooperative=unit.cooperative or linker.cooperative,
        launch_bounds=jit.launch_bounds,
        carveout=jit.carveout,
        callbacks=needed.callbacks,
        externals=declarations.placed(llvm_ir.externals(text), python, root),
        exceptions=tuple(exceptions) if jit.options.debug else None,
    )


def compile_function(unit: NumbaUnit, function: object, target: Target) -> CompiledFunction:
    """Compile a device function with the C ABI, down to LLVM IR.

    Raises:
        CompileError: The compiler refuses it, it raises, or a type in its signature has no counterpart in C.
    """
    python, root = _python(unit, function), _state["root"]
    jit = _jit_options(unit, function)
    # Debug information in LTOIR cannot be linked; line information can.
    jit = replace(jit, options=replace(jit.options, debug=False))
    args, result = units.signature(unit, python, notation)
    tag = f"{unit.module}.{unit.symbol}"
    with (
        explained(unit, python, root, NumbaError),
        adapt.compiling(tag, target, jit.options, python, c_abi=True) as swallowed,
    ):
        compiled = _lower(unit, python, args, result, jit, target)
        returned = compiled.signature.return_type
        if isinstance(returned, types.Optional):
            message = "return None in some cases and a value in others; return a value in every case"
            raise RaisesError(message)
        declared = c_abi.prototype(passing, unit, python, args, returned)
        text = _llvm_ir(compiled, fastmath=jit.options.fastmath)
        linker = compiled.metadata["linker"]
        needed = linking.needs(linker.items, root, cooperative=linker.cooperative)
    return CompiledFunction(
        ir=(text,),
        fastmath=jit.options.fastmath,
        signature=notation.spell_signature(returned, args),
        result=declared.result,
        parameters=declared.parameters,
        structs=declared.structs,
        records=declared.records,
        needed=needed.inputs,
        callbacks=needed.callbacks,
        externals=declarations.placed(llvm_ir.externals(text), python, root),
        warnings=tuple(
            f"{unit.key}: a helper that it calls {relative(reason, root)}; the C ABI has no way to report it, so "
            "callers get an undefined value there"
            for reason in dict.fromkeys(swallowed)
        ),
    )


def merge_functions(
    functions: Sequence[CompiledFunction], target: Target, options: Options, form: Literal["ltoir", "ptx"] = "ltoir"
) -> bytes:
    """One LTOIR or PTX that holds all `functions`; libNVVM's options for fast math are used if all ask for it."""
    fastmath = all(function.fastmath for function in functions)
    texts = [text for function in functions for text in function.ir]
    return _generate("functions", texts, replace(options, fastmath=fastmath, debug=False), target, form).data


def _python(unit: NumbaUnit, function: object) -> FunctionType:
    return units.python_function(unit, function, adapt.MLIRDispatcher, notation, _state["root"])


def _jit_options(unit: NumbaUnit, function: object) -> JitOptions:
    given = function.targetoptions if isinstance(function, adapt.MLIRDispatcher) else {}
    return units.jit_options(unit, given)


def _lower(unit: NumbaUnit, python: FunctionType, args: Any, result: Any, jit: JitOptions, target: Target) -> Any:
    """Compile to MLIR; the result's metadata holds the module."""
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


def _llvm_ir(compiled: Any, *, fastmath: bool) -> str:
    """The LLVM IR of a compiled function, as libNVVM reads it for the target; helpers included."""
    mlir_optimization.optimize(compiled)
    text = llvm_ir.settle(compiled.metadata["ltoir"].decode(), _state["root"])
    return llvm_ir.with_fast_math(text) if fastmath else text


def _generate(
    name: str, texts: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
) -> LinkInput:
    level = 3 if options.opt_level > 0 and not options.debug else 0  # libNVVM knows no others; the linker does
    settings: dict[str, Any] = {"arch": f"compute_{target.number}", "opt": level}
    if options.fastmath:
        settings |= {"ftz": True, "fma": True, "prec_div": False, "prec_sqrt": False}
    if form == "ltoir":
        settings["gen-lto"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVVM's log speaks of its own internals; errors come as exceptions
        unit = nvvm.CompilationUnit(settings)
        for text in texts:
            unit.add_module(text.encode())
        unit.verify()
        unit.lazy_add_module(nvvm.LibDevice().get())
        data: bytes = unit.compile()
    return LinkInput(
        kind=form,
        name=f"code of {name}",
        data=data if form == "ltoir" else data.rstrip(b"\x00 \n") + b"\n",
    )


def _warm_up() -> None:
    """Compile a small kernel, so that typing and lowering tables are filled once and not in every child."""

    def warm(a: Any, x: Any, y: Any) -> None:  # pragma: no cover (compiled for a GPU, never run here)
        i = cuda.grid(1)
        tile = cuda.shared.array(32, dtype=types.float32)
        if i < x.size:
            tile[cuda.threadIdx.x] = x[i]
            cuda.syncthreads()
            y[i] = a * tile[cuda.threadIdx.x] + y[i] / x.shape[0]

    args = (types.float32, types.float32[::1], types.float32[::1])
    settings = decorators.verify_target_options({"lto": True})
    settings["_compile_output"] = "ltoir"
    mlir_optimization.optimize(mlir_compiler.compile_mlir(warm, types.void, args, targetoptions=settings))
