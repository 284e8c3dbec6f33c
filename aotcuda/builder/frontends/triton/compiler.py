"""Compiling: each variant of a kernel to PTX by Triton, and all of a module's into one image by Triton's assembler.

The image is assembled as Triton assembles one kernel for itself, by the same tool with the same options: nothing stands
between Triton's PTX and the machine code. What Triton compiles it keeps in no cache.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from aotcuda.arch import Target
from aotcuda.builder import code_warnings, toolchain
from aotcuda.builder.build_cache import hashing
from aotcuda.builder.config import keys
from aotcuda.builder.frontends import error_table, python_source
from aotcuda.builder.frontends.protocol import Assembled, CompiledKernel, Generated, LeftOut, LinkInput, Wanted
from aotcuda.builder.frontends.triton import config, decorators, gpu, ptx, type_notation
from aotcuda.builder.link import images
from aotcuda.builder.worker import telemetry
from aotcuda.common import gpu_facts as versions
from aotcuda.errors import AotcudaError, CompileError, SourceError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from triton.compiler.errors import CompilationError

    from aotcuda.builder.build_cache.compile_cache import CompileCache
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import Question
    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.builder.frontends.triton.ptx import Field
    from aotcuda.builder.frontends.triton.type_notation import Type, Value
    from aotcuda.builder.frontends.variants import Constant
    from aotcuda.manifest import Argument, FixedLaunch, Parameter

_WARP = 32
_MOST_THREADS = 1024
_DIVISOR = 16
"""What Triton's specialisation looks for in pointers and integers."""
_OLDEST = (3, 6)
"""The oldest version of Triton that was tested; 3.9.0 was, too."""
_LAST_FUSING = (3, 9)
"""The last version of Triton that fuses multiplications and additions where nothing is said."""


_LONGEST_REASON = 500
"""Characters of the reason for which a target lacks a kernel; Triton prints what it compiles."""

