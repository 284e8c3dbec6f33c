"""Records what Triton launches: all goes through `JITFunction.run`, what is autotuned through `Autotuner.run` before.

Without a GPU, Triton's interpreter (`TRITON_INTERPRET=1`) runs kernels on the processor; what they would have been
compiled for is told by the function that Triton's own launches ask.
"""

from __future__ import annotations

import functools
import sys
import threading

from aotcuda_recorder import functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

FRONT_END = "triton"
_DIVISOR = 16
_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
_now = threading.local()
"""`tuner`: the autotuner whose launch is under way; `trying`: it is timing its configs."""


def patch(module: ModuleType) -> None:
    """Patch `triton.runtime.jit`, `triton.runtime.autotuner` or `triton.runtime.interpreter`."""
    name = module.__name__.rpartition(".")[2]
    if name == "jit":
        function: Any = module.__dict__["JITFunction"]
        function.run = _running(function.run)
    elif name == "autotuner":
        tuner: Any = module.__dict__["Autotuner"]
        tuner._bench = _trying(tuner._bench)
        tuner.run = _tuning(tuner.run)
    else:
        interpreted: Any = module.__dict__["InterpretedFunction"]
        interpreted.run = _interpreting(interpreted.run)


def _running(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        kernel = run(self, *args, **named)
        if kernel is not None and not named.get("warmup") and not getattr(_now, "trying", False):
            try:
                _count(self, *_compiled(self, kernel), _options(named), kernel.metadata.target.arch)
            except Exception:  # noqa: BLE001 (the command goes on whatever becomes of its record)
                log.failed("a launch cannot be recorded")
        return kernel

    return recorded


def _interpreting(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        result = run(self, *args, **named)
        if not named.get("warmup") and not getattr(_now, "trying", False):
            try:
                given = {name: value for name, value in named.items() if name not in ("grid", "warmup")}
                _count(self, *_specialised(self, args, given), _options(named), "Triton's interpreter")
            except Exception:  # noqa: BLE001 (as above)
                log.failed("a launch cannot be recorded")
        return result

    return recorded


def _trying(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def quietly(self: Any, *args: Any, **named: Any) -> Any:
        _now.trying = True
        try:
            return bench(self, *args, **named)
        finally:
            _now.trying = False

    return quietly


def _tuning(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def noted(self: Any, *args: Any, **named: Any) -> Any:
        before = getattr(_now, "tuner", None)
        _now.tuner = self, dict(zip(self.arg_names, args)) | named  # noqa: B905 (constants follow by name)
        try:
            return run(self, *args, **named)
        finally:
            _now.tuner = before

    return noted


def _options(named: dict[str, Any]) -> dict[str, int]:
    """The options of a launch, as it gave them: in what was compiled, warp specialisation has changed some."""
    return {name: named.get(name, default) for name, default in _DEFAULTS.items()}


def _compiled(function: Any, kernel: Any) -> tuple[list[str], dict[str, object]]:
    """Types and constants that a launch was compiled for."""
    source = kernel.src
    places = {key[0] if isinstance(key, tuple) else key: value for key, value in source.constants.items()}
    divisible = {
        key[0] if isinstance(key, tuple) else key
        for key, found in source.attrs.items()
        if any(name == "tt.divisibility" and value == _DIVISOR for name, value in found)
    }
    types: list[str] = []
    constants: dict[str, object] = {}
    for number, parameter in enumerate(function.params):
        kind = source.signature[parameter.name]
        value = places.get(number, places.get(parameter.name))
        if parameter.is_constexpr:
            constants[parameter.name] = value
        else:
            types.append(_type(kind, value, divisible=number in divisible))
    return types, constants


def _specialised(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[str], dict[str, object]]:
    """The same of a launch by the interpreter, as a GPU's would have it."""
    jit: Any = sys.modules["triton.runtime.jit"]
    backend = sys.modules["triton.backends.compiler"].__dict__["BaseBackend"]
    whole = jit.JITFunction(function.fn)
    bound = whole.signature.bind(*args, **{name: value for name, value in named.items() if name in whole.arg_names})
    bound.apply_defaults()
    types: list[str] = []
    constants: dict[str, object] = {}
    for parameter in whole.params:
        value = bound.arguments[parameter.name]
        if parameter.is_constexpr:
            constants[parameter.name] = value
            continue
        kind, hint, *_ = jit.native_specialize_impl(backend, value, parameter.is_const, True, True)
        types.append(_type(kind, value if kind == "constexpr" else None, divisible=hint == "D"))
    return types, constants


def _type(kind: str, value: object, *, divisible: bool) -> str:
    """A type of the table: `*fp32:16`, `i32:1`, `none`."""
    if kind == "constexpr":
        return "none" if value is None else "i32:1"
    return f"{kind}:{_DIVISOR}" if divisible else kind


def _count(function: Any, types: list[str], constants: dict[str, object], options: dict[str, int], gpu: object) -> None:
    python = function.fn
    tuned: dict[str, object] = {}
    if (tuner := getattr(_now, "tuner", None)) is not None:
        chooser, named = tuner
        integers = {name: named.get(name) for name in chooser.keys if type(named.get(name)) is int}
        tuned = {"chosen": sorted(chooser.best_config.kwargs), "when": integers}
    constants = {name: getattr(value, "value", value) for name, value in constants.items()}
    shown = [f"{name}={value!r}" for name, value in {**constants, **options}.items()]
    entry = log.entry(
        {
            "frontend": FRONT_END,
            "kind": "kernel",
            **functions.describe(python),
            "signature": f"void({', '.join(types)}; {', '.join(shown)})",
            "options": {"types": types, "constants": constants, **options, **tuned},
        },
        lambda: {**functions.reach(python), "site": functions.site()},
    )
    entry.count(gpu, lambda: f"compute capability {gpu / 10:.1f}" if isinstance(gpu, int) else str(gpu))
