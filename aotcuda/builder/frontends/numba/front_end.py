"""Compile one function for one signature, by the steps that both of Numba's compilers have.

Numba-CUDA-MLIR began as a copy of Numba-CUDA. This module has the steps that both compilers share. Subclasses of
`NumbaFrontEnd` have the other steps.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from aotcuda.builder.compile import telemetry
from aotcuda.builder.frontends import python_source
from aotcuda.builder.frontends.error_table import relative
from aotcuda.builder.frontends.numba import (
    c_abi,
    constant_arrays,
    gpu,
    jit_options,
    llvm_text,
    lowering_inputs,
    resolve,
    target_dependence,
    units,
)
from aotcuda.builder.frontends.numba.read_values import read_values
from aotcuda.builder.frontends.numba.user_lines import add_context, add_places
from aotcuda.builder.frontends.protocol import (
    CompiledFunction,
    CompiledKernel,
    Definition,
    Generated,
    Ir,
    Launch,
    ParameterBlock,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from aotcuda.arch import Target
    from aotcuda.builder.cache.compile_cache import CompileCache
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.calling_convention import CallingConvention
    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.jit_options import JitOptions
    from aotcuda.builder.frontends.numba.link_items import Needs
    from aotcuda.builder.frontends.numba.resolve import LoadedFunction
    from aotcuda.builder.frontends.protocol import Fault, GpuQuery, LinkInput, Session

MERGED = "functions"
"""The name of the merged code of a module's device functions, which wheels contain unchanged."""

_Code = list[tuple[list[str], bytes, bool, tuple[tuple[str, int], ...]]]
"""For each group of targets: the targets, the IR, whether it is self-contained, and its constant arrays."""

_LOWERED = tuple[bool, _Code]
"""The type of an entry of the build cache: whether a kernel is cooperative, and its code."""

ErrorCode = tuple[int, str, str, str, str, int]
"""An error code of a debug build with its exception; see `CompiledKernel.exceptions`."""


def small_kernel(cuda: Any, types: Any) -> FunctionType:
    """Return a kernel whose compilation fills the compiler's tables once, and not in each child."""

    def warm(a: Any, x: Any, y: Any) -> None:  # pragma: no cover (compiled for a GPU, never run here)
        i = cuda.grid(1)
        tile = cuda.shared.array(32, dtype=types.float32)
        if i < x.size:
            tile[cuda.threadIdx.x] = x[i]
            cuda.syncthreads()
            y[i] = a * tile[cuda.threadIdx.x] + y[i] / x.shape[0]

    return warm  # type: ignore[return-value]


