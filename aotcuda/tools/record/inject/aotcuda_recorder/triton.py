"""Record Triton's launches, which go through `JITFunction.run`, and the choices of autotuners, through `Autotuner.run`.

Without a GPU, Triton's interpreter (`TRITON_INTERPRET=1`) runs kernels on the processor. The function that Triton's
launches call then gives the types and hints for which the kernels would be compiled. Autotuners time nothing there, and
use their first config.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import threading

from aotcuda_recorder import dry, functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

FRONT_END = "triton"
_DIVISOR = 16
_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
_OPTIONAL = ("maxnreg", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid")
"""Options that are recorded if a launch gives them."""

_DEEPEST = 16
_now = threading.local()
"""`tuner`: the autotuner of the current launch; `is_timing`: True while it times its configs."""


def patch(module: ModuleType) -> None:
    """Patch `triton.runtime.jit`, `triton.runtime.autotuner` or `triton.runtime.interpreter`."""
    name = module.__name__.rpartition(".")[2]
    if name == "jit":
        function: Any = module.__dict__["JITFunction"]
        function.run = _running(function.run)
    elif name == "autotuner":
        tuner: Any = module.__dict__["Autotuner"]
        tuner._bench = _timing(tuner._bench)
        tuner.run = _tuning(tuner.run)
    else:
        interpreted: Any = module.__dict__["InterpretedFunction"]
        interpreted.run = _interpreting(interpreted.run)


def _running(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        kernel = run(self, *args, **named)
        if kernel is not None and not named.get("warmup") and not getattr(_now, "is_timing", False):
            try:
                gpu = kernel.metadata.target.arch if dry.target() is None else dry.LABEL
                _count(self, *_compiled(self, kernel), _options(named), gpu)
                dry.launched_arrays((*args, *named.values()))
            except Exception:  # noqa: BLE001 (a failure to record must not stop the command)
                log.failed("a launch cannot be recorded")
        return kernel

    return recorded


def _interpreting(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        result = run(self, *args, **named)
        if not named.get("warmup") and not getattr(_now, "is_timing", False):
            try:
                given = {name: value for name, value in named.items() if name not in ("grid", "warmup")}
                _count(self, *_specialised(self, args, given), _options(named), "Triton's interpreter")
            except Exception:  # noqa: BLE001 (as above)
                log.failed("a launch cannot be recorded")
        return result

    return recorded


def _timing(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def quietly(self: Any, *args: Any, **named: Any) -> Any:
        if _is_interpreted():
            return [0.0, 0.0, 0.0]
        if dry.target() is not None:  # each config is launched once, and recorded
            return bench(self, *args, **named)
        _now.is_timing = True
        try:
            return bench(self, *args, **named)
        finally:
            _now.is_timing = False

    return quietly


def _is_interpreted() -> bool:
    knobs: Any = sys.modules.get("triton.knobs")
    return bool(knobs.runtime.interpret) if knobs is not None else False


def _tuning(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        before = getattr(_now, "tuner", None)
        given = dict(zip(self.arg_names, args)) | named  # noqa: B905 (constants follow by name)
        _now.tuner = self, given
        try:
            result = run(self, *args, **named)
        finally:
            _now.tuner = before
        if not named.get("warmup") and not _is_interpreted() and dry.target() is None:
            try:
                _count_choice(self, given)
            except Exception:  # noqa: BLE001 (as above)
                log.failed("an autotuner's choice cannot be recorded")
        return result

    return recorded


def _options(named: dict[str, Any]) -> dict[str, object]:
    """Return the options of the launch; those of the compiled kernel may differ by warp specialisation."""
    found: dict[str, object] = {name: named.get(name, default) for name, default in _DEFAULTS.items()}
    return found | {name: named[name] for name in _OPTIONAL if named.get(name) is not None}


def _count_choice(tuner: Any, given: dict[str, Any]) -> None:
    """Count a launch with the config that an autotuner chose, by Triton's key of the autotuner."""
    if len(tuner.configs) < 2:
        return
    arguments = {name: value for name, value in given.items() if name in tuner.arg_names}
    key = [_plain(arguments[name]) for name in tuner.keys if name in arguments]
    key += [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    python, kernel = tuner.base_fn, tuner.fn
    while kernel.fn is not python:
        kernel = kernel.fn
    config = {
        name: value for name, value in tuner.best_config.all_kwargs().items() if name not in tuner.best_config.kwargs
    }
    chosen = {"kwargs": {name: _plain(value) for name, value in tuner.best_config.kwargs.items()}, **config}
    facts = {
        "frontend": FRONT_END,
        "kind": "choice",
        **functions.describe(python),
        **_place(kernel)[0],
        "keys": list(tuner.keys),
        "key": key,
        "config": chosen,
    }
    active = sys.modules["triton.runtime.driver"].__dict__["driver"].active
    device = active.get_current_device()
    entry = log.entry(facts, dict)
    entry.count(device, lambda: f"{_gpu_name(device)}, compute capability {active.get_current_target().arch / 10:.1f}")


def _plain(value: object) -> object:
    """Return a part of an autotuner's key or config in the form of tuning files."""
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def _gpu_name(device: int) -> str:
    """Return the driver's name of a GPU, `NVIDIA H100 80GB HBM3`."""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # Triton runs on a driver of another kind
        return "a GPU"
    driver.cuDeviceGet(ctypes.byref(handle), device)
    driver.cuDeviceGetName(name, 256, handle)
    return name.value.decode()


def _compiled(function: Any, kernel: Any) -> tuple[list[Any], dict[str, object]]:
    """Return the types and constants for which a launch was compiled."""
    source = kernel.src
    places = {key[0] if isinstance(key, tuple) else key: value for key, value in source.constants.items()}
    divisible = {
        key[0] if isinstance(key, tuple) else key
        for key, found in source.attrs.items()
        if any(name == "tt.divisibility" and value == _DIVISOR for name, value in found)
    }
    types: list[Any] = []
    constants: dict[str, object] = {}
    for number, parameter in enumerate(function.params):
        kind = source.signature[parameter.name]
        value = places.get(number, places.get(parameter.name))
        if parameter.is_constexpr:
            constants[parameter.name] = value
        else:
            types.append(_type(kind, value, divisible=number in divisible))
    return types, constants


def _specialised(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, object]]:
    """Return types and constants of a launch by the interpreter."""
    params, bind = _binder(function)
    bound, specialisation, _ = bind(*args, **named)
    types: list[Any] = []
    constants: dict[str, object] = {}
    for parameter, (kind, hint, *_) in zip(params, specialisation):  # noqa: B905 (as many)
        value = bound[parameter.name]
        if parameter.is_constexpr:
            constants[parameter.name] = value
        else:
            types.append(_type(kind, value if kind == "constexpr" else None, divisible=hint == "D"))
    return types, constants


