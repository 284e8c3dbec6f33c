"""Patch Numba-CUDA-MLIR to compile ahead of time: for a target instead of a device, with stable names, to IR.

Numba-CUDA-MLIR compiles for the GPU of the machine that it runs on, to a linked cubin for each function. Each patch has
its reason. Patches that both of Numba's compilers need are in `frontends/numba`. The worker process of the build
applies all patches once. `aotcuda/registry.py` lists the tested releases.
"""

from __future__ import annotations

import hashlib
import sys
import types as python_types
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numba_cuda_mlir
from numba_cuda_mlir import (
    cuda,
    decorators,
    descriptor,
    mlir_compiler,
    mlir_lowering,
    mlir_optimization,
    tools,
)
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import memref
from numba_cuda_mlir.lowering import cuda as cuda_lowering
from numba_cuda_mlir.lowering_utilities import context
from numba_cuda_mlir.numba_cuda import cuda_paths
from numba_cuda_mlir.numba_cuda.core import config, sigutils
from numba_cuda_mlir.numba_cuda.cudadrv import driver

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.numba import (
    gpu,
    patches,
    private_parts,
    resolve,
    target_dependence,
)
from aotcuda.builder.frontends.numba.user_lines import RaisesError
from aotcuda.builder.frontends.numba_cuda_mlir import corrections, known_faults
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.front_end import ErrorCode

_IMPORT_CAPABILITY = (7, 5)
"""The compute capability while modules are imported; no code is generated then."""

MLIRDispatcher = descriptor.MLIRDispatcher


@dataclass(slots=True)
class _Current:
    """The current unit; one process compiles one unit."""

    target: Target | None = None
    code: python_types.CodeType | None = None
    c_abi: bool = False
    tag: int = 0
    debug: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    unreported: list[str] = field(default_factory=list)
    raised: list[ErrorCode] = field(default_factory=list)


_current = _Current()


@contextmanager
def compiling(
    tag: str, goal: Target, options: Options, function: python_types.FunctionType, *, c_abi: bool
) -> Iterator[list[str]]:
    """Compile one unit for `goal`, with `tag` in every name that must be unique in a link.

    Yield a list that gets each place where a helper raises an exception, which the C ABI cannot report.
    """
    _current.target = goal
    _current.code = function.__code__
    _current.c_abi = c_abi
    _current.tag = int.from_bytes(hashlib.sha256(tag.encode()).digest()[:6], "big") << 16
    _current.options = {"debug": options.debug, "lineinfo": options.lineinfo, "opt": not options.debug}
    _current.debug = options.debug
    _current.unreported = []
    _current.raised = []
    tools._cached_cc = goal.capability
    # Static shared arrays are numbered in each process, and two kernels of one image must not have equal names.
    cuda_lowering.shmem_id = _current.tag
    mlir_lowering.constant_array_id = _current.tag
    _numbers.clear()
    try:
        yield _current.unreported
    finally:
        _current.target = None