_KNOWN_TARGET = re.compile(r"'sm_(\d+)'")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a source has under a kernel's path.

    Attributes:
        function: What `@triton.jit` has made.
        tuned: The constexprs that `@triton.autotune` gives values; None where none stands around the function.
        computed: The arguments that `@triton.heuristics` computes at each launch of Triton's, in its order, each with
            its question if it asks only whether another argument is None.
    """

    function: Any
    tuned: frozenset[str] | None
    computed: Mapping[str, decorators.Asked | None]


class TritonFrontEnd:
    """A front end for Triton; see `aotcuda.builder.frontends.protocol.FrontEnd`."""

    def __init__(self) -> None:
        self._root = ""
        self._cache: CompileCache | None = None

    def keep_in(self, cache: CompileCache) -> None:
        """See FrontEnd: most of Triton's time passes between its own IR and PTX."""
        self._cache = cache

    def prepare(self, root: str) -> dict[str, str]:
        """See FrontEnd.

        Raises:
            ToolchainError: This Triton is older than what is supported.
        """
        self._root = root
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # it would have absolute paths
        # The worker keeps its compiler from being looked through for garbage; what of it is not freed when the process
        # ends, nanobind, through which Python sees Triton's, would list in a page of text.
        atexit.register(gc.unfreeze)
        import triton  # noqa: PLC0415 (as late as in every front end: errors of the import name the key)

        if versions.pair(_release(triton.__version__)) < _OLDEST:
            message = (
                f"Triton {triton.__version__} is older than {versions.dotted(_OLDEST)}, the oldest that "
                "kernels are packaged with; install a newer one: pip install --upgrade 'aotcuda[triton]'"
            )
            raise ToolchainError(message)
        try:
            _warm()
        except Exception as error:
            message = f"Triton {triton.__version__} does not compile here: {_first_line(error)}; install it again"
            raise ToolchainError(message) from error
        return {"triton": triton.__version__}

    def check_target(self, target: Target, where: str) -> None:
        """See FrontEnd; of Triton's assemblers, there is one for later targets, that for this one is asked."""
        import triton  # noqa: PLC0415 (as in prepare)
        from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415

        told = subprocess.run(
            [get_ptxas(_gpu(target).arch).path, "--help"], check=False, capture_output=True, text=True
        ).stdout
        known = sorted(set(_KNOWN_TARGET.findall(told)), key=int)
        if known and f"{target.major}{target.minor}" not in known:
            name = f"{str(target).partition('_')[0]}_{target.major}{target.minor}"
            raise toolchain.unknown_target(
                name, where, f"Triton {triton.__version__}", [f"sm_{number}" for number in known]
            )

    def importing(self, target: Target) -> AbstractContextManager[Iterable[Question]]:
        """See FrontEnd."""
        return gpu.importing(target, _gpu(target), self._root)

    def load(self, unit: TritonUnit, root: str) -> Loaded:
        """See FrontEnd.

        Raises:
            SourceError: A source cannot be imported, or has no such kernel.
        """
        name, value = python_source.find(unit, unit.sources, root)
        inside, function = decorators.layers(value)
        _check_function(unit, name, function)
        around = [*_around(unit, root), *inside]
        tuners = decorators.tuners(around)
        if not unit.in_place:
            _check_hooks(unit, name, tuners, function)
        if not unit.is_exact:
            _check_configs(unit, name, decorators.tuners(inside), function)
        return Loaded(
            function=function,
            tuned=frozenset(key for item in tuners for config in item.configs for key in config.kwargs)
            if tuners
            else None,
            computed=decorators.heuristics(around),
        )

    def settled(self, unit: TritonUnit, loaded: Loaded) -> Sequence[TritonUnit]:
        """See FrontEnd: a unit for each specialisation.

        Raises:
            CompileError: The table does not fit the function, or no argument can fit it.
        """
        _check(unit, loaded.function)
        plain = [parameter for parameter in loaded.function.params if not parameter.is_constexpr]
        unhinted = {number: _unhinted(parameter, exact=unit.is_exact) for number, parameter in enumerate(plain)}
        if unit.is_exact:
            return config.specialised(unit, unhinted)
        of_configs = unit.chosen if loaded.tuned is None else unit.chosen & loaded.tuned
        defaults = {parameter.name for parameter in loaded.function.params if parameter.has_default}
        # A value of the source's own goes before a config, but where the source has an autotuner to overrule it.
        decided = of_configs - frozenset(loaded.computed) - (defaults - (loaded.tuned or frozenset()))
        undecided = config.undecided(unit.configs, of_configs)
        if tuned := sorted(undecided & (loaded.tuned or frozenset())):
            message = (
                f"{unit.key}.configs: several are for the same arguments and differ in {' and '.join(tuned)}, which "
                "launches of an autotuned kernel do not name; give each its when, or keep one of them"
            )
            raise CompileError(message)
        unit = replace(
            unit,
            chosen=decided - undecided,
            alone=unit.alone - frozenset(loaded.computed),
        )
        names = [parameter.name for parameter in plain]
        found = [variant for variant in config.specialised(unit, unhinted) if config.launched(variant, names)]
        if not found and not any(config.launched(replace(unit, types=types), names) for types in unit.signatures):
            message = (
                f"{unit.key}.configs: no signature takes what when asks for, {config.conditions(unit.when)}; write one "
                "without :16 or :1 there"
            )
            raise CompileError(message)
        return found

    def sources(self, unit: TritonUnit, loaded: Loaded, root: str) -> tuple[LinkInput, ...]:
        """See FrontEnd: Python modules alone."""
        del unit, loaded, root
        return ()

    def resolve(self, unit: TritonUnit, loaded: Loaded) -> str:
        """See FrontEnd."""
        del loaded
        return unit.signature

    def compile_kernel(self, unit: TritonUnit, loaded: Loaded, target: Target) -> CompiledKernel | Wanted | LeftOut:
        """See FrontEnd; to PTX, which the compile cache names by Triton's own IR."""
        try:
            return self._kernel(unit, loaded, target)
        except CompileError as error:
            lines = [line.strip() for line in str(error).removeprefix(f"{unit.head}: ").splitlines()]
            return LeftOut(error=error, reason="; ".join(filter(None, lines))[:_LONGEST_REASON])

    def _kernel(self, unit: TritonUnit, loaded: Loaded, target: Target) -> CompiledKernel | Wanted:
        """A kernel, compiled.

        Raises:
            CompileError: Triton refuses it, or it needs what a packaged kernel or the target cannot have.
        """
        compiled = _compiled(unit, loaded.function, target, self._root, self._cache)
        if isinstance(compiled, Wanted):
            return compiled
        text = compiled.ptx
        fields = ptx.fields(text)
        return CompiledKernel(
            code=(LinkInput(kind="ptx", name=unit.symbol, data=ptx.renamed(text, unit.symbol).encode()),),
            needed=(),
            signature=unit.signature,
            parameters=tuple(_parameters(unit, loaded.function, fields)),
            parameter_bytes=fields[-1].offset + fields[-1].size if fields else 0,
            layout=tuple((field.offset, field.size) for field in fields),
            cooperative=unit.launch_cooperative_grid,
            launch_bounds=(),
            carveout=None,
            launch=_launch(unit, compiled.metadata, target),
            arguments=tuple(_arguments(unit, loaded)),
            defined=_defined(loaded.function),
            heuristics=tuple(loaded.computed),
            exact=unit.is_exact,
            generated=compiled.generated,
        )

    def is_fresh(self) -> bool:
        """See FrontEnd: Triton's JIT compiles all kernels of a program in one process, each in a context of its own."""
        return True

    def assemble(self, module: str, inputs: Sequence[LinkInput], target: Target, options: Options) -> Assembled:
        """See FrontEnd; by Triton's own assembler, as it assembles one kernel.

        Raises:
            CompileError: It refuses.
        """
        text = ptx.merged([item.data.decode() for item in inputs])
        left_out: dict[str, str] = {}
        try:
            data, cuda = _assembled(module, text, target, options.fma)
        except CompileError:
            left_out = _refused(inputs, target, options.fma)
            kept = [item.data.decode() for item in inputs if item.name not in left_out]
            if not left_out or not kept:
                raise
            text = ptx.merged(kept)
            data, cuda = _assembled(module, text, target, options.fma)
        if target.kind == "sass":
            return Assembled(data=data, cuda=cuda, left_out=tuple(left_out.items()))

        def machine_code(candidate: bytes) -> bytes | None:
            try:
                return _assembled(module, candidate.decode(), target, options.fma)[0]
            except CompileError:
                return None

        older = images.for_older_drivers(text.encode(), machine_code)
        return Assembled(data=older, cuda=cuda, left_out=tuple(left_out.items()))

    def tools(self, target: Target) -> list[str]:
        """See FrontEnd; sources may have named others by `triton.knobs`, or the variables that these read."""
        from triton import knobs  # noqa: PLC0415 (as in prepare)
        from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415

        libdevice = knobs.nvidia.libdevice_path
        return [get_ptxas(_gpu(target).arch).path, *([libdevice] if libdevice else [])]

    def include_dirs(self) -> list[str]:
        """See FrontEnd."""
        return []


