"""Compiling one function for one signature and one target."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import replace
from importlib.metadata import version
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from llvmlite import ir as llvm
from numba import cuda
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.cuda import compiler as cuda_compiler
from numba.cuda import types
from numba.cuda.cudadrv import nvvm
from numba.cuda.dispatcher import CUDADispatcher

from aotcuda.builder.frontends.numba import c_abi, declarations, units
from aotcuda.builder.frontends.numba.messages import explained, relative
from aotcuda.builder.frontends.numba_cuda import linking
from aotcuda.builder.frontends.numba_cuda import patches as adapt
from aotcuda.builder.frontends.numba_cuda.types import notation, passing
from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, LinkInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.tables import NumbaUnit
    from aotcuda.builder.frontends.numba.units import JitOptions

_state: dict[str, str] = {"root": ""}


def prepare(root: str) -> dict[str, str]:
    """Make Numba compile for a target, compile once so that what every unit needs is there, and name the versions."""
    _state["root"] = root
    adapt.install()
    _warm_up()
    return {
        "numba-cuda": version("numba-cuda"),
        "numba": version("numba"),
        "llvmlite": version("llvmlite"),
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
        CompileError: Numba refuses it, or it takes an argument that cannot be passed to a packaged kernel.
    """
    python = _python(unit, function)
    jit = _jit_options(unit, function)
    args, _ = units.signature(unit, python, notation)
    layout = passing.layout(f"{unit.key}: {unit.signature}", list(inspect.signature(python).parameters), args)
    with (
        explained(unit, python, _state["root"], NumbaError),
        adapt.compiling(f"{unit.module}.{unit.symbol}", target, jit.options),
    ):
        compiled = _lower(unit, python, args, types.void, jit, target, abi="numba")
        library = compiled.library
        entry = library.get_function(compiled.fndesc.llvm_func_name)
        library._entry_name = entry.name
        cuda_compiler.kernel_fixup(entry, jit.options.debug)
        nvvm.set_launch_bounds(entry, jit.launch_bounds or None)
        if jit.max_registers:
            _annotate(entry, "maxnreg", jit.max_registers)
        irs = _module_texts(library)
        code = _generate(unit.symbol, irs, jit.options, target)
        needed = linking.needs(library, irs, jit.link, _state["root"])
    return CompiledKernel(
        code=code,
        needed=needed.inputs,
        signature=notation.spell_signature(types.none, args),
        parameters=tuple(layout.parameters),
        parameter_bytes=layout.size,
        layout=tuple(layout.fields),
        cooperative=unit.cooperative or library.use_cooperative,
        launch_bounds=jit.launch_bounds,
        carveout=jit.carveout,
        callbacks=needed.callbacks,
        externals=declarations.placed(needed.externals, python, _state["root"]),
        exceptions=_exceptions(compiled) if jit.options.debug else None,
    )


def compile_function(unit: NumbaUnit, function: object, target: Target) -> CompiledFunction:
    """Compile a device function with the C ABI, down to LLVM IR.

    Raises:
        CompileError: Numba refuses it, it raises, or a type in its signature has no counterpart in C.
    """
    python = _copy(_python(unit, function))
    jit = _jit_options(unit, function)
    # Debug information in LTOIR cannot be linked; line information can.
    jit = replace(jit, options=replace(jit.options, debug=False))
    args, result = units.signature(unit, python, notation)
    with (
        explained(unit, python, _state["root"], NumbaError),
        adapt.compiling(f"{unit.module}.{unit.symbol}", target, jit.options) as swallowed,
    ):
        compiled = _lower(unit, python, args, result, jit, target, abi="c")
        returned = compiled.signature.return_type
        library = compiled.library
        declared = c_abi.prototype(passing, unit, python, args, returned)
        irs = _module_texts(library)
        needed = linking.needs(library, irs, jit.link, _state["root"])
    return CompiledFunction(
        ir=tuple(irs),
        fastmath=jit.options.fastmath,
        signature=notation.spell_signature(returned, args),
        result=declared.result,
        parameters=declared.parameters,
        structs=declared.structs,
        records=declared.records,
        needed=needed.inputs,
        callbacks=needed.callbacks,
        externals=declarations.placed(needed.externals, python, _state["root"]),
        warnings=tuple(
            f"{unit.key}: a helper that it calls {relative(reason, _state['root'])}; the C ABI has no way to report "
            "it, so callers get an undefined value there"
            for reason in dict.fromkeys(swallowed)
        ),
    )