PRIVATE_PARTS = {
    "numba_cuda_mlir.tools:_cached_cc": "NoneType",
    "numba_cuda_mlir.lowering.cuda:shmem_id": "int",
    "numba_cuda_mlir.mlir_lowering:constant_array_id": "int",
    "numba_cuda_mlir.tools:resolve_gpu_target": "(targetoptions=None)",
    "numba_cuda_mlir.mlir_lowering:resolve_gpu_target": "(targetoptions=None)",
    "numba_cuda_mlir.tools:get_gpu_compute_capability": "(as_type=<class 'str'>)",
    "numba_cuda_mlir.tools:is_using_llvm70": "()",
    "numba_cuda_mlir.mlir_compiler:apply_ast_transforms": "(func, targetoptions=None, argtypes=None)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.__init__": "(self, context, fndesc, func_ir, metadata)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower._create_resolved_linker": "(self)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower._record_ltoirs_from_linker": "(self, linker)",
    "numba_cuda_mlir.mlir_optimization:_call_llvm70_capi": "(module, target_options, gen_lto=False, gen_llvmir=False)",
    "numba_cuda_mlir.mlir_optimization:_compile_to_ltoir": "(llvm_ir, libdevice, nvvm_opts)",
    "numba_cuda_mlir.mlir_optimization:_compile_to_ptx": "(llvm_ir, cc, libdevice, nvvm_opts=None)",
    "numba_cuda_mlir.descriptor:MLIRDispatcher._compile_public": "(self, sig, abi_info=None, output=None)",
    "numba_cuda_mlir.descriptor:MLIRDispatcher.compile_device": "(self, sig)",
    "numba_cuda_mlir.descriptor:MLIRDispatcher.get_call_template": "(self, args, kws)",
    "numba_cuda_mlir.descriptor:MLIRDispatcher.disable_compile": "(self, val=True)",
    "numba_cuda_mlir.descriptor:MLIRTypingContext.resolve_value_type": "(self, val)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.store_var": "(self, var, value)",
    "numba_cuda_mlir.mlir_lowering:get_mlir_module_str": "(metadata)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.build_user_defined_function_call": "(self, target, fn, args, kws=None)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.lower_static_raise": "(self, static_raise_inst)",
    "numba_cuda_mlir.mlir_lowering:KERNEL_ERROR_CODES": "dict",
    "numba_cuda_mlir.mlir_compiler:handle_lowering_error": "(lower, func_ir)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.verify_mlir_module": "(self)",
    "numba_cuda_mlir.mlir_lowering:MLIRLower.lower_captured_array_to_memref": "(self, target, pyval)",
    "numba_cuda_mlir.decorators:sigutils": "module",
    "numba_cuda_mlir.numba_cuda.core.sigutils:normalize_signature": "(sig)",
    "numba_cuda_mlir.descriptor:MLIRDispatcher._compile": "(self, args)",
    "numba_cuda_mlir.descriptor:_ArgMarshaller.__call__": "(self, *args)",
    "numba_cuda_mlir.descriptor:_ForAll.__call__": "(self, *args)",
    "numba_cuda_mlir.mlir_compiler:compile_mlir": "(pyfunc, return_type, args, targetoptions)",
    **corrections.PRIVATE_PARTS,
    **known_faults.PRIVATE_PARTS,
    **{f"numba_cuda_mlir.numba_cuda.{name}": parameters for name, parameters in gpu.PRIVATE_PARTS.items()},
}
"""The functions that are replaced, or called by keywords, with their parameters in the tested releases.

See `aotcuda.builder.frontends.numba.private_parts`.
"""


def install() -> None:
    """Apply the patches. Called once, before any user module is imported.

    Raises:
        ToolchainError: The installed release differs from the tested ones.
    """
    private_parts.check("numba-cuda-mlir", PRIVATE_PARTS)
    patches.find_toolkit(cuda_paths)
    descriptor.mlir_target.ensure_initialized()  # otherwise only dispatchers do so
    patches.pin_settings(config)
    _use_one_thread()
    _supply_target()
    _watch_the_target()
    _number_helpers()
    _link_later()
    _stop_at_llvm_ir()
    _pass_return_types()
    _defer_eager_signatures()
    _accept_plain_helpers()
    _copy_arrays_of_helpers()
    _catch_raises()
    _raise_errors()
    _refuse_device_arrays()
    corrections.install(_fails)


def _use_one_thread() -> None:
    # Forked children compile the units. A fork has no threads, and MLIR would wait for them forever.
    context.get_context().enable_multithreading(False)