FRONT_END = TritonFrontEnd()


def _around(unit: TritonUnit, root: str) -> list[Any]:
    """What the path of a kernel leads through, `name` and `name.fn` of `name.fn.fn`."""
    names = unit.python.split(".")
    paths = [".".join(names[:at]) for at in range(1, len(names))]
    return [python_source.find(replace(unit, python=path), unit.sources, root)[1] for path in paths]


def _check_function(unit: TritonUnit, name: str, function: Any) -> None:
    """Refuse what is below all decorators if it is no function of `@triton.jit`, or one that cannot be packaged.

    Raises:
        SourceError: It is.
    """
    from triton.runtime import JITFunction  # noqa: PLC0415 (as in prepare)

    if not isinstance(function, JITFunction) or function.is_gluon():
        kind = "a kernel of Gluon" if isinstance(function, JITFunction) else f"of type {type(function).__qualname__}"
        message = f"{unit.key}: {name} is {kind}, and no function with @triton.jit; decorate it, or name another one"
        raise SourceError(message)
    if getattr(function, "debug", None):
        message = f"{unit.key}: {name} has debug=True, and packaged kernels have no device_assert; leave debug out"
        raise SourceError(message)


def _check_hooks(unit: TritonUnit, name: str, tuners: Sequence[Any], function: Any) -> None:
    """Refuse a kernel at whose launches Triton would call functions of the source, which nothing else calls.

    Raises:
        SourceError: There are such functions.
    """
    if getattr(function, "pre_run_hooks", None):
        message = f"{unit.key}: {name} has launch hooks (add_pre_run_hook), which nothing would call: take them off"
        raise SourceError(message)
    hooks = [config.pre_hook for tuner in tuners for config in tuner.configs if getattr(config, "pre_hook", None)]
    if hooks or any(getattr(tuner, "user_defined_pre_hook", False) is True for tuner in tuners):
        message = (
            f"{unit.key}: {name} has a pre_hook in its configs, which Triton calls before each launch and nothing "
            "would call here; do in the program what it does, and take it out"
        )
        raise SourceError(message)


