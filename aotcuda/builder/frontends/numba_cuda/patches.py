"""Patch Numba-CUDA to compile ahead of time: a target instead of a device, stable names, a stable order.

Numba-CUDA compiles for the machine that it runs on. Each patch has its reason. Patches that both of Numba's compilers
need are in `frontends/numba`. The worker process of the build applies all patches once. `aotcuda/registry.py` lists the
tested releases.
"""

from __future__ import annotations

import dis
import hashlib
import itertools
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numba
from llvmlite import ir as llvm
from llvmlite.ir.values import _escape_string
from numba import cuda
from numba.cuda import compiler as cuda_compiler
from numba.cuda import cuda_paths, cudaimpl, descriptor, dispatcher, target, types, vectorizers
from numba.cuda._internal import cuda_bf16, cuda_fp8, cuda_fp16
from numba.cuda.codegen import CUDACodeLibrary, ExternalCodeLibrary
from numba.cuda.core import (
    bytecode,
    byteflow,
    callconv,
    config,
    interpreter,
    ir,
    ir_utils,
    postproc,
    transforms,
)
from numba.cuda.core.errors import LoweringError
from numba.cuda.core.targetconfig import TargetConfig
from numba.cuda.cudadrv import driver, nvvm
from numba.cuda.flags import CUDAFlags
from numba.cuda.memory_management import nrt
from numba.cuda.np import arrayobj

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.numba import (
    gpu,
    other_compilers,
    patches,
    private_parts,
    resolve,
    target_dependence,
)
from aotcuda.builder.frontends.numba.user_lines import RaisesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options


@dataclass(slots=True)
class _Current:
    """The current unit.

    Attributes:
        tag: A part of all names that must be unique in a link.
        unreported: The exceptions of helpers that the C ABI cannot report.
        helpers: The number of helpers that were compiled in this process.
    """

    capability: tuple[int, int] | None = None
    tag: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    unreported: list[str] = field(default_factory=list)
    helpers: int = 0


_current = _Current()


@dataclass(slots=True)
class _Warm:
    """The state of the compiler after its warm-up, before the import of sources.

    Attributes:
        is_extended: True if sources have extended Numba, since extensions may store anything; None before the first
            unit.
    """

    registered: tuple[int, ...] = ()
    shared: int = 0
    traces: tuple[int, ...] = ()
    is_extended: bool | None = None


_warm = _Warm()


class _OrderedSet(dict[Any, None]):
    """A set in the order of insertion, for code that iterates over sets whose order depends on addresses."""

    add = dict.setdefault

    def update(self, *others: Any, **_: Any) -> None:
        for other in others:
            for item in other:
                self.setdefault(item)


@contextmanager
def compiling(tag: str, goal: Target, options: Options) -> Iterator[list[str]]:
    """Compile one unit for `goal`, with `tag` in every name that must be unique in a link.

    Yield a list that gets each place where a helper raises an exception, which the C ABI cannot report.
    """
    digest = hashlib.sha256(tag.encode()).digest()
    # Mangled names end in this number. In two processes the counter would give two different helpers one name, and the
    # linker would use one of them for both.
    first = int.from_bytes(digest[:6], "big") << 16
    bytecode.FunctionIdentity._unique_ids = itertools.count(first)
    cudaimpl._unique_smem_id = _warm.shared
    _current.capability = goal.capability
    _current.tag = digest[:6].hex()
    _current.options = {
        "debug": options.debug,
        "lineinfo": options.lineinfo,
        "fastmath": options.fastmath,
        "opt": options.opt_level > 0 and not options.debug,
    }
    _current.unreported = []
    try:
        yield _current.unreported
    finally:
        _current.capability = None
        _current.helpers += next(bytecode.FunctionIdentity._unique_ids) - first - 1


def record_warm_state() -> None:
    """Record the compiler's state after its preparation."""
    _warm.registered, _warm.shared, _warm.traces = _registrations(), cudaimpl._unique_smem_id, _traces()


def is_fresh() -> bool:
    """Return True if the next unit gets the code that it would get in a fresh process.

    Two kinds of state influence the code of later units: compiled helpers, whose names belong to an earlier unit, and
    counters. Extensions of Numba may store anything.
    """
    return not is_extended() and not _current.helpers and _traces() == _warm.traces