class NumbaFrontEnd(ABC):
    """A front end for one of Numba's compilers; see `aotcuda.builder.frontends.protocol.FrontEnd`.

    Attributes:
        dispatchers: The classes of the objects that its `@cuda.jit` returns.
        packages: The compiler's Python packages.
    """

    convention: CallingConvention
    dispatchers: Any
    packages: tuple[str, ...]

    def __init__(self) -> None:
        self.root = ""
        self.cache: CompileCache | None = None
        self._signatures: dict[NumbaUnit, units.Signature] = {}

    @abstractmethod
    def start(self) -> dict[str, str]:
        """Patch the compiler, and return the versions of its components."""

    @abstractmethod
    def warm_up(self) -> None:
        """Compile a small kernel, so that the compiler fills its tables once and not in each child."""

    @abstractmethod
    def compiling(
        self, unit: NumbaUnit, target: Target, jit: JitOptions, python: FunctionType, *, c_abi: bool
    ) -> AbstractContextManager[list[str]]:
        """Return a context that compiles a unit, and yields the exceptions of helpers that the C ABI cannot report."""

    def is_extended(self) -> bool:
        """Return True if the sources may have changed how the compiler compiles other functions."""
        return True

    def known_faults(self) -> AbstractContextManager[list[Fault]]:
        """Return a context that records known faults of the compiler; the list is complete after the context."""
        return nullcontext([])

    @abstractmethod
    def lower(
        self, unit: NumbaUnit, python: FunctionType, args: Any, result: Any, jit: JitOptions, target: Target
    ) -> Any:
        """Type and lower a function with the compiler's own steps."""

    @abstractmethod
    def result_type(self, compiled: Any) -> Any:
        """Return the type that a function with the C ABI returns."""

    @abstractmethod
    def kernel_texts(self, compiled: Any, unit: NumbaUnit, jit: JitOptions) -> list[str]:
        """Return the modules of a kernel in LLVM IR."""

    @abstractmethod
    def function_texts(self, compiled: Any, jit: JitOptions) -> list[str]:
        """Return the modules of a device function in LLVM IR."""

    def texts(
        self, compiled: Any, unit: NumbaUnit, jit: JitOptions, targets: Sequence[Target]
    ) -> list[tuple[Sequence[Target], list[str]]]:
        """Return the modules for `targets`, each list of modules with the targets that it serves."""
        texts = self.kernel_texts(compiled, unit, jit) if unit.kind == "kernel" else self.function_texts(compiled, jit)
        return [(targets, texts)]

    @abstractmethod
    def needs(self, compiled: Any, texts: list[str], jit: JitOptions) -> Needs:
        """Return the link inputs, callbacks and foreign functions that a unit needs."""

    @abstractmethod
    def is_cooperative(self, compiled: Any) -> bool:
        """Return True if a kernel synchronises the whole grid."""

    @abstractmethod
    def exceptions(self, compiled: Any) -> list[ErrorCode]:
        """Return the exceptions of a debug kernel by their error codes, with absolute paths."""

    @abstractmethod
    def compile_ir(
        self, name: str, texts: list[str], options: Options, target: Target, form: Literal["ltoir", "ptx"]
    ) -> tuple[LinkInput, ...]:
        """Return code of modules in LLVM IR."""

    @abstractmethod
    def include_dirs(self) -> list[str]:
        """Implement FrontEnd.include_dirs."""

    def jit_options(self, loaded: Any) -> dict[str, Any]:
        """Return the options of `@cuda.jit`."""
        return loaded.targetoptions if isinstance(loaded, self.dispatchers) else {}

    def prepare(self, session: Session) -> dict[str, str]:
        """Implement FrontEnd.prepare; typing and lowering, which the cache spares, take nine tenths of a build."""
        self.root = session.root
        self.cache = session.cache
        versions = self.start()
        if session.warm:
            self.warm_up()
        return versions

    def importing(self, target: Target) -> AbstractContextManager[Iterable[GpuQuery]]:
        return gpu.importing(target.capability, self.root, self.packages)

    def load(self, unit: NumbaUnit) -> LoadedFunction:
        return resolve.find(unit, self.dispatchers, self.convention.notation, self.root)

    def resolve(self, unit: NumbaUnit, loaded: LoadedFunction) -> Iterable[tuple[NumbaUnit, str]]:
        for completed in units.complete(unit, loaded, self.convention.notation, self.root):
            yield completed, self._signature(completed, loaded).text

    def _signature(self, unit: NumbaUnit, loaded: LoadedFunction) -> units.Signature:
        if unit not in self._signatures:
            self._signatures[unit] = units.resolve(unit, loaded, self.convention.notation, self.root)
        return self._signatures[unit]

    def compile_unit(
        self, unit: NumbaUnit, loaded: LoadedFunction, targets: Sequence[Target]
    ) -> Mapping[Target, CompiledKernel] | Mapping[Target, CompiledFunction]:
        """Implement FrontEnd.compile_unit: to LLVM IR.

        Raises:
            CompileError: The compiler refuses the unit, a packaged kernel cannot take an argument of its types, or a
                function raises or has a type without counterpart in C.
        """
        return (self._kernels if unit.kind == "kernel" else self._functions)(unit, loaded, targets)

    def _kernels(
        self, unit: NumbaUnit, loaded: LoadedFunction, targets: Sequence[Target]
    ) -> dict[Target, CompiledKernel]:
        python = loaded.python
        jit = jit_options.read(unit, self.jit_options(loaded.value))
        args, _, signature = self._signature(unit, loaded)
        layout = self.convention.layout(unit.head, list(inspect.signature(python).parameters), args)
        name = self._entry_name(unit, loaded, jit, args, targets)
        entry = self.cache.find_here(name, _LOWERED) if self.cache is not None else None
        if entry is not None:
            lowered = _Lowered(*entry, generated=Generated(name=name))
        else:
            lowered = self._lower_kernel(unit, python, jit, args, targets, name)
        template = CompiledKernel(
            code=(),
            signature=signature,
            parameters=tuple(layout.parameters),
            parameter_block=ParameterBlock(size=layout.size, layout=tuple(layout.fields)),
            launch=Launch(cooperative=lowered.is_cooperative, launch_bounds=jit.launch_bounds, carveout=jit.carveout),
            definition=Definition(
                doc=inspect.getdoc(python) or "",
                defined=f"{python_source.home(python)}:{python.__qualname__}:{python.__code__.co_firstlineno}",
                lazy=bool(getattr(loaded.value, "_can_compile", True)),  # Numba clears it for eager signatures
            ),
            exceptions=lowered.exceptions,
            faults=lowered.faults,
            values=tuple(read_values(python, self.root).items()),
        )
        kernels: dict[Target, CompiledKernel] = {}
        for names, data, self_contained, constants in lowered.code:
            kernel = replace(
                template,
                code=(Ir(symbol=unit.symbol, data=data),),
                self_contained=self_contained,
                constants=constants,
                **lowered.links.get(names[0], {}),
            )
            kernels |= dict.fromkeys((target for target in targets if str(target) in names), kernel)
        first = next(iter(kernels))
        return {**kernels, first: replace(kernels[first], generated=lowered.generated)}

    def _entry_name(
        self, unit: NumbaUnit, loaded: LoadedFunction, jit: JitOptions, args: Any, targets: Sequence[Target]
    ) -> str:
        """Return the name of a kernel's IR in the build cache; empty if its inputs have no description."""
        if self.cache is None or not self.cache.is_on or self.is_extended() or jit.link:
            return ""
        if jit.options.debug or jit.options.lineinfo:  # the IR has the lines of the source and of its helpers
            return ""
        try:
            inputs = lowering_inputs.describe(loaded.python, tuple(args), self.dispatchers)
        except lowering_inputs.UnknownError:
            return ""
        return self.cache.name("lowered", unit, jit, inputs, list(targets))

    def _lower_kernel(
        self,
        unit: NumbaUnit,
        python: FunctionType,
        jit: JitOptions,
        args: Any,
        targets: Sequence[Target],
        name: str,
    ) -> _Lowered:
        """Type and lower a kernel for the first of `targets` and all others that get equal code."""
        notation = self.convention.notation
        earlier_warnings = telemetry.warning_count()
        with (
            add_context(unit, python, self.root),
            target_dependence.watching(targets[0].capability, str(targets[0])) as watch,
            self.known_faults() as faults,
            self.compiling(unit, targets[0], jit, python, c_abi=False),
        ):
            compiled = self.lower(unit, python, args, notation.types.void, jit, targets[0])
            served = self._code(compiled, unit, jit, _served_targets(watch, targets))
            exceptions = self._relative(self.exceptions(compiled)) if jit.options.debug else None
        code: _Code = []
        links: dict[str, dict[str, Any]] = {}
        for group, texts, needed in served:
            # Debug builds are linked as PTX, in which two kernels must not have equal names.
            merged, constants = (texts, ()) if jit.options.debug else constant_arrays.merge(texts)
            is_alone = not (jit.options.debug or needed.inputs or needed.externals)
            is_alone = is_alone and llvm_text.is_self_contained(merged)
            code.append((list(map(str, group)), _encode_ir(merged, jit.options), is_alone, constants))
            links[str(group[0])] = self._links(needed, python)
        cooperative = unit.cooperative or self.is_cooperative(compiled)
        # An entry has no places in the source, no link inputs and no warnings.
        is_stored = name and not faults and not any(value for item in links.values() for value in item.values())
        is_stored = is_stored and telemetry.warning_count() == earlier_warnings
        return _Lowered(
            cooperative,
            code,
            exceptions=exceptions,
            faults=tuple(faults),
            links=links,
            generated=Generated(name=name, value=(cooperative, code)) if is_stored else None,
        )

    def _functions(
        self, unit: NumbaUnit, loaded: LoadedFunction, targets: Sequence[Target]
    ) -> dict[Target, CompiledFunction]:
        python = _copy(loaded.python)
        jit = jit_options.read(unit, self.jit_options(loaded.value))
        # Debug information in LTOIR cannot be linked; line information can.
        jit = replace(jit, options=replace(jit.options, debug=False))
        args, result, _ = self._signature(unit, loaded)
        with (
            add_context(unit, python, self.root),
            target_dependence.watching(targets[0].capability, str(targets[0])) as watch,
            self.known_faults() as faults,
            self.compiling(unit, targets[0], jit, python, c_abi=True) as unreported,
        ):
            compiled = self.lower(unit, python, args, result, jit, targets[0])
            units.check_returns(unit, loaded, self.result_type(compiled), self.convention.notation, self.root)
            declared = c_abi.prototype(self.convention, unit, python, args, self.result_type(compiled))
            code = self._code(compiled, unit, jit, _served_targets(watch, targets))
        template = replace(
            declared,
            warnings=tuple(
                f"{unit.key}: a helper that it calls {relative(reason, self.root)}; the C ABI has no way to report it, "
                "so callers get an undefined value there"
                for reason in dict.fromkeys(unreported)
            ),
            faults=tuple(faults),
        )
        functions: dict[Target, CompiledFunction] = {}
        for group, texts, needed in code:
            function = replace(template, ir=_encode_ir(texts, jit.options), **self._links(needed, python))
            functions |= dict.fromkeys(group, function)
        return functions

    def _code(
        self, compiled: Any, unit: NumbaUnit, jit: JitOptions, targets: Sequence[Target]
    ) -> list[tuple[Sequence[Target], list[str], Needs]]:
        """Return LLVM IR and its link inputs, each with the targets that it serves."""
        code = []
        for group, original in self.texts(compiled, unit, jit, targets):
            texts = [llvm_text.apply_options(text, jit.options) for text in original]
            code.append((group, texts, self.needs(compiled, texts, jit)))
        return code

    def _links(self, needed: Needs, python: FunctionType) -> dict[str, Any]:
        externals = add_places(needed.externals, python, self.root)
        return {"needed": needed.inputs, "callbacks": needed.callbacks, "externals": externals}

    def generate(
        self,
        code: Mapping[NumbaUnit, bytes],
        loaded: Mapping[NumbaUnit, LoadedFunction],
        target: Target,
        options: Options,
        form: Literal["ltoir", "ptx"] = "ltoir",
    ) -> tuple[LinkInput, ...]:
        """Implement FrontEnd.generate: by libNVVM.

        The instructions of each function contain its fast math. Flushing to zero and approximate division and square
        root are settings of the merged code, so they are used only if all functions have fast math.
        """
        first, *_ = code
        parts = [json.loads(data) for data in code.values()]
        if first.kind == "function":
            options = replace(options, fastmath=all(fastmath for fastmath, *_ in parts), debug=False)
            texts = [text for _, _, _, *of_function in parts for text in of_function]
            return self.compile_ir(MERGED, texts, options, target, form)
        ((fastmath, opt_level, debug, *texts),) = parts
        options = replace(options, fastmath=fastmath, opt_level=opt_level, debug=debug)
        with add_context(first, loaded[first].python, self.root):
            return self.compile_ir(first.symbol, texts, options, target, "ptx" if debug else form)

    def _relative(self, exceptions: list[ErrorCode]) -> tuple[ErrorCode, ...]:
        return tuple(
            (code, kind, arguments, function, relative(path, self.root), line)
            for code, kind, arguments, function, path, line in exceptions
        )


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A kernel's IR.

    Attributes:
        links: The link inputs, callbacks and externals of `CompiledKernel`, by the first target of each group.
    """

    is_cooperative: bool
    code: _Code
    _: KW_ONLY
    exceptions: tuple[ErrorCode, ...] | None = None
    faults: tuple[Fault, ...] = ()
    links: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    generated: Generated | None = None


def _encode_ir(texts: Sequence[str], options: Options) -> bytes:
    """Return LLVM IR, with its options of libNVVM."""
    return json.dumps([options.fastmath, options.opt_level, options.debug, *texts]).encode()


def _copy(function: FunctionType) -> FunctionType:
    """Return a second function with the same code, so that a recursive function calls the first, in Numba's ABI.

    Numba recognises recursion by the function object. Without the copy, a function with the C ABI would call itself by
    Numba's ABI.
    """
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    return copy


def _served_targets(watch: target_dependence.Watch, targets: Sequence[Target]) -> list[Target]:
    """Return the targets that the code for the first target serves."""
    return [target for target in targets if watch.serves(target.capability, str(target))]
