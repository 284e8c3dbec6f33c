"""Change Numba-CUDA to compile ahead of time: a target instead of a device, stable names, a stable order.

Numba-CUDA is written for the machine that it runs on. The changes made to it are in this file and, where both compilers
need them, in `frontends/numba`, each with its reason. They are made once, in the worker process that only the build
uses. `aotcuda/registry.py` has the releases that they were tested with.
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
from numba.cuda import api, cuda_paths, cudaimpl, descriptor, dispatcher, target, types, vectorizers
from numba.cuda import compiler as cuda_compiler
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
from numba.cuda.core.targetconfig import TargetConfig
from numba.cuda.cudadrv import devices, driver, nvvm
from numba.cuda.cudadrv.error import CudaSupportError
from numba.cuda.flags import CUDAFlags
from numba.cuda.memory_management import nrt
from numba.cuda.typing import typeof

from aotcuda.builder.frontends.numba import (
    gpu,
    other_compilers,
    patches,
    private_parts,
    resolve,
    target_dependence,
)
from aotcuda.builder.frontends.numba.user_lines import RaisesError
from aotcuda.builder.frontends.numba_cuda import lazy_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options


@dataclass(slots=True)
class _Current:
    """The unit that is compiled now.

    Attributes:
        tag: What names have in them that must be unique in a link.
        swallowed: What they raise though the C ABI cannot tell of it.
        helpers: How many functions became code besides the units themselves, in this process.
    """

    capability: tuple[int, int] | None = None
    tag: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    swallowed: list[str] = field(default_factory=list)
    helpers: int = 0


_current = _Current()


@dataclass(slots=True)
class _Warm:
    """The compiler when it was warm, before anything of the user's was imported.

    Attributes:
        is_extended: Sources have registered something since, which may keep what it likes; None before the first unit.
    """

    registered: tuple[int, ...] = ()
    shared: int = 0
    traces: tuple[int, ...] = ()
    is_extended: bool | None = None


_warm = _Warm()


class _OrderedSet(dict[Any, None]):
    """A set that keeps the order of insertion, for code that iterates over sets of objects ordered by address."""

    add = dict.setdefault

    def update(self, *others: Any, **_: Any) -> None:
        for other in others:
            for item in other:
                self.setdefault(item)


@contextmanager
def compiling(tag: str, goal: Target, options: Options) -> Iterator[list[str]]:
    """Compile one unit: for `goal`, with `tag` in every name that has to be unique among the units of one link.

    Yields the list to which is added, while compiling, each place where a helper raises what the C ABI cannot report.
    """
    digest = hashlib.sha256(tag.encode()).digest()
    # Mangled names end in this number. Two units come from two fresh processes, where the counter would start anew and
    # give two different helpers one name, and the linker would then keep one of them for both.
    first = int.from_bytes(digest[:6], "big") << 16
    bytecode.FunctionIdentity._unique_ids = itertools.count(first)
    cudaimpl._unique_smem_id = _warm.shared
    if _warm.is_extended is None:
        lazy_imports.put_back(typeof.typeof_impl)
        _warm.is_extended = _registrations() != _warm.registered
    _current.capability = goal.capability
    _current.tag = digest[:6].hex()
    _current.options = {
        "debug": options.debug,
        "lineinfo": options.lineinfo,
        "fastmath": options.fastmath,
        "opt": options.opt_level > 0 and not options.debug,
    }
    _current.swallowed = []
    try:
        yield _current.swallowed
    finally:
        _current.capability = None
        _current.helpers += next(bytecode.FunctionIdentity._unique_ids) - first - 1


def note_warm() -> None:
    """Record the compiler's state after its preparation."""
    _warm.registered, _warm.shared, _warm.traces = _registrations(), cudaimpl._unique_smem_id, _traces()


def is_fresh() -> bool:
    """Return True if code that is compiled now becomes what it would in a process in which nothing was compiled before.

    What Numba keeps of one function and puts into the code of the next are the helpers that it has compiled for it, by
    names of the first one's, and what it numbers or names for all. All else that it keeps are answers that it would
    give again. Extensions of Numba may store anything.
    """
    return not _warm.is_extended and not _current.helpers and _traces() == _warm.traces