def is_extended() -> bool:
    """Return True if sources have extended Numba, since extensions may store anything; the first call decides."""
    if _warm.is_extended is None:
        _warm.is_extended = _registrations() != _warm.registered
    return _warm.is_extended


def _traces() -> tuple[int, ...]:
    """Return the counters and sizes whose growth changes the code of later units."""
    return (
        ir_utils._unique_var_count,
        ir_utils._the_max_label._value,
        len(llvm.context.global_context.identified_types),
        *(len(module.shim_stream.pieces) for module in _SHIM_MODULES),
    )


def _registrations() -> tuple[int, ...]:
    return tuple(map(_registered, (descriptor.cuda_target.target_context, descriptor.cuda_target.typing_context)))


_USER_EXC = "(self, builder, exc, exc_args=None, loc=None, func_name=None)"

_OF_PYTHON_3_14 = {
    "numba.cuda.core.byteflow:TraceRunner.op_LOAD_COMMON_CONSTANT": "(self, state, inst)",
    "numba.cuda.core.interpreter:Interpreter.op_LOAD_COMMON_CONSTANT": "(self, inst, res, idx)",
}

PRIVATE_PARTS = {
    "numba.cuda.core.bytecode:FunctionIdentity._unique_ids": "count",
    "numba.cuda.core.ir_utils:_the_max_label": "_MaxLabel",
    "numba.cuda.core.ir_utils:_unique_var_count": "int",
    "numba.cuda.cudaimpl:_get_unique_smem_id": "(name)",
    "numba.cuda.cudaimpl:_unique_smem_id": "int",
    "numba.cuda.dispatcher:CUDADispatcher.compile": "(self, sig)",
    "numba.cuda.dispatcher:CUDADispatcher.disable_compile": "(self, val=True)",
    "numba.cuda.dispatcher:CUDADispatcher.compile_device": "(self, args, return_type=None)",
    "numba.cuda.dispatcher:CUDADispatcher.get_call_template": "(self, args, kws)",
    "numba.cuda.target:CUDATypingContext.resolve_value_type": "(self, val)",
    "numba.cuda.core.callconv:CUDACABICallConv.return_user_exc": _USER_EXC,
    "numba.cuda.core.callconv:CUDACABICallConv.return_native_none": "(self, builder)",
    "numba.cuda.core.callconv:MinimalCallConv.return_user_exc": _USER_EXC,
    "numba.cuda.core.callconv:CUDACABICallConv.get_return_type": "(self, ty)",
    "numba.cuda.core.callconv:CUDACABICallConv.return_value": "(self, builder, retval)",
    "numba.cuda.core.callconv:CUDACABICallConv.call_function": "(self, builder, callee, resty, argtys, args)",
    "numba.cuda.cudadrv.nvvm:CompilationUnit.verify": "(self)",
    "numba.cuda.cudadrv.nvvm:compile_ir": "(llvmir, **options)",
    "numba.cuda.cudadrv.nvvm:llvm_replace": "(llvmir)",
    "numba.cuda.cudadrv.nvvm:CompilationUnit.__init__": "(self, options)",
    "numba.cuda.cudadrv.nvvm:CompilationUnit.add_module": "(self, buffer)",
    "numba.cuda.cudadrv.nvvm:CompilationUnit.lazy_add_module": "(self, buffer)",
    "numba.cuda.cudadrv.nvvm:CompilationUnit.compile": "(self)",
    "numba.cuda.cudadrv.nvvm:LibDevice.get": "(self)",
    "numba.cuda.flags:CUDAFlags.compute_capability": "(self)",
    "numba.cuda.flags:CUDAFlags.get_mangle_string": "(self)",
    "numba.cuda.target:CUDATargetContext.refresh": "(self)",
    "numba.cuda.target:CUDATypingContext.refresh": "(self)",
    "numba.cuda.target:CUDATargetContext.install_registry": "(self, registry)",
    "numba.cuda.target:CUDATypingContext.install_registry": "(self, registry, external_defs_only=False)",
    "numba.cuda.core.postproc:PostProcessor.run": "(self, emit_dels=False, extend_lifetimes=False)",
    "numba.cuda.core.postproc:VariableLifetime.__init__": "(self, blocks)",
    "numba.cuda.core.transforms:canonicalize_cfg": "(blocks)",
    "numba.cuda.core.targetconfig:TargetConfig.__init__": "(self, copy_from=None)",
    "numba.cuda.core.targetconfig:TargetConfig.__eq__": "(self, other)",
    "numba.cuda.core.targetconfig:TargetConfig.__hash__": "(self)",
    "numba.cuda.dispatcher:get_current_device": "()",
    "numba.cuda.compiler:get_current_device": "()",
    "numba.cuda.memory_management.nrt:get_current_device": "()",
    "numba.cuda.dispatcher:CUDADispatcher.call": "(self, args, launch_config)",
    "numba.cuda.dispatcher:_LaunchConfiguration.__call__": "(self, *args)",
    "numba.cuda.dispatcher:ForAll.__call__": "(self, *args)",
    "numba.cuda.compiler:compile_cuda": (
        "(pyfunc, return_type, args, debug=False, lineinfo=False, forceinline=False, inline='never', fastmath=False, "
        "nvvm_options=None, cc=None, max_registers=None, lto=False, abi='numba', abi_info=None)"
    ),
    "numba.cuda.np.arrayobj:_lower_constant_device_array": "(context, builder, ty, pyval)",
    **{f"numba.cuda.{name}": parameters for name, parameters in gpu.PRIVATE_PARTS.items()},
    **(_OF_PYTHON_3_14 if sys.version_info >= (3, 14) else {}),
}
"""The functions that are replaced, or called by keywords, with their parameters in the tested releases.

See `aotcuda.builder.frontends.numba.private_parts`.
"""