def merge_functions(
    functions: Sequence[CompiledFunction], target: Target, options: Options, form: Literal["ltoir", "ptx"] = "ltoir"
) -> bytes:
    """One LTOIR or PTX that holds all `functions`.

    Fast math is in the instructions of each function; the settings of the whole (flush to zero, approximate division
    and square root) are used only if all functions ask for them.
    """
    fastmath = all(function.fastmath for function in functions)
    irs = [text for function in functions for text in function.ir]
    merged = replace(options, fastmath=fastmath, debug=False)
    return _generate("functions", irs, merged, target, form)[0].data


def _lower(
    unit: NumbaUnit, python: FunctionType, args: Any, result: Any, jit: JitOptions, target: Target, *, abi: str
) -> Any:
    options = jit.options
    with warnings.catch_warnings():
        # A debug build is asked for with its own key; that it disables optimisation is documented there.
        warnings.filterwarnings("ignore", message="debug=True with opt=True")
        return cuda_compiler.compile_cuda(
            python,
            result,
            args,
            debug=options.debug,
            lineinfo=options.lineinfo,
            forceinline=jit.forceinline and unit.kind == "function",
            inline=jit.inline,
            fastmath=options.fastmath,
            nvvm_options=_nvvm_options(options),
            cc=target.capability,
            lto=not options.debug,
            abi=abi,
            abi_info={"abi_name": unit.symbol},
        )


def _nvvm_options(options: Options) -> dict[str, Any]:
    # libNVVM knows two levels, 0 and 3; the linker has the ones between.
    found: dict[str, Any] = {
        "fastmath": options.fastmath,
        "opt": 3 if options.opt_level > 0 and not options.debug else 0,
    }
    if options.debug:
        found["g"] = None
    return found


def _generate(
    name: str, irs: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"] = "ltoir"
) -> tuple[LinkInput, ...]:
    settings = {**_nvvm_options(options), "arch": f"compute_{target.number}"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVVM's log speaks of its own internals; errors come as exceptions
        if options.debug:
            # Modules with debug information cannot be merged by NVVM: each becomes PTX of its own.
            texts = [nvvm.compile_ir(text, **settings) for text in irs]
            return tuple(
                LinkInput(kind="ptx", name=f"code of {name} ({number})", data=data.rstrip(b"\x00 \n") + b"\n")
                for number, data in enumerate(texts)
            )
        if form == "ltoir":
            settings["gen_lto"] = None
        data = nvvm.compile_ir(irs, **settings)
        data = data if form == "ltoir" else data.rstrip(b"\x00 \n") + b"\n"
        return (LinkInput(kind=form, name=f"code of {name}", data=data),)


def _module_texts(library: Any) -> list[str]:
    return [adapt.settle_debug_info(str(module), _state["root"]) for module in library.modules]


def _exceptions(compiled: Any) -> tuple[tuple[int, str, str, str, str, int], ...]:
    """What each error code means that a debug kernel stores when it raises."""
    found = []
    for code, (kind, arguments, place_of) in sorted(compiled.call_helper.exceptions.items()):
        function, path, line = place_of or ("", "", 0)
        text = ", ".join(map(str, arguments or ()))
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        found.append((code, name, text, function or "", relative(path or "", _state["root"]), line or 0))
    return tuple(found)


def _annotate(entry: Any, name: str, value: int) -> None:
    module = entry.module
    i32 = llvm.IntType(32)
    node = module.add_metadata((entry, llvm.MetaDataString(module, name), llvm.Constant(i32, value)))
    module.get_named_metadata("nvvm.annotations").add(node)


def _python(unit: NumbaUnit, function: object) -> FunctionType:
    return units.python_function(unit, function, CUDADispatcher | Dispatcher, notation, _state["root"])


def _copy(function: FunctionType) -> FunctionType:
    """A second function with the same code: one that calls itself then calls the first, as a helper with Numba's ABI.

    Numba takes a call for a recursion by the function object, and the recursion would be between two ABIs.
    """
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    return copy


def _jit_options(unit: NumbaUnit, function: object) -> JitOptions:
    return units.jit_options(unit, function.targetoptions if isinstance(function, CUDADispatcher) else {})


def _warm_up() -> None:
    """Compile a small kernel, so that typing and lowering tables are filled once and not in every child."""

    def warm(a: Any, x: Any, y: Any) -> None:  # pragma: no cover (compiled for a GPU, never run here)
        i = cuda.grid(1)
        tile = cuda.shared.array(32, dtype=types.float32)
        if i < x.size:
            tile[cuda.threadIdx.x] = x[i]
            cuda.syncthreads()
            y[i] = a * tile[cuda.threadIdx.x] + y[i] / x.shape[0]

    cuda.compile(warm, "void(float32, float32[::1], float32[::1])", device=False, abi="numba", cc=(7, 5))