def _check_configs(unit: TritonUnit, name: str, tuners: Sequence[Any], function: Any) -> None:
    """Refuse an autotuned kernel that the table has no result of tuning for.

    Raises:
        SourceError: Constexprs that are tuned have no value.
    """
    configs = [item for tuner in tuners for item in tuner.configs]
    for one in configs:
        if getattr(one, "ir_override", None):
            message = f"{unit.key}: {name} has ir_override in its configs, which a build does not read; take it out"
            raise SourceError(message)
        if (registers := getattr(one, "maxnreg", None)) and not unit.maxnreg:
            message = (
                f"{unit.key}: {name} has maxnreg in its configs, and the table does not say how many registers a "
                f"thread may use; write maxnreg = {registers}"
            )
            raise SourceError(message)
    open_ = {parameter.name for parameter in function.params if parameter.is_constexpr and not _is_constant(parameter)}
    open_ -= {given for given, _ in unit.constexprs}
    tuned = [item.kwargs for item in configs if open_ & item.kwargs.keys()]
    if tuned:
        names = [parameter.name for parameter in function.params if any(parameter.name in item for item in tuned)]
        values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tuned[0].items())
        message = (
            f"{unit.key}.configs: {name} is autotuned, and the table does not say what is to be {' and '.join(names)}; "
            "take it from a run, aotcuda record --write -- COMMAND, or choose: "
            f"configs = [{{ constexprs = {{ {values} }} }}]"
        )
        raise SourceError(message)


def _unhinted(parameter: Any, *, exact: bool) -> frozenset[int]:
    """Return the hints that Triton does not look for in an argument; with `exact`, because of annotations too."""
    found = {1, _DIVISOR} if parameter.do_not_specialize else set()
    if parameter.do_not_specialize_on_alignment:
        found.add(_DIVISOR)
    if exact and parameter.annotation_type:
        found.add(1)  # the argument keeps its type
    return frozenset(found)


def _defined(function: Any) -> str:
    """Return where the Python function of a kernel begins: `mypkg.ops.norm:norm_fwd:12`."""
    python = function.fn
    return f"{python.__module__}:{python.__qualname__}:{python.__code__.co_firstlineno}"


def _check(unit: TritonUnit, function: Any) -> None:
    """Hold the table against the function's parameters.

    Raises:
        CompileError: They do not agree.
    """
    names = tuple(parameter.name for parameter in function.params)
    if unit.parameters is not None and unit.parameters != names:
        message = f"{unit.key}: {unit.python} has other parameters than when it was recorded: {', '.join(names)}"
        raise CompileError(message)
    plain = [parameter.name for parameter in function.params if not parameter.is_constexpr]
    constexprs = [parameter.name for parameter in function.params if parameter.is_constexpr]
    given = dict(unit.constexprs)
    if len(plain) != len(unit.types):
        message = (
            f"{unit.key}.signature: {', '.join(map(str, unit.types)) or 'nothing'!r} has {len(unit.types)} types, and "
            f"{unit.python} takes {len(plain)} arguments beside constexprs: {', '.join(plain) or 'none'}"
        )
        without = [name for name in constexprs if name not in given]
        if without and any(kind.scalar == type_notation.NOTHING for kind in unit.types):
            message += f'; None for a constexpr is constexprs = {{ {without[0]} = "{type_notation.NONE}" }}'
        raise CompileError(message)
    _check_annotations(unit, function)
    for name in given:
        if name not in constexprs:
            near = difflib.get_close_matches(name, [item for item in constexprs if item not in given], n=1)
            hint = f"its constexprs are {', '.join(constexprs)}" if constexprs else "it has none"
            hint = f"did you mean {near[0]}?" if near and name not in plain else hint
            what = "an argument" if name in plain else "no parameter"
            message = f"{unit.key}.constexprs.{name}: {name} is {what} of {unit.python}, and no tl.constexpr; {hint}"
            raise CompileError(message)
    for parameter in function.params:
        if parameter.is_constexpr and parameter.name not in given and not _is_constant(parameter):
            message = (
                f"{unit.key}.constexprs: {parameter.name} is missing, a tl.constexpr of {unit.python}; "
                f"write for example constexprs = {{ {parameter.name} = 128 }}"
            )
            raise CompileError(message)
    for name, *_ in unit.when:
        number = plain.index(name) if name in plain else -1
        if number < 0 or unit.types[number].pointer or unit.types[number].scalar[0] not in "iu":
            message = f"{unit.key}.configs: when names {name}, which is no integer argument of {unit.python}"
            raise CompileError(message)


def _check_annotations(unit: TritonUnit, function: Any) -> None:
    """Hold the types against those that the source's annotations name: Triton's JIT takes these, whatever it is given.

    Raises:
        CompileError: They differ.
    """
    plain = [parameter for parameter in function.params if not parameter.is_constexpr]
    for kind, parameter in zip(unit.types, plain, strict=True):
        wanted = parameter.annotation_type
        if wanted and kind.plain.replace("u1", "i1") != wanted.replace("u1", "i1"):
            message = (
                f"{unit.key}.signature: {keys.string(str(kind))} stands for {parameter.name}, which {unit.python} "
                f"annotates as {wanted}; write {wanted}, or take the annotation off"
            )
            raise CompileError(message)


