"""Compile one function for one signature and one target by Numba-CUDA."""

from __future__ import annotations

import functools
import re
import warnings
from contextlib import nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from llvmlite import ir as llvm
from numba import cuda
from numba.core.dispatcher import Dispatcher
from numba.cuda import compiler as cuda_compiler
from numba.cuda import types
from numba.cuda.cudadrv import nvvm
from numba.cuda.dispatcher import CUDADispatcher

from aotcuda.builder.frontends.numba import llvm_text
from aotcuda.builder.frontends.numba.front_end import MERGED, NumbaFrontEnd, small_kernel
from aotcuda.builder.frontends.numba_cuda import linking, patches
from aotcuda.builder.frontends.numba_cuda.types import convention
from aotcuda.builder.frontends.protocol import LinkInput

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FunctionType

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.front_end import ErrorCode
    from aotcuda.builder.frontends.numba.jit_options import JitOptions
    from aotcuda.builder.frontends.numba.link_items import Needs


class NumbaCuda(NumbaFrontEnd):
    """Numba-CUDA."""

    convention = convention
    dispatchers = CUDADispatcher | Dispatcher
    packages = ("numba", "numba.cuda")

    def start(self) -> dict[str, str]:
        patches.install()
        return {
            "numba-cuda": version("numba-cuda"),
            "numba": version("numba"),
            "llvmlite": version("llvmlite"),
            "numpy": version("numpy"),
            "nvvm": ".".join(map(str, nvvm.NVVM().get_version())),
        }

    def warm_up(self) -> None:
        with patches.without_scipy():
            import numba.core.typing.cffi_utils  # noqa: F401, PLC0415  # typing of values imports it

            _warm_up()
        patches.record_warm_state()

    def jit_options(self, loaded: Any) -> dict[str, Any]:
        """Implement NumbaFrontEnd.jit_options; options of `@njit` do not influence code for GPUs."""
        return loaded.targetoptions if isinstance(loaded, CUDADispatcher) else {}

    def compiling(
        self, unit: NumbaUnit, target: Target, jit: JitOptions, python: FunctionType, *, c_abi: bool
    ) -> AbstractContextManager[list[str]]:
        return patches.compiling(f"{unit.module}.{unit.symbol}", target, jit.options)

    def lower(
        self, unit: NumbaUnit, python: FunctionType, args: Any, result: Any, jit: JitOptions, target: Target
    ) -> Any:
        options = jit.options
        with warnings.catch_warnings():
            # A debug build has its own key, whose documentation says that it disables optimisation.
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
                abi="numba" if unit.kind == "kernel" else "c",
                abi_info={"abi_name": unit.symbol},
            )

    def is_fresh(self) -> bool:
        return patches.is_fresh()

    def is_extended(self) -> bool:
        return patches.is_extended()

    def result_type(self, compiled: Any) -> Any:
        return compiled.signature.return_type

    def kernel_texts(self, compiled: Any, unit: NumbaUnit, jit: JitOptions) -> list[str]:
        library = compiled.library
        entry = library.get_function(compiled.fndesc.llvm_func_name)
        library._entry_name = entry.name
        cuda_compiler.kernel_fixup(entry, jit.options.debug)
        nvvm.set_launch_bounds(entry, jit.launch_bounds or None)
        if jit.max_registers:
            _annotate(entry, "maxnreg", jit.max_registers)
        return self.function_texts(compiled, jit)

    def function_texts(self, compiled: Any, jit: JitOptions) -> list[str]:
        return [patches.normalize_debug_info(str(module), self.root) for module in compiled.library.modules]

    def needs(self, compiled: Any, texts: list[str], jit: JitOptions) -> Needs:
        return linking.needs(compiled.library, texts, jit.link, self.root)

    def is_cooperative(self, compiled: Any) -> bool:
        return bool(compiled.library.use_cooperative)

    def exceptions(self, compiled: Any) -> list[ErrorCode]:
        found = []
        for code, (kind, arguments, place_of) in sorted(compiled.call_helper.exceptions.items()):
            function, path, line = place_of or ("", "", 0)
            text = ", ".join(map(str, arguments or ()))
            name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            found.append((code, name, text, function or "", path or "", line or 0))
        return found

    def compile_ir(
        self, name: str, texts: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
    ) -> tuple[LinkInput, ...]:
        return _generate(name, texts, options, target, form)

    def include_dirs(self) -> list[str]:
        return linking.include_dirs()


FRONT_END = NumbaCuda()