def _supply_target() -> None:
    # The compiler queries the driver for the current GPU. Each helper queries it again, without the suffix of sm_90a.
    tools._cached_cc = _IMPORT_CAPABILITY

    def resolve_gpu_target(targetoptions: dict[str, Any] | None = None) -> dict[str, object]:
        goal = _current.target
        chip = f"sm_{goal.number}" if goal is not None else tools.format_arch(_IMPORT_CAPABILITY)
        capability = goal.capability if goal is not None else _IMPORT_CAPABILITY
        specific = (*capability, goal.suffix) if goal is not None and goal.suffix else capability
        plain = tools.format_arch(capability)
        return {
            "chip": chip,
            "cc": capability,
            "arch_specific_cc": specific,
            "host_cc": capability,
            "host_arch": plain,
            "linker_cc": specific,
            "linker_arch": chip,
        }

    tools.resolve_gpu_target = resolve_gpu_target
    mlir_lowering.resolve_gpu_target = resolve_gpu_target


class _Options(dict[str, Any]):
    """The options of a compilation, which record reads of the target by code outside the compiler."""

    def __getitem__(self, name: str) -> Any:
        return self._record_read(name, super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        return self._record_read(name, super().get(name, default))

    def pop(self, name: str, *default: Any) -> Any:
        return self._record_read(name, super().pop(name, *default))

    def __iter__(self) -> Iterator[str]:  # with it, copies call `keys` and `__getitem__`
        return super().__iter__()

    def items(self) -> Any:
        self._record_read("chip", None)
        return super().items()

    def values(self) -> Any:
        self._record_read("chip", None)
        return super().values()

    def copy(self) -> _Options:
        return _Options(super().items())

    def _record_read(self, name: str, value: Any) -> Any:
        watch = target_dependence.current_watch()
        # The code that reads is two frames up.
        if watch is not None and name in ("chip", "cc") and not _belongs_to_compiler(sys._getframe(2)):
            watch.name_is_read = True
        return value


def _belongs_to_compiler(frame: python_types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(tuple(f"{folder}/" for folder in numba_cuda_mlir.__path__))


def _watch_the_target() -> None:
    # The compiler writes the target into its MLIR for the steps after lowering. Its own reads before lowering are for
    # separate code of helpers, which the build drops. Toolkits may read the target by these functions, from the
    # options, and by `consteval(current_target_options())`.
    def get_gpu_compute_capability(as_type: type = str) -> Any:
        watch = None if _belongs_to_compiler(sys._getframe(1)) else target_dependence.current_watch()
        capability = watch.run(target_dependence.whole_capability) if watch is not None else tools._cached_cc
        return capability if as_type is tuple else f"sm_{capability[0]}{capability[1]}"

    def is_using_llvm70() -> bool:
        watch = target_dependence.current_watch()
        return bool(watch.run(_is_old) if watch is not None else _is_old(tools._cached_cc))

    transform = mlir_compiler.apply_ast_transforms
    initialise = mlir_lowering.MLIRLower.__init__

    def apply_ast_transforms(func: Any, targetoptions: Any = None, argtypes: Any = None) -> Any:
        return transform(func, _Options(dict.items(targetoptions or {})), argtypes)

    def initialise_watched(self: Any, *args: Any, **more: Any) -> None:
        initialise(self, *args, **more)
        self.targetoptions = _Options(dict.items(self.targetoptions))

    tools.get_gpu_compute_capability = get_gpu_compute_capability
    tools.is_using_llvm70 = is_using_llvm70
    mlir_compiler.apply_ast_transforms = apply_ast_transforms
    mlir_lowering.MLIRLower.__init__ = initialise_watched


def _is_old(capability: tuple[int, int]) -> bool:
    """Return True if libNVVM uses the older of its dialects for a target."""
    return capability < (10, 0)


def retarget(compiled: Any, goal: Target) -> Any:
    """Return a copy of a lowered function for `goal`; the steps after lowering read the target from the copy."""
    chip = f"sm_{goal.number}"
    before = compiled.metadata["targetoptions"]["chip"]
    with context.get_context():
        module = compiled.metadata["mlir_module"].operation.clone()
        for op in module.regions[0].blocks[0]:
            if "targets" in op.attributes:
                text = str(op.attributes["targets"])
                op.attributes["targets"] = ir.Attribute.parse(text.replace(f'chip = "{before}"', f'chip = "{chip}"'))
    metadata = {**compiled.metadata, "mlir_module": module.opview}
    metadata["targetoptions"] = {**compiled.metadata["targetoptions"], "chip": chip}
    metadata.pop("mlir_module_str", None)
    same = {"signature": compiled.signature, "fndesc": compiled.fndesc, "library": compiled.library}
    return python_types.SimpleNamespace(metadata=metadata, **same)


_numbers: dict[int, tuple[object, int]] = {}


def _number_helpers() -> None:
    # Symbols of helpers end in the address of a Python object. A number replaces it that is equal in every build and
    # different in every unit, since the linker keeps one of two equal symbols.
    def number(value: object) -> int:
        if _current.target is None:
            return id(value)
        # The reference to the object prevents that another object gets its address while the unit is compiled.
        return _numbers.setdefault(id(value), (value, _current.tag + len(_numbers)))[1]

    mlir_lowering.id = number  # hides the builtin in that module


class _LinkLater:
    """A stand-in for the compiler's linker, which records its inputs: the build links all units together, once."""

    def __init__(self, items: tuple[Any, ...], *, cooperative: bool) -> None:
        self.items = items
        self.cooperative = cooperative

    def recreate_with_lto(self, **_: object) -> _LinkLater:
        return self

    def add_ptx(self, *_: object) -> None:
        pass

    def complete(self) -> python_types.SimpleNamespace:
        return python_types.SimpleNamespace(code=b"")


def _link_later() -> None:
    def create_resolved_linker(self: Any) -> _LinkLater:
        self.metadata["link_plan"] = None
        return _LinkLater(
            tuple(self._linked_external_link_items), cooperative=bool(self.metadata.get("use_cooperative"))
        )

    def record_from_helper(self: Any, linker: _LinkLater) -> None:
        # The compiler uses its linker's result for a helper's items, which lacks all items that are not LTOIR.
        for item in linker.items:
            self.link_external_item(item)
        if linker.cooperative:
            self.metadata["use_cooperative"] = True

    mlir_lowering.MLIRLower._create_resolved_linker = create_resolved_linker
    mlir_lowering.MLIRLower._record_ltoirs_from_linker = record_from_helper


def _stop_at_llvm_ir() -> None:
    # The front end itself generates code from LLVM IR. For GPUs before Blackwell the compiler cannot pass fast math to
    # libNVVM, and several functions can be merged into one LTOIR only as LLVM IR.
    original = mlir_optimization._call_llvm70_capi

    def translate(module: Any, target_options: Any, gen_lto: bool = False, gen_llvmir: bool = False) -> bytes:
        text: bytes = original(module, target_options, gen_lto=True, gen_llvmir=True)
        return text

    mlir_optimization._call_llvm70_capi = translate
    mlir_optimization._compile_to_ltoir = lambda llvm_ir, *_: llvm_ir
    mlir_optimization._compile_to_ptx = lambda llvm_ir, *_: llvm_ir


class _Arguments(tuple[Any, ...]):  # noqa: SLOT001 (subclasses of tuple cannot have named slots)
    """The argument types of a signature of `@cuda.jit`, with its result (None if absent)."""

    result: Any = None


def _pass_return_types() -> None:
    # `@cuda.jit("float32(float32)")` passes the argument types, and drops the return type.
    def normalize_signature(sig: Any) -> tuple[_Arguments, Any]:
        args, result = sigutils.normalize_signature(sig)
        arguments = _Arguments(args)
        arguments.result = result
        return arguments, result

    decorators.sigutils = python_types.SimpleNamespace(**{**vars(sigutils), "normalize_signature": normalize_signature})


def _defer_eager_signatures() -> None:
    # `@cuda.jit("float32(float32)")`, and annotations that represent a signature, compile when their module is
    # imported, before there is a target. The build compiles kernels later, as the configuration says. Device functions
    # are compiled for their signatures when a unit first calls them.
    compile_public = MLIRDispatcher._compile_public
    compile_device = MLIRDispatcher.compile_device
    call_template = MLIRDispatcher.get_call_template

    def deferred_public(self: Any, sig: Any, abi_info: Any = None, output: Any = None) -> Any:
        if _current.target is None:
            if output is not None:  # cuda.compile, which returns the code
                raise RuntimeError(gpu_queries.MISSING)
            resolve.declare(self, tuple(sig), getattr(sig, "result", None))
            return None
        return compile_public(self, sig, abi_info=abi_info, output=output)

    def deferred_device(self: Any, sig: Any) -> Any:
        if _current.target is None:
            resolve.declare(self, tuple(sig), getattr(sig, "result", None))
            self.__dict__.setdefault("_aotcuda_eager", []).append(sig)
            return None
        return compile_device(self, sig)

    def get_call_template(self: Any, args: Any, kws: Any) -> Any:
        for signature in self.__dict__.pop("_aotcuda_eager", ()):
            self._compile_as_device_callee(signature)
        return call_template(self, args, kws)

    MLIRDispatcher._compile_public = deferred_public
    MLIRDispatcher.compile_device = deferred_device
    MLIRDispatcher.get_call_template = get_call_template
    patches.allow_disable_compile(MLIRDispatcher)
    gpu.answer(driver)
    gpu.refuse_launches(
        (MLIRDispatcher, "_compile", ""),
        (descriptor._ArgMarshaller, "__call__", "_dispatcher"),
        (descriptor._ForAll, "__call__", "dispatcher"),
    )


def _accept_plain_helpers() -> None:
    def options() -> dict[str, Any] | None:
        return None if _current.target is None else {**_current.options, "annotations_as_signatures": False}

    store_var = mlir_lowering.MLIRLower.store_var
    wrapped = patches.accept_plain_helpers(descriptor.MLIRTypingContext, cuda.jit, options)
    resolve = descriptor.MLIRTypingContext.resolve_value_type

    def resolve_value_type(self: Any, val: Any) -> Any:
        # A function of `@njit` has one of Numba's types, which this compiler does not know.
        return resolve(self, patches.plain_helper(val) or val)

    def store_wrapped(self: Any, target: Any, value: Any, *rest: Any, **more: Any) -> Any:
        # Lowering reads the value, and must get the function whose type typing got.
        if (plain := patches.plain_helper(value)) in wrapped:
            value = wrapped[plain]
        return store_var(self, target, value, *rest, **more)

    descriptor.MLIRTypingContext.resolve_value_type = resolve_value_type
    mlir_lowering.MLIRLower.store_var = store_wrapped


def _copy_arrays_of_helpers() -> None:
    # If a helper is called and not inlined, the compiler copies its functions, but not the shared and constant arrays
    # that they use.
    call = mlir_lowering.MLIRLower.build_user_defined_function_call
    text_of = mlir_lowering.get_mlir_module_str
    last_text = [""]

    def get_mlir_module_str(metadata: Any) -> str:
        last_text[0] = text_of(metadata)
        return last_text[0]

    def build_user_defined_function_call(self: Any, *args: Any, **more: Any) -> Any:
        result = call(self, *args, **more)
        block = self.mlir_gpu_module.regions[0].blocks[0]
        present = {op.sym_name.value for op in block if isinstance(op, memref.GlobalOp)}
        module = ir.Module.parse(last_text[0])
        for op in next(iter(module.body)).regions[0].blocks[0]:
            if isinstance(op, memref.GlobalOp) and op.sym_name.value not in present:
                with ir.InsertionPoint(block):
                    block.append(op.clone())
        return result

    mlir_lowering.get_mlir_module_str = get_mlir_module_str
    mlir_lowering.MLIRLower.build_user_defined_function_call = build_user_defined_function_call


def _catch_raises() -> None:
    # A raise statement stores a code that only debug launches read, and returns an undefined value, which callers of a
    # function with the C ABI would use. In kernels, the exception of a helper ends the thread, as with Numba-CUDA.
    original = mlir_lowering.MLIRLower.lower_static_raise

    def lower_static_raise(self: Any, inst: Any) -> None:
        if _current.c_abi:
            reason = f"raises {_class_name(inst)} ({inst.loc.filename}:{inst.loc.line})"
            if _is_in_unit(inst.loc):
                message = f"raise, and this one {reason}; return a value instead"
                raise RaisesError(message)
            _current.unreported.append(reason)
        # The compiler has codes for a few classes of exceptions; debug builds have one for each raise statement.
        codes = mlir_lowering.KERNEL_ERROR_CODES
        if _current.debug:
            code = _code_of_raise(self, inst)
            mlir_lowering.KERNEL_ERROR_CODES = python_types.SimpleNamespace(get=lambda *_: code)
        if not _current.c_abi and not _is_in_unit(inst.loc):
            self.set_error_code = lambda code: corrections.report_and_exit(type(self), self, code)
        try:
            original(self, inst)
        finally:
            mlir_lowering.KERNEL_ERROR_CODES = codes
            vars(self).pop("set_error_code", None)

    mlir_lowering.MLIRLower.lower_static_raise = lower_static_raise


_FIRST_CODE = 1000  # above the compiler's own


def _code_of_raise(lower: Any, inst: Any) -> int:
    arguments = ", ".join(str(getattr(item, "value", item)) for item in inst.exc_args or ())
    return _new_code(_class_name(inst), arguments, lower, inst.loc)


def _new_code(kind: str, arguments: str, lower: Any, loc: Any) -> int:
    code = _FIRST_CODE + len(_current.raised)
    function = lower.func_ir.func_id.func_qualname
    _current.raised.append((code, kind, arguments, function, loc.filename, loc.line))
    return code


def _fails(kind: str, arguments: str, where: Any, lower: Any) -> int | None:
    """Return the error code of a failure, 0 outside of debug builds; None in functions with the C ABI."""
    if _current.c_abi:
        return None
    return _new_code(kind, arguments, lower, where) if _current.debug else 0


def _class_name(inst: Any) -> str:
    kind = inst.exc_class
    if kind is None:
        return "RuntimeError"
    return str(kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")


def error_codes() -> list[ErrorCode]:
    """Return the exceptions of the current unit with their error codes, the compiler's own checks first."""
    checks = [
        (code, kind.__name__, "", "the kernel", "", 0)
        for kind, code in mlir_lowering.KERNEL_ERROR_CODES.items()
        if code
    ]
    return [*sorted(checks), *_current.raised]


def _is_in_unit(loc: Any) -> bool:
    """Return True if `loc` is in the function of the unit; helpers are inlined before their code is lowered."""
    code = _current.code
    if code is None or loc.filename != code.co_filename:
        return False
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return min(lines) <= int(loc.line) <= max(lines)


def _raise_errors() -> None:
    # The compiler reports code that it cannot lower as its own fault, and writes the reason into a log file.
    def handle_lowering_error(lower: Any, func_ir: Any) -> None:
        raise  # noqa: PLE0704 (it is called where an exception is being handled)

    def verify_mlir_module(self: Any) -> None:
        # The compiler's own method prints the whole module.
        try:
            self.mlir_module.operation.verify()
        except ir.MLIRError as error:
            reasons = [item.message for item in error.error_diagnostics] or ["no reason given"]
            name, loc = self.func_ir.func_id.func_qualname, self.func_ir.loc
            message = f"numba-cuda-mlir makes invalid MLIR of {name} ({loc.filename}:{loc.line}): {reasons[0]}"
            raise CompileError(message) from error

    mlir_compiler.handle_lowering_error = handle_lowering_error
    mlir_lowering.MLIRLower.verify_mlir_module = verify_mlir_module


def _refuse_device_arrays() -> None:
    def lower_captured_array_to_memref(self: Any, target: Any, pyval: Any) -> None:
        message = f"{patches.DEVICE_ARRAY} ({self.func_ir.loc.filename}:{self.func_ir.loc.line})"
        raise CompileError(message)

    mlir_lowering.MLIRLower.lower_captured_array_to_memref = lower_captured_array_to_memref