def _is_constant(parameter: Any) -> bool:
    return parameter.has_default and isinstance(_default(parameter), int | float | str | None)


def _default(parameter: Any) -> Any:
    """The default in the source, a type in the table's notation."""
    import triton.language as tl  # noqa: PLC0415 (as in prepare)

    value = parameter.default.value if isinstance(parameter.default, tl.constexpr) else parameter.default
    if isinstance(value, tl.dtype):
        return next((f"tl.{name}" for name in type_notation.DTYPES if getattr(tl, name, None) == value), value)
    return value


def _constants(unit: TritonUnit, function: Any) -> dict[str, Value]:
    """The value of each constexpr: the table's, else the default in the source."""
    given: dict[str, Value] = dict(unit.constexprs)
    for parameter in function.params:
        if parameter.is_constexpr and parameter.name not in given:
            given[parameter.name] = _default(parameter)
    return given


def _of_triton(value: Value) -> Any:
    """A constexpr's value as Triton has it: `tl.float32` is the type."""
    import triton.language as tl  # noqa: PLC0415 (as in prepare)

    if isinstance(value, tuple):
        return tuple(map(_of_triton, value))
    return getattr(tl, value.removeprefix("tl.")) if isinstance(value, str) and value.startswith("tl.") else value


@dataclass(frozen=True, slots=True)
class _Code:
    """PTX of a variant.

    Attributes:
        ptx: The text.
        metadata: What launches have to know.
        generated: For the compile cache.
    """

    ptx: str
    metadata: Any
    generated: Generated | None


class _KnownError(BaseException):
    """Ends a compilation by Triton at its own IR, whose code is known, or may be at the compile cache's URL."""


CODE = tuple[str, dict[str, int | bool | list[int] | tuple[int, ...] | None]]
"""The type of what the compile cache has: PTX, and what launches have to know."""

_METADATA = (
    *("shared", "num_warps", "num_ctas", "cluster_dims", "global_scratch_size", "profile_scratch_size"),
    *("launch_cooperative_grid", "launch_pdl"),
)
"""What is read of Triton's metadata; not every version has all."""


def _compiled(unit: TritonUnit, function: Any, target: Target, root: str, cache: CompileCache | None) -> _Code | Wanted:
    """What Triton makes of a variant.

    Raises:
        CompileError: It refuses.
    """
    import triton  # noqa: PLC0415 (as in prepare)
    from triton.compiler import ASTSource  # noqa: PLC0415

    constants = _constants(unit, function)
    signature, attributes, values = {}, {}, {}
    types = iter(unit.types)
    for number, parameter in enumerate(function.params):
        kind = None if parameter.is_constexpr else next(types)
        if kind is None or kind.scalar == type_notation.NOTHING or kind.hint == 1:
            signature[parameter.name] = "constexpr"
            values[(number,)] = _of_triton(constants[parameter.name]) if kind is None else None if kind.hint != 1 else 1
            continue
        signature[parameter.name] = kind.plain
        if kind.hint:
            attributes[(number,)] = [["tt.divisibility", kind.hint]]
    own = _gpu(target)
    warned = telemetry.warning_count()
    base = cache.name("ptx") if cache is not None and not _is_inspected() else ""

    class Source(ASTSource):  # type: ignore[misc]  # Triton has no types
        """Ends the compilation at Triton's own IR, if the compile cache has PTX of that."""

        name_in_cache = ""

        def make_ir(self, target: Any, options: Any, *more: Any) -> Any:
            module = super().make_ir(target, options, *more)
            if cache is not None and base:
                name = hashing.digest(base, str(module), str(target), options.hash())
                found = cache.find_here(name, CODE)
                if found is not None:
                    text, values = found
                    raise _KnownError(_Code(text, SimpleNamespace(**values), Generated(name=name)))
                if cache.must_ask(name):
                    raise _KnownError(Wanted(name=name, shape=CODE))
                self.name_in_cache = name
            return module

    with _explained(unit, function, target, root), _unassembled(), gpu.compiling(target, own):
        source = Source(function, signature, values, attributes)
        try:
            triton.compile(source, target=own, options=_options(unit))
        except _KnownError as known:
            (found,) = known.args
            return found  # type: ignore[no-any-return]
        except _Finished as finished:
            text, known_of = finished.args
    metadata = {name: known_of[name] for name in _METADATA if name in known_of}
    kept = None
    if source.name_in_cache and telemetry.warning_count() == warned:  # a warning would not come with what is taken
        kept = Generated(name=source.name_in_cache, value=(text, metadata))
    return _Code(text, SimpleNamespace(**metadata), kept)