def _nvvm_options(options: Options) -> dict[str, Any]:
    # libNVVM has only the levels 0 and 3. The linker also has the levels 1 and 2.
    settings: dict[str, Any] = {
        "fastmath": options.fastmath,
        "opt": 3 if options.opt_level > 0 and not options.debug else 0,
    }
    if options.fma is not None:
        settings["fma"] = options.fma
    if options.debug:
        settings["g"] = None
    return settings


def _generate(
    name: str, irs: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
) -> tuple[LinkInput, ...]:
    settings = {**_nvvm_options(options), "arch": f"compute_{target.number}"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVVM's log does not concern users; errors are exceptions
        if options.debug:
            # Modules with debug information cannot be merged by NVVM: each module becomes one PTX.
            texts = [_compile([text], settings, target) for text in irs]
            return tuple(
                LinkInput(kind="ptx", name=f"code of {name} ({number})", data=data.rstrip(b"\x00 \n") + b"\n")
                for number, data in enumerate(texts)
            )
        if form == "ltoir":
            settings["gen_lto"] = None
        data = _compile(irs, settings, target, is_shipped=name == MERGED)
        data = data if form == "ltoir" else data.rstrip(b"\x00 \n") + b"\n"
        return (LinkInput(kind=form, name=f"code of {name}", data=data),)


def _compile(texts: list[str], settings: dict[str, Any], target: Target, *, is_shipped: bool = False) -> bytes:
    """Compile as `nvvm.compile_ir` does, and do the common work of several targets once.

    With `is_shipped`, the result equals that of `nvvm.compile_ir`, because wheels contain it. Otherwise the result may
    differ, but the linker generates equal code from it.
    """
    options = {name: value for name, value in settings.items() if name != "fastmath"}
    if settings["fastmath"]:
        options = {"fma": True} | options | {"ftz": True, "prec_div": False, "prec_sqrt": False}
    unit = nvvm.CompilationUnit(options)
    converted = [_older_dialect(text) for text in texts]
    for data in converted:
        unit.add_module(data)
    rest = tuple((name, value) for name, value in options.items() if name != "arch")
    form = (tuple(converted), rest, target.capability >= _NEW_DIALECT)
    if target.suffix or _verified.get(form, target.capability) >= target.capability:
        with (
            patches.verifying_for(llvm_text.VERIFIER_TARGET) if llvm_text.verifier_misjudges(target) else nullcontext()
        ):
            unit.verify()
        if not target.suffix:
            _verified[form] = target.capability
    # libdevice is added after the verification, which it would not pass. Without it, LTOIR of kernels that do not call
    # it takes half the time, and the linker makes equal code.
    if is_shipped or "gen_lto" not in options or any(_MAY_CALL_LIBDEVICE.search(data) for data in converted):
        unit.lazy_add_module(nvvm.LibDevice().get())
    compiled: bytes = unit.compile()
    return compiled


_verified: dict[object, tuple[int, int]] = {}
"""The lowest compute capability for which a text was verified in this process, by text, settings and dialect.

Code that is valid for a capability is valid for later ones, except for targets of one architecture or family.
"""

_NEW_DIALECT = (10, 0)
"""The first compute capability for which NVVM reads the newer of its two dialects."""

_MAY_CALL_LIBDEVICE = re.compile(
    rb"""@"?(?!llvm\.(?:nvvm|used|compiler\.used|dbg|lifetime|mem(?:cpy|move|set))\b)(?:llvm\.|__nv)|\bfrem\b"""
)
"""Calls of libdevice, and of intrinsics that may become one."""


@functools.lru_cache(maxsize=64)
def _older_dialect(text: str) -> bytes:
    """Return LLVM IR in NVVM's older dialect, converted by Numba-CUDA's own function."""
    return str(nvvm.llvm_replace(text)).encode()


def _annotate(entry: Any, name: str, value: int) -> None:
    module = entry.module
    i32 = llvm.IntType(32)
    node = module.add_metadata((entry, llvm.MetaDataString(module, name), llvm.Constant(i32, value)))
    module.get_named_metadata("nvvm.annotations").add(node)


_NO_TARGET = (0, 0)
"""A compute capability that no target has, so that no target gets code that the compiler cached in the warm-up."""


def _warm_up() -> None:
    args = (types.float32, types.float32[::1], types.float32[::1])
    settings = {"fastmath": False, "opt": 3}
    compiled = cuda_compiler.compile_cuda(
        small_kernel(cuda, types), types.void, args, nvvm_options=settings, cc=_NO_TARGET, lto=True
    )
    texts = [str(module) for module in compiled.library.modules]
    nvvm.compile_ir(texts, **settings, arch="compute_75", gen_lto=None)