def _traces() -> tuple[int, ...]:
    """Return counters that grow when something is named or kept that code compiled next would show."""
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
    **{f"numba.cuda.{name}": parameters for name, parameters in gpu.PRIVATE_PARTS.items()},
    **(_OF_PYTHON_3_14 if sys.version_info >= (3, 14) else {}),
}
"""What is replaced, or called by keywords, with the parameters that it had.

See `aotcuda.builder.frontends.numba.private_parts`.
"""


def install() -> None:
    """Make the changes. Called once, before any user module is imported.

    Raises:
        ToolchainError: The compiler is another one than these were written for.
    """
    private_parts.check("numba-cuda", PRIVATE_PARTS)
    patches.find_toolkit(cuda_paths)
    patches.pin_settings(config)
    _supply_target()
    _watch_the_target()
    _compare_flags_quickly()
    _refresh_when_there_is_something_new()
    _find_live_variables_once()
    _order_links()
    _name_shared_memory()
    _defer_eager_signatures()
    _defer_vectorize()
    patches.take_plain_helpers(target.CUDATypingContext, cuda.jit, _helper_options)
    _catch_raises()
    _return_nothing_to_c()
    _keep_shims_apart()
    _know_assertions()


class _TargetDevice:
    """The replacement for Numba's query of the current device."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        if _current.capability is None:
            raise RuntimeError(gpu.MISSING)
        return _current.capability


def _supply_target() -> None:
    for module in (dispatcher, cuda_compiler, nrt):
        module.get_current_device = _TargetDevice
    gpu.answer(driver, devices, CudaSupportError, (cuda, api))
    gpu.refuse_launches(
        (dispatcher.CUDADispatcher, "call", ""),
        (dispatcher._LaunchConfiguration, "__call__", "dispatcher"),  # which takes no arguments by name
        (dispatcher.ForAll, "__call__", "dispatcher"),
    )


def _watch_the_target() -> None:
    # Numba stores the target in one of its flags while it types and lowers. Its own code compares it with
    # constants; what a toolkit does with it cannot be followed.
    kept: Any = CUDAFlags.compute_capability
    folders = tuple(f"{folder}/" for package in (numba, numba.cuda) for folder in package.__path__)

    def read(self: Any) -> Any:
        value = kept.fget(self)
        watch = target_dependence.current()
        if watch is None or value is None:
            return value
        if sys._getframe(1).f_code.co_filename.startswith(folders):
            return target_dependence.Capability(value)
        return watch.ask(target_dependence.itself) if value == watch.capability else value

    def write(self: Any, value: Any) -> None:
        kept.fset(self, value.plain if isinstance(value, target_dependence.Capability) else value)

    CUDAFlags.compute_capability = property(read, write, kept.fdel, kept.__doc__)

    # Names of helpers hold all flags that are set. This one is the same for all that is linked together.
    mangled = CUDAFlags.get_mangle_string

    def get_mangle_string(self: Any) -> str:
        plain = self.copy()
        plain.discard("compute_capability")
        return str(mangled(plain))

    CUDAFlags.get_mangle_string = get_mangle_string


def _compare_flags_quickly() -> None:
    # Each look-up of an overload compares its flags with those of every other one for the same types: their hash is
    # that of the names of all flags. To read each flag of both took a tenth of the time of typing and lowering.
    original = TargetConfig.__eq__

    def compare(self: Any, other: Any) -> Any:
        if type(self) is type(other):
            if self._values == other._values:
                return True
            if self._values.keys() == other._values.keys():
                return False
        return original(self, other)  # one may have set what is the other's default

    def hash_of_type(self: Any) -> int:
        return hash(type(self).__name__)

    TargetConfig.__eq__ = compare
    TargetConfig.__hash__ = hash_of_type


def _refresh_when_there_is_something_new() -> None:
    # Before each implementation that it looks up Numba looks through all that is registered for what may be new: a
    # twentieth of the time of typing and lowering. While it warms up, each of a hundred templates registers one thing,
    # and all thirty registries were searched. They only grow.
    for context in (target.CUDATargetContext, target.CUDATypingContext):
        original, install = context.refresh, context.install_registry

        def install_registry(self: Any, registry: Any, *given: Any, _original: Any = install, **named: Any) -> None:
            installed = self.__dict__.setdefault("_aotcuda_installed", WeakKeyDictionary())
            loader = self._registries.get(registry)
            found = None if loader is None else _size(registry, loader)
            if found is None or found != installed.get(registry):
                _original(self, registry, *given, **named)
                installed[registry] = found

        context.install_registry = install_registry

        def refresh(self: Any, *, _original: Any = original) -> None:
            found = _registered(self)  # before: templates that are made meanwhile register more
            if found == self.__dict__.get("_aotcuda_registered"):
                if typing_context := getattr(self, "typing_context", None):
                    typing_context.refresh()
                return
            _original(self)
            self._aotcuda_registered = found

        context.refresh = refresh


def _find_live_variables_once() -> None:
    # Numba computes the variables that are live in each block after each of nine passes, and reads them only where it
    # inserts deletions or compiles a generator: an eighth of the time of typing and lowering.
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
    """Hide `scipy.linalg` from Numba in the block.

    Numba imports it for its first kernel, because functions for the CPU call SciPy's BLAS. A GPU has none. With SciPy,
    kernels that otherwise use Numba's own loops do not link, and the import takes a quarter as long as Numba's.
    """
    name = "scipy.linalg"
    if name in sys.modules:  # something has imported it at Python's start
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # makes the import fail
    try:
        yield
    finally:
        del sys.modules[name]


def _order_links() -> None:
    # Sets of objects are ordered by address; the order of linked modules decides the order of symbols in the result.
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
    # Numba numbers its shared arrays in each process and makes them global symbols (it cannot make them internal: an
    # NVVM bug). Two kernels of one image would share one array, with no word from the linker when the input is PTX.
    def unique(name: str) -> str:
        cudaimpl._unique_smem_id += 1
        return f"{name}_{_current.tag}_{cudaimpl._unique_smem_id}"

    cudaimpl._get_unique_smem_id = unique


def _defer_eager_signatures() -> None:
    # `@cuda.jit("float32(float32)")` compiles when its module is imported: before there is a target, and for kernels
    # with a driver. Kernels need nothing (the build compiles what the configuration names); device functions are
    # compiled for their signatures when they are first called from something that is being compiled.
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
    patches.disable_compile_unasked(dispatcher.CUDADispatcher)
    dispatcher.CUDADispatcher.compile_device = compile_device
    dispatcher.CUDADispatcher.get_call_template = get_call_template


def _defer_vectorize() -> None:
    # `@vectorize(target="cuda")` compiles, for launches of its own, when its module is imported.
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
    # The C ABI has no status: Numba ends such a function in a block without an end, which NVVM refuses as invalid IR.
    def return_user_exc(
        self: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        if exc is TypeError and exc_args and str(exc_args[0]).endswith(", got None"):
            return  # a helper's Optional becomes a plain value, 0 for None, as in Numba's call conventions
        if exc is ValueError and exc_args and str(exc_args[0]).startswith("range() arg 3"):
            # Every loop has this check. Where the step is a constant the optimiser removes it; where it is 0 after all,
            # the kernel must end, since the number of iterations has been divided by it.
            trap = builder.module.declare_intrinsic("llvm.trap", (), llvm.FunctionType(llvm.VoidType(), ()))
            builder.call(trap, ())
            builder.unreachable()
            return
        message = f"raise, and this one {_raised(exc, loc)}; return a value instead"
        raise RaisesError(message)

    def return_optional_none(self: Any, builder: Any) -> None:
        message = "return None in some cases and a value in others; return a value in every case"
        raise RaisesError(message)

    callconv.CUDACABICallConv.return_user_exc = return_user_exc
    callconv.CUDACABICallConv.return_native_none = return_optional_none

    original = callconv.MinimalCallConv.return_user_exc

    def note_user_exc(
        self: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        _current.swallowed.append(_raised(exc, loc))
        original(self, builder, exc, exc_args=exc_args, loc=loc, func_name=func_name)

    callconv.MinimalCallConv.return_user_exc = note_user_exc


def _return_nothing_to_c() -> None:
    # Numba returns a null pointer for None. In C and C++ such a function is `void`, and one that returns 64 bits has
    # another prototype: those that are compiled here, and those that `declare_device` names.
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


def _raised(exc: Any, loc: Any) -> str:
    name = getattr(exc, "__name__", str(exc))
    return f"raises {name} ({loc.filename}:{loc.line})" if loc is not None else f"raises {name}"


def _keep_shims_apart() -> None:
    # float16, bfloat16 and float8 operations are CUDA C++ functions whose text Numba collects in one stream as they are
    # used. Two units of one link need many of the same ones, so the stream's pieces are kept by name, to be joined.
    for module in _SHIM_MODULES:
        stream = module.shim_stream
        stream.pieces = {}

        def write_with_key(key: str, value: str, _pieces: dict[str, str] = stream.pieces) -> None:
            _pieces.setdefault(key, value)

        stream.write_with_key = write_with_key


def _know_assertions() -> None:
    # From Python 3.14 on an instruction of its own loads the error of an assert. Numba-CUDA takes that class for one of
    # its instances, and refuses every assert, its own implementations' too; Numba, which it comes from, does not.
    trace = getattr(byteflow.TraceRunner, "op_LOAD_COMMON_CONSTANT", None)
    interpret = getattr(interpreter.Interpreter, "op_LOAD_COMMON_CONSTANT", None)
    if trace is None or interpret is None:  # an older Python
        return

    def traced(self: Any, state: Any, inst: Any) -> None:
        if dis._common_constants[inst.arg] is not AssertionError:  # type: ignore[attr-defined, unused-ignore]
            trace(self, state, inst)
            return
        result = state.make_temp("assertion_error")
        state.append(inst, res=result, idx=inst.arg)
        state.push(result)

    def interpreted(self: Any, inst: Any, res: Any, idx: int) -> None:
        if dis._common_constants[idx] is not AssertionError:  # type: ignore[attr-defined, unused-ignore]
            interpret(self, inst, res, idx)
            return
        self.store(value=ir.Global("AssertionError", AssertionError, loc=self.loc), name=res)

    byteflow.TraceRunner.op_LOAD_COMMON_CONSTANT = traced
    interpreter.Interpreter.op_LOAD_COMMON_CONSTANT = interpreted


@contextmanager
def verifying_for(arch: str) -> Iterator[None]:
    """Have libNVVM verify code for `arch` in the block, and compile it for its own target."""
    original = nvvm.CompilationUnit.verify

    def verify(self: Any) -> None:
        given = self._options_str
        self._options_str = [f"-arch={arch}" if option.startswith("-arch=") else option for option in given]
        try:
            original(self)
        finally:
            self._options_str = given

    nvvm.CompilationUnit.verify = verify
    try:
        yield
    finally:
        nvvm.CompilationUnit.verify = original


_SHIM_MODULES = (cuda_fp16, cuda_bf16, cuda_fp8)


def shim(item: object) -> tuple[str, str, dict[str, str]] | None:
    """Name, heading and pieces of the shim source `item`; None if it is something else to link."""
    for module in _SHIM_MODULES:
        if item is module.shim_obj:
            stream = module.shim_stream
            return f"{module.__name__.rpartition('.')[2]}.cu", stream.getvalue(), dict(stream.pieces)
    return None


def settle_debug_info(text: str, root: str) -> str:
    """Return LLVM IR with debug information for a wheel: paths relative to `root`, linkable with NVRTC's.

    Two modules link only if their flag for the debug information's version has the same behaviour; NVRTC's is 1 (an
    error when the versions differ), Numba's is 2 (a warning).
    """
    prefix = re.escape(_escape_string(root.rstrip("/")))
    text = re.sub(rf'(!DIFile\(.*?directory: )"{prefix}/?', r'\1"', text)
    return re.sub(r'!\{\s*i32 2, !"Debug Info Version"', '!{ i32 1, !"Debug Info Version"', text)