def _is_inspected() -> bool:
    """Return True if a source has told Triton to run functions of its own between the stages."""
    from triton import knobs  # noqa: PLC0415 (as in prepare)

    found = (getattr(knobs.runtime, "add_stages_inspection_hook", None), getattr(knobs.compilation, "listener", None))
    return any(hook is not None for hook in found) or bool(getattr(knobs.compilation, "instrumentation_mode", ""))


def _warm() -> None:
    """Compile once for each of Triton's assemblers: the first compilation of a process takes ten times as long."""
    import triton  # noqa: PLC0415 (as in prepare)
    from triton.compiler import ASTSource  # noqa: PLC0415

    from aotcuda.builder.frontends.triton.small_kernel import small_kernel  # noqa: PLC0415 (it imports Triton)

    source = ASTSource(small_kernel, {"x": "*fp32", "n": "i32", "block": "constexpr"}, {(2,): 64}, {})
    for capability in ((8, 0), (10, 0)):
        with _unassembled(), contextlib.suppress(_Finished):
            triton.compile(source, target=_gpu(Target("sass", *capability)), options=_fused())


def _options(unit: TritonUnit) -> dict[str, object]:
    return {
        "num_warps": unit.num_warps,
        "num_stages": unit.num_stages,
        "num_ctas": unit.num_ctas,
        **({"maxnreg": unit.maxnreg} if unit.maxnreg else {}),
        **_fused(unit.options.fma if unit.enable_fp_fusion is None else unit.enable_fp_fusion),
        **({"launch_pdl": True} if unit.launch_pdl else {}),
        **({"launch_cooperative_grid": True} if unit.launch_cooperative_grid else {}),
    }


def _fused(fma: bool | None = None) -> dict[str, object]:
    """Return Triton's option for `fma`. Triton 3.9 warns where it is left out: 3.10 has another default."""
    import triton  # noqa: PLC0415 (as in prepare)

    if fma is not None:
        return {"enable_fp_fusion": fma}
    return {"enable_fp_fusion": versions.pair(_release(triton.__version__)) <= _LAST_FUSING}


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _gpu(target: Target) -> Any:
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 (as in prepare)

    return GPUTarget("cuda", target.major * 10 + target.minor, _WARP)


class _Nowhere:
    """Takes the place of Triton's cache, which writes the result of each stage: it keeps and has nothing."""

    def __init__(self, key: str) -> None:
        del key

    def get_group(self, filename: str) -> None:
        """See Triton's CacheManager."""
        del filename

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        """See Triton's CacheManager."""
        del data, binary
        return filename


class _Finished(BaseException):
    """Ends a compilation by Triton at PTX: the text, and Triton's metadata."""


@contextlib.contextmanager
def _unassembled() -> Iterator[None]:
    """The block in which Triton ends at PTX: machine code is made of all variants at once, by `assemble`."""
    from triton import knobs  # noqa: PLC0415 (as in prepare)
    from triton.backends.nvidia.compiler import CUDABackend  # noqa: PLC0415

    def finish(_: object, text: str, metadata: dict[str, Any], *__: object) -> None:
        raise _Finished(text, metadata)

    original = CUDABackend.make_cubin
    CUDABackend.make_cubin = finish
    try:
        with knobs.cache.scope():
            knobs.cache.manager_class = _Nowhere
            yield
    finally:
        CUDABackend.make_cubin = original


@contextlib.contextmanager
def _explained(unit: TritonUnit, function: Any, target: Target, root: str) -> Iterator[None]:
    """The block in which Triton compiles; what it raises becomes an error that names the key, and the user's line.

    Raises:
        CompileError: Triton refuses.
    """
    from triton.compiler.errors import CompilationError  # noqa: PLC0415 (as in prepare)

    told: list[str] = []
    head = f"{unit.head}: Triton cannot compile it for {target}"
    try:
        with _heard(told):
            yield
    except AotcudaError:
        raise
    except CompilationError as error:
        inner = error  # of a helper that it calls
        while isinstance(inner.__cause__, CompilationError):
            inner = inner.__cause__
        said, place = _reason(inner).partition("\n")[0], _place(inner, function, root)
        failure = CompileError(error_table.explain(head, said, place))
        failure.fault = error_table.explain(unit.key, said, place)
        raise failure from error
    except Exception as error:
        text = "\n".join([error_table.named(error), *told])
        raise CompileError(error_table.explain(head, text)) from error


_SAID = re.compile(r"error: (?!Failures have been detected)(.*)")
"""What Triton's passes say before they print all of what they were given."""


