"""Define the base classes of packaged kernels: Triton's classes, or light classes if Triton is not installed."""

from __future__ import annotations

import warnings
from collections import namedtuple
from importlib import import_module
from types import SimpleNamespace

from . import without_triton

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _import_triton() -> Any:
    try:
        return import_module("triton")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return None


triton: Any = _import_triton()
is_installed = triton is not None
if is_installed:
    Autotuner: Any = triton.runtime.autotuner.Autotuner
    Heuristics: Any = triton.runtime.autotuner.Heuristics
    CompiledKernel: Any = triton.compiler.compiler.CompiledKernel
    JITFunction: Any = triton.runtime.jit.JITFunction
    runtime: Any = triton.knobs.runtime
    mock_tensor: Any = triton.runtime.jit.MockTensor.wrap_dtype
else:
    triton, runtime = without_triton.package(), without_triton.RUNTIME
    mock_tensor = without_triton.MockTensor.wrap_dtype
    Autotuner, Heuristics = without_triton.Autotuner, without_triton.Heuristics
    JITFunction, CompiledKernel = without_triton.JITFunction, without_triton.CompiledKernel


def asm(code: dict[str, Any]) -> dict[str, Any]:
    """Return code by kind, as `CompiledKernel.asm` of Triton, which disassembles machine code on request."""
    return triton.compiler.compiler.AsmDict(code) if is_installed else code


def source(function: Any, signature: dict[str, str], constants: dict[Any, Any], attributes: dict[Any, Any]) -> Any:
    """Return Triton's object for a source with types and constants."""
    if not is_installed:
        return SimpleNamespace(fn=function, signature=signature, constants=constants, attrs=attributes)
    return triton.compiler.ASTSource(function, signature, constants, attributes)


def constant(value: Any) -> Any:
    """Return a constant of a manifest as launches pass it: "tl.float16" is the type."""
    if isinstance(value, list):
        return tuple(map(constant, value))
    if isinstance(value, str) and value.startswith("tl."):
        return getattr(triton.language, value.removeprefix("tl."), value)
    return value


def constexprs(function: Any) -> set[str]:
    """Return the names of a function's parameters that are constexprs."""
    if is_installed:
        return {parameter.name for parameter in function.params if parameter.is_constexpr}
    return {name for name, kind in function.fn.__annotations__.items() if "constexpr" in str(kind)}


def with_tensors(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a warm-up with stand-ins for tensors, but with dtypes for constexprs, as launches have.

    Triton's `warmup` puts each positional dtype into a `MockTensor`, and dtypes that are passed by name into none.
    """
    constants = constexprs(function)
    positions = [*function.arg_names, *[""] * (len(args) - len(function.arg_names))]

    def given(name: str, value: Any) -> Any:
        if name not in constants:
            return mock_tensor(value)
        return value.dtype if type(value).__name__ == "MockTensor" else value

    return tuple(map(given, positions, args)), {name: given(name, value) for name, value in named.items()}


def options(capability: tuple[int, int], given: dict[str, Any]) -> dict[str, Any]:
    """Return the target and all options of a compilation for a GPU, by name."""
    if not is_installed:
        return given
    target = triton.backends.compiler.GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    backend = triton.compiler.make_backend(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton warns of its own defaults, which are those of the build
        parsed = backend.parse_options({name: value for name, value in given.items() if value is not None})
    return {"target": target, **vars(parsed)}


def default_option(name: str) -> Any:
    """Return the default of an option."""
    return options((9, 0), {}).get(name)


def metadata(facts: dict[str, Any]) -> Any:
    """Return facts as a named tuple with sorted names, as `CompiledKernel.metadata` of Triton."""
    return namedtuple("KernelMetadata", sorted(facts))(**facts)  # noqa: PYI024 (Triton's form)


def pack_metadata(facts: Any) -> Any:
    """Return the facts that Triton's launches get; None if Triton is not installed."""
    return triton.compiler.make_backend(facts.target).pack_metadata(facts) if is_installed else None
