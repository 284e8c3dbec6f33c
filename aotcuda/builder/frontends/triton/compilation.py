"""Compile variants to PTX by Triton, and a module's PTX to machine code by Triton's assembler."""

from __future__ import annotations

import contextlib
import importlib
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aotcuda.arch import Target
from aotcuda.builder.cache import hashing
from aotcuda.builder.compile import telemetry
from aotcuda.builder.frontends import error_table
from aotcuda.builder.frontends.protocol import Generated
from aotcuda.builder.frontends.triton import compile_errors, gpu, source_function, type_notation
from aotcuda.builder.frontends.variants import Nan
from aotcuda.common import gpu_facts as versions
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.builder.cache.compile_cache import CompileCache
    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.builder.frontends.triton.type_notation import Value

WARP = 32
_LAST_FUSING = (3, 9)
"""The last version of Triton that fuses multiplications and additions by default."""


def triton_constant(value: Value, head: str = "a constant") -> Any:
    """Return a constexpr's value as an object of Triton or PyTorch: `tl.float32` becomes the type.

    Args:
        value: The value.
        head: The beginning of errors.

    Raises:
        CompileError: PyTorch has no such type.
    """
    import triton.language as tl  # noqa: PLC0415 (only workers have Triton)

    if isinstance(value, tuple):
        return tuple(triton_constant(item, head) for item in value)
    if isinstance(value, Nan):
        return float("nan")
    if not isinstance(value, str) or not value.startswith(type_notation.TYPE_PREFIXES):
        return value
    home, _, name = value.partition(".")
    module: Any = tl
    if home == "torch":
        try:
            module = importlib.import_module("torch")
        except ImportError:
            message = f"{head}: the constant {value} is a type of PyTorch, which the build lacks; install torch there"
            raise CompileError(message) from None
    if not hasattr(module, name):
        message = f"{head}: the constant {value} is no type of this release of {home}; record the kernel again"
        raise CompileError(message)
    return getattr(module, name)


@dataclass(frozen=True, slots=True)
class Code:
    """The PTX of a variant.

    Attributes:
        ptx: The text.
        metadata: Values of Triton's metadata that launches need.
        generated: The entry for the compile cache; None for code that is not stored.
    """

    ptx: str
    metadata: Any
    generated: Generated | None


class _CacheHit(BaseException):
    """End a compilation at Triton's IR; the argument is the code of the compile cache."""


CODE = tuple[str, dict[str, int | bool | list[int] | tuple[int, ...] | list[dict[str, int | bool | list[int]]] | None]]
"""The type of an entry of the compile cache: PTX and metadata."""


_METADATA = (
    *("shared", "num_warps", "num_ctas", "cluster_dims", "global_scratch_size", "profile_scratch_size"),
    *("global_scratch_align", "tensordesc_meta", "launch_cooperative_grid", "launch_pdl"),
)
"""Keys of Triton's metadata that launches need; some versions lack some keys."""


def compile_variant(unit: TritonUnit, function: Any, target: Target, root: str, cache: CompileCache | None) -> Code:
    """Return the PTX of a variant.

    Raises:
        CompileError: Triton refuses the variant.
    """
    import triton  # noqa: PLC0415 (only workers have Triton)
    from triton.compiler import ASTSource  # noqa: PLC0415

    constants = source_function.constants(unit, function)
    signature, attributes, values = {}, {}, {}
    types = iter(unit.types)
    for number, parameter in enumerate(function.params):
        kind = None if parameter.is_constexpr else next(types)
        if kind is None or kind.scalar == type_notation.NOTHING or kind.hint == 1:
            signature[parameter.name] = "constexpr"
            values[(number,)] = (
                triton_constant(constants[parameter.name], unit.head) if kind is None else None if kind.hint != 1 else 1
            )
            continue
        signature[parameter.name] = kind.plain
        if kind.hint:
            attributes[(number,)] = [["tt.divisibility", kind.hint]]
    triton_target = gpu_target(target)
    earlier_warnings = telemetry.warning_count()
    cache_key = cache.name("ptx") if cache is not None and not _is_inspected() else ""

    class Source(ASTSource):  # type: ignore[misc]  # Triton has no types
        """End the compilation at Triton's IR if the compile cache has the PTX for it."""

        name_in_cache = ""

        def make_ir(self, target: Any, options: Any, *more: Any) -> Any:
            module = super().make_ir(target, options, *more)
            if cache is not None and cache_key:
                name = hashing.digest(cache_key, str(module), str(target), options.hash())
                entry = cache.find_here(name, CODE)
                if entry is not None:
                    text, values = entry
                    raise _CacheHit(Code(text, SimpleNamespace(**values), Generated(name=name)))
                self.name_in_cache = name
            return module

    with (
        compile_errors.explain_errors(unit, function, target, root),
        _stop_at_ptx(),
        gpu.compiling(target, triton_target),
    ):
        source = Source(function, signature, values, attributes)
        try:
            triton.compile(source, target=triton_target, options=_options(unit))
        except _CacheHit as hit:
            return hit.args[0]  # type: ignore[no-any-return]
        except _Finished as finished:
            text, all_metadata = finished.args
    metadata = {name: all_metadata[name] for name in _METADATA if name in all_metadata}
    new_entry = None
    if source.name_in_cache and telemetry.warning_count() == earlier_warnings:  # a cached result would lose the warning
        new_entry = Generated(name=source.name_in_cache, value=(text, metadata))
    return Code(text, SimpleNamespace(**metadata), new_entry)