@contextlib.contextmanager
def _heard(told: list[str]) -> Iterator[None]:
    """The block in which Triton's compiler writes to standard error what goes wrong, in pages.

    Args:
        told: Gets its errors, a line each; where the block succeeds, what was written is written out.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            file.seek(0)
            told += _SAID.findall(file.read().decode(errors="replace"))
            raise
        else:
            sys.stderr.flush()
            file.seek(0)
            for line in file:
                os.write(before, line)
        finally:
            os.dup2(before, 2)
            os.close(before)


def _reason(error: CompilationError) -> str:
    """What was wrong: Triton's own words, or the exception that the source has raised."""
    raised = error.__cause__ or error.__context__
    own = error.error_message
    if raised is not None and own in (None, repr(raised)):
        return _first_line(raised)
    return str(own) if own else _first_line(error)


def _place(error: CompilationError, function: Any, root: str) -> str:
    """`mypkg/_kernels.py:12: tl.store(x, y)`: the line that Triton names, of the kernel or of what it calls."""
    line = getattr(error.node, "lineno", None)
    source = (error.src or "").splitlines()
    if not line or line > len(source):
        return ""
    text: str = source[line - 1].strip()
    owner = next((one for one in _called(function) if one.src == error.src), None)
    if owner is None:
        return text
    lines = owner.raw_src if isinstance(owner.raw_src, list) else owner.raw_src.splitlines()
    decorators = next((at for at, item in enumerate(lines) if item.lstrip().startswith("def ")), 0)
    path = Path(owner.fn.__code__.co_filename)
    name = path.relative_to(root) if root and path.is_relative_to(root) else path
    return f"{name}:{owner.starting_line_number + decorators + line - 1}: {text}"