def install() -> None:
    """Apply the patches. Called once, before any user module is imported.

    Raises:
        ToolchainError: The installed release differs from the tested ones.
    """
    private_parts.check("numba-cuda", PRIVATE_PARTS)
    patches.find_toolkit(cuda_paths)
    patches.pin_settings(config)
    _supply_target()
    _watch_the_target()
    _compare_flags_quickly()
    _refresh_only_new_entries()
    _find_live_variables_once()
    _order_links()
    _name_shared_memory()
    _defer_eager_signatures()
    _defer_vectorize()
    patches.accept_plain_helpers(target.CUDATypingContext, cuda.jit, _helper_options)
    _catch_raises()
    _return_nothing_to_c()
    _separate_shims()
    _accept_assertions()
    _refuse_device_arrays()


class _TargetDevice:
    """The replacement for Numba's query of the current device."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        if _current.capability is None:
            raise RuntimeError(gpu_queries.MISSING)
        return _current.capability


def _supply_target() -> None:
    for module in (dispatcher, cuda_compiler, nrt):
        module.get_current_device = _TargetDevice
    gpu.answer(driver)
    gpu.refuse_launches(
        (dispatcher.CUDADispatcher, "call", ""),
        (dispatcher._LaunchConfiguration, "__call__", "dispatcher"),
        (dispatcher.ForAll, "__call__", "dispatcher"),
    )


def _watch_the_target() -> None:
    # Numba stores the target in a flag while it types and lowers. Numba's own code compares the flag with constants.
    # Code of toolkits may use it in any way.
    original: Any = CUDAFlags.compute_capability
    folders = tuple(f"{folder}/" for package in (numba, numba.cuda) for folder in package.__path__)

    def read(self: Any) -> Any:
        value = original.fget(self)
        watch = target_dependence.current_watch()
        if watch is None or value is None:
            return value
        if sys._getframe(1).f_code.co_filename.startswith(folders):
            return target_dependence.Capability(value)
        return watch.run(target_dependence.whole_capability) if value == watch.capability else value

    def write(self: Any, value: Any) -> None:
        original.fset(self, value.plain if isinstance(value, target_dependence.Capability) else value)

    CUDAFlags.compute_capability = property(read, write, original.fdel, original.__doc__)

    # Names of helpers contain all flags that are set. This flag is equal for all units of a link.
    mangled = CUDAFlags.get_mangle_string

    def get_mangle_string(self: Any) -> str:
        plain = self.copy()
        plain.discard("compute_capability")
        return str(mangled(plain))

    CUDAFlags.get_mangle_string = get_mangle_string


def _compare_flags_quickly() -> None:
    # Each look-up of an overload compares its flags with the flags of all overloads for the same types, which have one
    # hash. Reading each flag took a tenth of the time of typing and lowering.
    original = TargetConfig.__eq__

    def compare(self: Any, other: Any) -> Any:
        if type(self) is type(other):
            if self._values == other._values:
                return True
            if self._values.keys() == other._values.keys():
                return False
        return original(self, other)  # one may have set a flag to the default of the other

    def hash_of_type(self: Any) -> int:
        return hash(type(self).__name__)

    TargetConfig.__eq__ = compare
    TargetConfig.__hash__ = hash_of_type


def _refresh_only_new_entries() -> None:
    # Before each look-up of an implementation, Numba searches all registries for new entries, which takes a twentieth
    # of the time of typing and lowering. Registries only grow, so their sizes show whether there are new entries.
    for context in (target.CUDATargetContext, target.CUDATypingContext):
        original, install = context.refresh, context.install_registry

        def install_registry(self: Any, registry: Any, *args: Any, _original: Any = install, **kwargs: Any) -> None:
            installed = self.__dict__.setdefault("_aotcuda_installed", WeakKeyDictionary())
            loader = self._registries.get(registry)
            size = None if loader is None else _size(registry, loader)
            if size is None or size != installed.get(registry):
                _original(self, registry, *args, **kwargs)
                installed[registry] = size

        context.install_registry = install_registry

        def refresh(self: Any, *, _original: Any = original) -> None:
            count = _registered(self)  # counted first, since templates may register more during the refresh
            if count == self.__dict__.get("_aotcuda_registered"):
                if typing_context := getattr(self, "typing_context", None):
                    typing_context.refresh()
                return
            _original(self)
            self._aotcuda_registered = count

        context.refresh = refresh


def _find_live_variables_once() -> None:
    # Numba computes the live variables of each block after each of nine passes, but needs them only to insert deletions
    # or to compile a generator. The computation took an eighth of the time of typing and lowering.
    original = postproc.PostProcessor.run

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels or self.func_ir.is_generator:
            original(self, emit_dels, extend_lifetimes)
            return
        self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    postproc.PostProcessor.run = run


def _registered(context: Any) -> int:
    """Return the number of items in the registries that a context has installed."""
    return sum(_size(registry, loader) for registry, loader in context._registries.items())


def _size(registry: Any, loader: Any) -> int:
    return sum([len(getattr(registry, name)) for name in loader.registry_items])


@contextmanager
def without_scipy() -> Iterator[None]:
    """Hide `scipy.linalg` from Numba in the context.

    Numba imports it for its first kernel, because functions for the CPU call SciPy's BLAS, which GPUs do not have. With
    SciPy, kernels that would use Numba's own loops do not link, and the import takes a quarter of Numba's own time.
    """
    name = "scipy.linalg"
    if name in sys.modules:  # a .pth file may import it
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # makes the import fail
    try:
        yield
    finally:
        del sys.modules[name]


def _order_links() -> None:
    # The order of sets of objects depends on addresses, and the order of linked modules determines that of symbols.
    for library, names in (
        (CUDACodeLibrary, ("_linking_libraries", "_linking_files")),
        (ExternalCodeLibrary, ("_linking_files",)),
    ):
        original = library.__init__

        def initialise(self: Any, *args: Any, _original: Any = original, _names: Any = names, **kwargs: Any) -> None:
            _original(self, *args, **kwargs)
            for name in _names:
                setattr(self, name, _OrderedSet())

        library.__init__ = initialise


def _name_shared_memory() -> None:
    # Numba numbers shared arrays in each process, and makes them global symbols because of a fault in NVVM. Two kernels
    # of one image would share an array, and for PTX the linker reports nothing.
    def unique(name: str) -> str:
        cudaimpl._unique_smem_id += 1
        return f"{name}_{_current.tag}_{cudaimpl._unique_smem_id}"

    cudaimpl._get_unique_smem_id = unique


def _defer_eager_signatures() -> None:
    # `@cuda.jit("float32(float32)")` compiles when its module is imported, before there is a target. The build compiles
    # kernels later, as the configuration says. Device functions are compiled for their signatures when a unit first
    # calls them.
    def compile_kernel(self: Any, sig: Any) -> None:
        if _current.capability is None:
            resolve.declare(self, tuple(sig), None)
            return
        message = f"{self.py_func.__qualname__} is a kernel; launching it needs a GPU, and a build has none"
        raise RuntimeError(message)

    original_compile = dispatcher.CUDADispatcher.compile_device
    original_template = dispatcher.CUDADispatcher.get_call_template

    def compile_device(self: Any, args: Any, return_type: Any = None) -> Any:
        if _current.capability is None:
            resolve.declare(self, tuple(args), return_type)
            self.__dict__.setdefault("_aotcuda_eager", []).append((args, return_type))
            return None
        return original_compile(self, args, return_type)

    def get_call_template(self: Any, args: Any, kws: Any) -> Any:
        for arguments, return_type in self.__dict__.pop("_aotcuda_eager", ()):
            original_compile(self, arguments, return_type)
        return original_template(self, args, kws)

    dispatcher.CUDADispatcher.compile = compile_kernel
    patches.allow_disable_compile(dispatcher.CUDADispatcher)
    dispatcher.CUDADispatcher.compile_device = compile_device
    dispatcher.CUDADispatcher.get_call_template = get_call_template


def _defer_vectorize() -> None:
    # `@vectorize(target="cuda")` compiles for its own launches when its module is imported.
    def add(self: Any, sig: Any = None) -> None:
        del self, sig

    def build_ufunc(self: Any, *_: Any, **__: Any) -> other_compilers.Vectorized:
        return other_compilers.Vectorized(self.pyfunc)

    for kind in (vectorizers.CUDAVectorize, vectorizers.CUDAGUFuncVectorize):
        kind.add = add
        kind.build_ufunc = build_ufunc


def _helper_options() -> dict[str, Any] | None:
    return None if _current.capability is None else _current.options


def _catch_raises() -> None:
    # The C ABI has no status. A function that raises gets a block without a terminator, which NVVM refuses.
    def return_user_exc(
        self: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        if exc is TypeError and exc_args and str(exc_args[0]).endswith(", got None"):
            return  # a helper's Optional becomes a plain value, 0 for None, as in Numba's call conventions
        if exc is ValueError and exc_args and str(exc_args[0]).startswith("range() arg 3"):
            # Every loop has this check. The optimiser removes it if the step is a constant. If the step is 0, the
            # kernel must end, since the number of iterations is divided by the step.
            trap = builder.module.declare_intrinsic("llvm.trap", (), llvm.FunctionType(llvm.VoidType(), ()))
            builder.call(trap, ())
            builder.unreachable()
            return
        message = f"raise, and this one {_raise_text(exc, loc)}; return a value instead"
        raise RaisesError(message)

    def return_optional_none(self: Any, builder: Any) -> None:
        message = "return None in some cases and a value in others; return a value in every case"
        raise RaisesError(message)

    callconv.CUDACABICallConv.return_user_exc = return_user_exc
    callconv.CUDACABICallConv.return_native_none = return_optional_none

    original = callconv.MinimalCallConv.return_user_exc

    def record_user_exc(
        self: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        _current.unreported.append(_raise_text(exc, loc))
        original(self, builder, exc, exc_args=exc_args, loc=loc, func_name=func_name)

    callconv.MinimalCallConv.return_user_exc = record_user_exc


def _return_nothing_to_c() -> None:
    # A function of Numba that returns None returns a null pointer. In C and C++, the function is `void`. The patch is
    # for exported functions and functions of `declare_device`.
    convention = callconv.CUDACABICallConv
    original_type = convention.get_return_type
    original_return = convention.return_value
    original_call = convention.call_function

    def get_return_type(self: Any, ty: Any) -> Any:
        return llvm.VoidType() if ty == types.none else original_type(self, ty)

    def return_value(self: Any, builder: Any, retval: Any) -> Any:
        if isinstance(builder.function.ftype.return_type, llvm.VoidType):
            return builder.ret_void()
        return original_return(self, builder, retval)

    def call_function(self: Any, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any) -> Any:
        if resty != types.none:
            return original_call(self, builder, callee, resty, argtys, args)
        builder.call(callee, self._get_arg_packer(argtys).as_arguments(builder, args))
        return None, self.context.get_dummy_value()

    convention.get_return_type = get_return_type
    convention.return_value = return_value
    convention.call_function = call_function


def _raise_text(exc: Any, loc: Any) -> str:
    name = getattr(exc, "__name__", str(exc))
    return f"raises {name} ({loc.filename}:{loc.line})" if loc is not None else f"raises {name}"


def _separate_shims() -> None:
    # Operations of float16, bfloat16 and float8 are CUDA C++ functions, whose text Numba collects in one stream. Units
    # of one link need many equal functions, so the stream's pieces are stored by name.
    for module in _SHIM_MODULES:
        stream = module.shim_stream
        stream.pieces = {}

        def write_with_key(key: str, value: str, _pieces: dict[str, str] = stream.pieces) -> None:
            _pieces.setdefault(key, value)

        stream.write_with_key = write_with_key


def _accept_assertions() -> None:
    # From Python 3.14 on, a separate instruction loads AssertionError. Numba-CUDA takes the class for an instance, and
    # refuses every assert, also in its own implementations. Numba itself does not.
    trace = getattr(byteflow.TraceRunner, "op_LOAD_COMMON_CONSTANT", None)
    interpret = getattr(interpreter.Interpreter, "op_LOAD_COMMON_CONSTANT", None)
    if trace is None or interpret is None:  # an older Python
        return

    def trace_assertion(self: Any, state: Any, inst: Any) -> None:
        if dis._common_constants[inst.arg] is not AssertionError:  # type: ignore[attr-defined, unused-ignore]
            trace(self, state, inst)
            return
        result = state.make_temp("assertion_error")
        state.append(inst, res=result, idx=inst.arg)
        state.push(result)

    def interpret_assertion(self: Any, inst: Any, res: Any, idx: int) -> None:
        if dis._common_constants[idx] is not AssertionError:  # type: ignore[attr-defined, unused-ignore]
            interpret(self, inst, res, idx)
            return
        self.store(value=ir.Global("AssertionError", AssertionError, loc=self.loc), name=res)

    byteflow.TraceRunner.op_LOAD_COMMON_CONSTANT = trace_assertion
    interpreter.Interpreter.op_LOAD_COMMON_CONSTANT = interpret_assertion


@contextmanager
def verifying_for(arch: str) -> Iterator[None]:
    """Let libNVVM verify code for `arch` in the context, and compile it for its own target."""
    original = nvvm.CompilationUnit.verify

    def verify(self: Any) -> None:
        options = self._options_str
        self._options_str = [f"-arch={arch}" if option.startswith("-arch=") else option for option in options]
        try:
            original(self)
        finally:
            self._options_str = options

    nvvm.CompilationUnit.verify = verify
    try:
        yield
    finally:
        nvvm.CompilationUnit.verify = original


_SHIM_MODULES = (cuda_fp16, cuda_bf16, cuda_fp8)


def find_shim(item: object) -> tuple[str, str, dict[str, str]] | None:
    """Return name, heading and pieces of the shim source `item`; None for other link items."""
    for module in _SHIM_MODULES:
        if item is module.shim_obj:
            stream = module.shim_stream
            return f"{module.__name__.rpartition('.')[2]}.cu", stream.getvalue(), dict(stream.pieces)
    return None


def normalize_debug_info(text: str, root: str) -> str:
    """Return LLVM IR whose debug information has paths relative to `root` and links with NVRTC's.

    Two modules link only if their flags for the version of the debug information have the same behaviour. NVRTC's is 1
    (an error if versions differ), Numba's is 2 (a warning).
    """
    prefix = re.escape(_escape_string(root.rstrip("/")))
    text = re.sub(rf'(!DIFile\(.*?directory: )"{prefix}/?', r'\1"', text)
    return re.sub(r'!\{\s*i32 2, !"Debug Info Version"', '!{ i32 1, !"Debug Info Version"', text)


def _refuse_device_arrays() -> None:
    def lower_device_array(context: Any, builder: Any, ty: Any, pyval: Any) -> None:
        raise LoweringError(patches.DEVICE_ARRAY)

    arrayobj._lower_constant_device_array = lower_device_array