def _is_inspected() -> bool:
    """Return True if a source has registered functions that Triton runs between the stages of a compilation."""
    from triton import knobs  # noqa: PLC0415 (only workers have Triton)

    hooks = (getattr(knobs.runtime, "add_stages_inspection_hook", None), getattr(knobs.compilation, "listener", None))
    return any(hook is not None for hook in hooks) or bool(getattr(knobs.compilation, "instrumentation_mode", ""))


def warm_up() -> None:
    """Compile once for each of Triton's assemblers: the first compilation of a process takes ten times as long."""
    import triton  # noqa: PLC0415 (only workers have Triton)
    from triton.compiler import ASTSource  # noqa: PLC0415

    from aotcuda.builder.frontends.triton.small_kernel import small_kernel  # noqa: PLC0415 (it imports Triton)

    source = ASTSource(small_kernel, {"x": "*fp32", "n": "i32", "block": "constexpr"}, {(2,): 64}, {})
    for capability in ((8, 0), (10, 0)):
        with _stop_at_ptx(), contextlib.suppress(_Finished):
            triton.compile(source, target=gpu_target(Target("sass", *capability)), options=_fma_option())


def _options(unit: TritonUnit) -> dict[str, object]:
    registers = unit.maxnreg or unit.options.max_registers
    return {
        "num_warps": unit.num_warps,
        "num_stages": unit.num_stages,
        "num_ctas": unit.num_ctas,
        **({"maxnreg": registers} if registers else {}),
        **_fma_option(unit.options.fma if unit.enable_fp_fusion is None else unit.enable_fp_fusion),
        **({"launch_pdl": True} if unit.launch_pdl else {}),
        **({"launch_cooperative_grid": True} if unit.launch_cooperative_grid else {}),
    }


def _fma_option(fma: bool | None = None) -> dict[str, object]:
    """Return Triton's option for `fma`. Triton 3.9 warns if it is missing, because 3.10 has another default."""
    import triton  # noqa: PLC0415 (only workers have Triton)

    if fma is not None:
        return {"enable_fp_fusion": fma}
    return {"enable_fp_fusion": release(triton.__version__) <= _LAST_FUSING}


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return versions.pair(".".join(version.split(".")[:2]))


def gpu_target(target: Target) -> Any:
    """Return the `GPUTarget` of Triton for a target."""
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 (only workers have Triton)

    return GPUTarget("cuda", target.major * 10 + target.minor, WARP)


class _NoCache:
    """A cache that stores nothing. It replaces Triton's cache, which writes the result of each stage."""

    def __init__(self, key: str) -> None:
        del key

    def get_group(self, filename: str) -> None:
        """Implement CacheManager.get_group."""
        del filename

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        """Implement CacheManager.put."""
        del data, binary
        return filename


class _Finished(BaseException):
    """End a compilation at PTX; the arguments are the text and Triton's metadata."""


@contextlib.contextmanager
def _stop_at_ptx() -> Iterator[None]:
    """End Triton's compilations in this block at PTX: `assemble` makes machine code of all variants at once."""
    from triton import knobs  # noqa: PLC0415 (only workers have Triton)
    from triton.backends.nvidia.compiler import CUDABackend  # noqa: PLC0415

    def finish(_: object, text: str, metadata: dict[str, Any], *__: object) -> None:
        raise _Finished(text, metadata)

    original = CUDABackend.make_cubin
    CUDABackend.make_cubin = finish
    try:
        with knobs.cache.scope():
            knobs.cache.manager_class = _NoCache
            yield
    finally:
        CUDABackend.make_cubin = original


def assemble(module: str, text: str, target: Target, fma: bool | None) -> tuple[bytes, tuple[int, int]]:
    """Return the machine code of a PTX text by Triton's last stage, and the CUDA version of the assembler.

    Raises:
        CompileError: The assembler refuses the text.
    """
    from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415 (only workers have Triton)
    from triton.compiler import make_backend  # noqa: PLC0415
    from triton.compiler.compiler import Language  # noqa: PLC0415

    gpu = gpu_target(target)
    backend = make_backend(gpu)
    stages: dict[str, Any] = {}
    options = backend.parse_options(_fma_option(fma))
    backend.add_stages(stages, options, Language.TRITON)
    try:
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):  # noqa: PTH123 (it prints the PTX)
            data: bytes = stages["cubin"](text, {})
    except Exception as error:
        head = f"{module}: Triton's assembler refuses the kernels for {target}"
        raise CompileError(error_table.explain(head, str(error))) from error
    return data, versions.pair(get_ptxas(gpu.arch).version)