def _called(function: Any) -> Iterator[Any]:
    """A function of `@triton.jit`, and those that its code names, and so on: by name, or as attributes of modules."""
    from triton.runtime import JITFunction  # noqa: PLC0415 (as in prepare)

    seen: set[object] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop(0)
        if one.fn in seen:
            continue
        seen.add(one.fn)
        yield one
        code = one.fn.__code__
        cells = zip(code.co_freevars, one.fn.__closure__ or (), strict=True)
        named = {**one.fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        values = [named[name] for name in (*code.co_names, *code.co_freevars) if name in named]
        modules = [value for value in values if isinstance(value, ModuleType)]
        values += [getattr(module, name, None) for module in modules for name in code.co_names]
        waiting += [value for value in values if isinstance(value, JITFunction)]


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _launch(unit: TritonUnit, metadata: Any, target: Target) -> FixedLaunch:
    """How the kernel has to be launched.

    Raises:
        CompileError: It needs what a packaged kernel cannot have.
    """
    scratch = {
        "global": getattr(metadata, "global_scratch_size", 0),
        "profile": getattr(metadata, "profile_scratch_size", 0),
    }
    for what, size in scratch.items():
        if size:
            advice = "make no tensor descriptors in it" if what == "global" else "switch Triton's instrumentation off"
            message = (
                f"{unit.head}: for {target} it needs {size} bytes of {what} scratch memory for each block, which "
                f"Triton allocates at launches; {advice}"
            )
            raise CompileError(message)
    threads = _WARP * metadata.num_warps  # warp specialisation may have made more of them
    if threads > _MOST_THREADS:
        message = (
            f"{unit.head}: for {target} a block has {threads} threads, and {_MOST_THREADS} are possible; have fewer"
        )
        raise CompileError(message)
    most = code_warnings.most_shared(str(target))
    if metadata.shared > most:
        message = (
            f"{unit.head}: it needs {metadata.shared} bytes of shared memory for a block, and {target} has {most}; "
            "have smaller tiles or fewer stages"
        )
        raise CompileError(message)
    dims = tuple(getattr(metadata, "cluster_dims", None) or (metadata.num_ctas, 1, 1))
    fixed: FixedLaunch = {"threads": threads, "shared": metadata.shared}
    if dims != (1, 1, 1):
        fixed["cluster"] = list(dims)
    if unit.launch_pdl:
        fixed["dependent"] = True
    return fixed


def _parameters(unit: TritonUnit, function: Any, fields: Sequence[Field]) -> Iterator[Parameter]:
    """The arguments of a launch: the function's parameters in order, then the options, as constants.

    Raises:
        CompileError: Triton takes other parameters than the table says.
    """
    constants = _constants(unit, function)
    places = iter(fields)
    types = iter(unit.types)
    bounds = {name: (low, high) for name, low, high in unit.when}
    for parameter in function.params:
        name = parameter.name
        if parameter.is_constexpr:
            yield _constant(name, constants[name], optional=name in unit.chosen)
            continue
        kind = next(types)
        if kind.scalar == type_notation.NOTHING or kind.hint == 1:
            yield _constant(name, 1 if kind.hint == 1 else None, optional=False)
            continue
        place = next(places, None)
        if place is None:
            message = f"{unit.head}: Triton's kernel has no parameter for {name}; report this defect of aotcuda, please"
            raise CompileError(message)
        yield _argument(name, kind, place, bounds.get(name))
    for name, value in unit.options_given.items():
        yield _constant(name, value, optional=not unit.is_exact)


def _constant(name: str, value: Value, *, optional: bool) -> Parameter:
    in_json = list(value) if isinstance(value, tuple) else value
    found: Parameter = {"name": name, "type": f"{name}={value!r}", "kind": "constant", "offset": 0, "value": in_json}
    if optional:
        found["optional"] = True
    return found


def _argument(name: str, kind: Type, place: Field, bounds: tuple[int, int] | None) -> Parameter:
    found: Parameter
    if kind.pointer:
        found = {
            "name": name,
            "type": str(kind),
            "kind": "elements",
            "offset": place.offset,
            "dtype": type_notation.ELEMENTS[kind.scalar],
        }
        if kind.const:
            found["readonly"] = True
    else:
        found = {
            "name": name,
            "type": str(kind),
            "kind": "number",
            "offset": place.offset,
            "format": type_notation.SCALARS[kind.scalar],
        }
    if kind.hint == _DIVISOR:
        found["divisor"] = _DIVISOR
    if bounds is not None:
        found["least"], found["most"] = bounds
    return found


def _arguments(unit: TritonUnit, loaded: Loaded) -> Iterator[Argument]:
    """The names by which a launch gives arguments, and what those are that it leaves out; then the options.

    That is the default in the source, else the one value that the table has; what an autotuner would overrule or
    heuristics would compute has no default.
    """
    values = dict(unit.constexprs)
    given = (
        {parameter.name for parameter in loaded.function.params}
        - frozenset(loaded.computed)
        - (loaded.tuned or frozenset())
    )
    for parameter in loaded.function.params:
        name = parameter.name
        argument: Argument = {"name": name}
        overruled = name in loaded.computed or name in (loaded.tuned or ())
        if _is_constant(parameter) and not (parameter.is_constexpr and overruled):
            argument["default"] = _default(parameter)
        elif name in unit.alone:
            argument["default"] = cast("Constant | None", values[name])  # of the table
        if (asked := loaded.computed.get(name)) is not None and asked.name in given:
            argument["is_none" if asked.is_none else "is_not_none"] = asked.name
        if unit.is_exact and not parameter.is_constexpr:
            _add_hints(argument, parameter)
        yield argument
    for name, default in config.ALL_OPTIONS.items() if unit.is_exact else dict.fromkeys(config.OPTIONS).items():
        yield {"name": name, "default": default, "keyword": True}


def _add_hints(argument: Argument, parameter: Any) -> None:
    """Add what keeps Triton from specialising an argument."""
    hints = _unhinted(parameter, exact=True)
    if annotation := parameter.annotation_type:
        argument["annotation"] = annotation
    if 16 in hints:
        argument["hints"] = "none" if 1 in hints and not annotation else "no alignment"


def _refused(inputs: Sequence[LinkInput], target: Target, fma: bool | None) -> dict[str, str]:
    """Return the kernels that the assembler refuses by themselves, each with its reason."""
    found = {}
    for item in inputs:
        try:
            _assembled(item.name, item.data.decode(), target, fma)
        except CompileError as error:
            found[item.name] = str(error).removeprefix(f"{item.name}: ").partition("\n")[0]
    return found


def _assembled(module: str, text: str, target: Target, fma: bool | None) -> tuple[bytes, tuple[int, int]]:
    """Machine code of a PTX text by Triton's last stage, and the CUDA version of the assembler.

    Raises:
        CompileError: It refuses.
    """
    from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415 (as in prepare)
    from triton.compiler import make_backend  # noqa: PLC0415
    from triton.compiler.compiler import Language  # noqa: PLC0415

    gpu = _gpu(target)
    backend = make_backend(gpu)
    stages: dict[str, Any] = {}
    options = backend.parse_options(_fused(fma))
    backend.add_stages(stages, options, Language.TRITON)
    try:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):  # noqa: PTH123 (it prints the PTX)
            data: bytes = stages["cubin"](text, {})
    except Exception as error:
        head = f"{module}: Triton's assembler refuses the kernels for {target}"
        raise CompileError(error_table.explain(head, str(error))) from error
    return data, versions.pair(get_ptxas(gpu.arch).version)