@functools.cache
def _binder(function: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the parameters of an interpreted function, and the binder of launch arguments."""
    jit: Any = sys.modules["triton.runtime.jit"]
    backend = sys.modules["triton.backends.compiler"].__dict__["BaseBackend"]
    options = ("do_not_specialize", "do_not_specialize_on_alignment")
    whole = jit.JITFunction(function.fn, **{name: function.kwargs.get(name) for name in options})
    return whole.params, jit.create_function_from_signature(whole.signature, whole.params, backend)


def _type(kind: Any, value: object, *, divisible: bool) -> Any:
    """Return a type in the notation of tables: `*fp32:16`, `i32:1`, `none`; None for a tuple."""
    if not isinstance(kind, str):
        return None
    if kind == "constexpr":
        return "none" if value is None else "i32:1"
    return f"{kind}:{_DIVISOR}" if divisible else kind


def _constant(value: Any) -> tuple[object, str]:
    """Return a constexpr in the notation of variants files, and a reason if it has no notation."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or type(value) in (bool, int, str):
        return value, ""
    if type(value) is float:
        return value, "" if math.isfinite(value) else "a number that is not finite"
    language: Any = sys.modules["triton.language"]
    if isinstance(value, language.dtype):
        names = (name for name, item in vars(language).items() if isinstance(item, language.dtype) and item == value)
        name = next(names, None)
        return ({"dtype": name}, "") if name else (str(value), "a type that is not Triton's own")
    kinds = "a tuple" if isinstance(value, tuple) else f"of type {type(value).__name__}"
    what = "a function" if hasattr(value, "fn") or callable(value) else kinds
    return f"<{what}>", what


def _refused(params: Any, types: list[Any], problems: dict[str, str]) -> str:
    """Return the problem and the remedy for an argument that no packaged kernel accepts; empty if there is none."""
    plain = [parameter.name for parameter in params if not parameter.is_constexpr]
    tuples = [name for name, kind in zip(plain, types) if kind is None]  # noqa: B905 (as many)
    if tuples:
        return f"{tuples[0]} is a tuple; pass its parts"
    for name, problem in problems.items():
        return (
            f"{name} is {problem}, and a packaged constexpr is a number, a bool, a string, None or one of Triton's "
            "types; write a kernel that has it fixed"
        )
    return ""


_places: dict[int, tuple[dict[str, object], str, tuple[str, ...], object]] = {}
"""Results of `_place` by id of the kernel, with the kernel, so that no other object gets its id."""


def _place(kernel: Any) -> tuple[dict[str, object], str, tuple[str, ...], object]:
    """Return the path to a kernel's function, the path below all heuristics, and the constants that they compute.

    One function may have several kernels, each with other heuristics.
    """
    if id(kernel) not in _places:
        python = kernel.fn
        found = functions.reach(python, kernel)
        value: Any = sys.modules.get(python.__module__)
        for name in str(found.get("path") or "").split("."):
            value = getattr(value, name, None)
        computed: list[str] = []
        depth, deepest = 0, 0
        while value is not None and value is not python and depth < _DEEPEST:
            depth += 1
            if type(value).__name__ == "Heuristics":
                computed += value.values
                deepest = depth
            value = getattr(value, "fn", None)
        _places[id(kernel)] = found, ".fn" * deepest, tuple(dict.fromkeys(computed)), kernel
    return _places[id(kernel)]


def _count(function: Any, types: list[Any], given: dict[str, object], options: dict[str, object], gpu: object) -> None:
    python = function.fn
    params = function.params if hasattr(function, "params") else _binder(function)[0]
    read = {name: _constant(value) for name, value in given.items()}
    constants = {name: value for name, (value, _) in read.items()}
    refused = _refused(params, types, {name: problem for name, (_, problem) in read.items() if problem})
    tuned: dict[str, object] = {}
    if (tuner := getattr(_now, "tuner", None)) is not None:
        chooser, named = tuner
        integers = {name: named[name] for name in chooser.keys if type(named.get(name)) is int}
        when = {name: value for name, value in integers.items() if name not in constants}
        tuned = {"chosen": sorted(chooser.best_config.kwargs), "when": when}
    types = ["tuple" if kind is None else kind for kind in types]
    shown = [f"{name}={_shown(value)}" for name, value in {**constants, **options}.items()]
    place, below, computed, _ = _place(function)
    if computed:
        place, tuned = {"path": f"{place['path']}{below}"}, {**tuned, "computed": [*computed]}
    facts = {
        "frontend": FRONT_END,
        "kind": "kernel",
        **functions.describe(python),
        **place,
        "signature": f"void({', '.join(types)}; {', '.join(shown)})",
        "options": {
            "parameters": [parameter.name for parameter in params],
            "types": types,
            "constants": constants,
            **options,
            **tuned,
        },
        **({"types_refused": refused} if refused else {}),
    }
    entry = log.entry(facts, lambda: {"site": functions.site()})
    entry.count(gpu, lambda: f"compute capability {gpu / 10:.1f}" if isinstance(gpu, int) else str(gpu))


def _shown(value: object) -> str:
    return f"tl.{value['dtype']}" if isinstance(value, dict) else repr(value)
