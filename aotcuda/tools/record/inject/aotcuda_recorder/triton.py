"""Record launches and warm-ups of Triton, by `JITFunction.run`, and the choices of autotuners, by `Autotuner.run`."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import threading
from typing import Any, NamedTuple

from aotcuda_recorder import dry, functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FRONT_END = "triton"
_DIVISOR = 16
_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
_OPTIONAL = ("maxnreg", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid")
"""Options that are recorded if a launch gives them."""

_DEEPEST = 16
_now = threading.local()
"""`tuner`: the autotuner of the current launch; `is_timing`: True while it times its configs."""


def patch(module: ModuleType) -> None:
    """Patch `triton.runtime.jit` or `triton.runtime.autotuner`."""
    name = module.__name__.rpartition(".")[2]
    if name == "jit":
        function: Any = module.__dict__["JITFunction"]
        function.run = _wrap_run(function.run)
    else:
        tuner: Any = module.__dict__["Autotuner"]
        tuner._bench = _wrap_bench(tuner._bench)
        tuner.run = _wrap_tuner_run(tuner.run)
        tuner.warmup = _wrap_tuner_warmup(tuner.warmup)


def _wrap_run(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        kernel = run(self, *args, **named)
        if kernel is not None and not getattr(_now, "is_timing", False):
            with log.guard("a launch cannot be recorded"):
                gpu = kernel.metadata.target.arch if dry.target() is None else dry.LABEL
                types, constants = _compiled(self, kernel)
                _count(self, types, constants, _options(named), gpu)
                arguments = dict(zip(self.arg_names, args)) | named  # noqa: B905 (constants follow by name)
                _note_integers(self, arguments, constants)
                dry.mark_arrays_written((*args, *named.values()))
        return kernel

    return recorded


def _wrap_bench(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        if dry.target() is not None:  # each config is launched once, and recorded
            return bench(self, *args, **named)
        _now.is_timing = True
        try:
            return bench(self, *args, **named)
        finally:
            _now.is_timing = False

    return recorded


def _wrap_tuner_run(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        before = getattr(_now, "tuner", None)
        arguments = dict(zip(self.arg_names, args)) | named  # noqa: B905 (constants follow by name)
        _now.tuner = self
        earlier = getattr(self, "configs_timings", None)
        try:
            result = run(self, *args, **named)
        finally:
            _now.tuner = before
        if not named.get("warmup") and dry.target() is None:
            with log.guard("an autotuner's choice cannot be recorded"):
                timings = getattr(self, "configs_timings", None)
                _count_choice(self, arguments, timings if timings is not earlier else None)
        return result

    return recorded


def _wrap_tuner_warmup(warmup: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(warmup)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        before = getattr(_now, "tuner", None)
        _now.tuner = self
        try:
            return warmup(self, *args, **named)
        finally:
            _now.tuner = before

    return recorded


def _options(named: dict[str, Any]) -> dict[str, object]:
    """Return the options of the launch; those of the compiled kernel may differ by warp specialisation."""
    options: dict[str, object] = {name: named.get(name, default) for name, default in _DEFAULTS.items()}
    return options | {name: named[name] for name in _OPTIONAL if named.get(name) is not None}


def _count_choice(tuner: Any, named: dict[str, Any], timings: dict[Any, Any] | None) -> None:
    """Count a launch with the config that an autotuner chose, by Triton's key of the autotuner.

    `timings` are the times of the pruned configs, if this launch has timed them.
    """
    if len(tuner.configs) < 2:
        return
    arguments = {name: value for name, value in named.items() if name in tuner.arg_names}
    key = [_plain(arguments[name]) for name in tuner.keys if name in arguments]
    key += [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    python, kernel = tuner.base_fn, tuner.fn
    while kernel.fn is not python:
        kernel = kernel.fn
    is_plain = all(named[name] is None or type(named[name]) in _PLAIN for name in tuner.keys if name in arguments)
    rows = [[_config(config), list(times)] for config, times in (timings or {}).items()] if is_plain else []
    facts = {
        "frontend": FRONT_END,
        "kind": "choice",
        **functions.describe(python),
        **_place(kernel).facts,
        "keys": list(tuner.keys),
        "key": key,
        "config": _config(tuner.best_config),
    }
    active = sys.modules["triton.runtime.driver"].__dict__["driver"].active
    device = active.get_current_device()
    entry = log.entry(facts, lambda: {"timings": rows} if rows else {})
    entry.count(device, lambda: f"{_gpu_name(device)}, compute capability {active.get_current_target().arch / 10:.1f}")


_PLAIN = (bool, int, float, str)


def _config(config: Any) -> dict[str, object]:
    """Return a config in the form of tuning files."""
    options = {name: value for name, value in config.all_kwargs().items() if name not in config.kwargs}
    return {"kwargs": {name: _plain(value) for name, value in config.kwargs.items()}, **options}


def _plain(value: object) -> object:
    """Return a part of an autotuner's key or config in the form of tuning files."""
    return value if value is None or type(value) in _PLAIN else str(value)


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
        for key, attributes in source.attrs.items()
        if any(name == "tt.divisibility" and value == _DIVISOR for name, value in attributes)
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


def _type(kind: Any, value: object, *, divisible: bool) -> Any:
    """Return a type in the notation of tables: `*fp32:16`, `i32:1`, `none`; None for a tuple."""
    if not isinstance(kind, str):
        return None
    if kind == "constexpr":
        return "none" if value is None else "i32:1"
    return f"{kind}:{_DIVISOR}" if divisible else kind


def _constant(value: Any) -> tuple[object, str]:
    """Return a constexpr in the notation of variants files, and a reason if it has no notation.

    An object of a subclass of a number or a string is its plain value, as in the code that Triton compiles.
    """
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or isinstance(value, bool):
        return value, ""
    if isinstance(value, int):
        return int(value), ""
    if isinstance(value, str):
        return str.__str__(value), ""
    if isinstance(value, float):
        number = float(value)
        return (number if math.isfinite(number) else {"float": repr(number)}), ""
    language: Any = sys.modules["triton.language"]
    if isinstance(value, language.dtype):
        names = (name for name, item in vars(language).items() if isinstance(item, language.dtype) and item == value)
        name = next(names, None)
        return ({"dtype": name}, "") if name else (str(value), "a type that is not Triton's own")
    if (type(value).__module__, type(value).__name__) == ("torch", "dtype"):
        return {"torch": str(value).partition(".")[2]}, ""
    if isinstance(value, tuple):
        items = [_constant(item) for item in value]
        return [item for item, _ in items], next((f"a tuple with {reason}" for _, reason in items if reason), "")
    kind = "a function" if hasattr(value, "fn") or callable(value) else f"of type {type(value).__name__}"
    return f"<{kind}>", kind


def _refusal(params: Any, types: list[Any], problems: dict[str, str]) -> str:
    """Return the problem and the remedy for an argument that no packaged kernel accepts; empty if there is none."""
    plain = [parameter.name for parameter in params if not parameter.is_constexpr]
    tuples = [name for name, kind in zip(plain, types) if kind is None]  # noqa: B905 (equal lengths; strict= came with Python 3.10)
    if tuples:
        return f"{tuples[0]} is a tuple; pass its parts"
    for name, problem in problems.items():
        return (
            f"{name} is {problem}, and a packaged constexpr is a number, a bool, a string, None, a type of Triton or "
            "PyTorch, or a tuple of these; write a kernel that has it fixed"
        )
    return ""


class _Place(NamedTuple):
    """The place of a kernel in its module.

    Attributes:
        facts: `path` or `behind` of the kernel's function.
        suffix: The path from there to the kernel below all heuristics: `.fn.fn`.
        computed: The constants that heuristics compute.
        kernel: The kernel. The reference prevents that another object gets its id.
    """

    facts: dict[str, object]
    suffix: str
    computed: list[str]
    kernel: object


_places: dict[int, _Place] = {}
"""The place of each kernel, by its id."""


def _place(kernel: Any) -> _Place:
    """Return the place of a kernel. One function may have several kernels, each with other heuristics."""
    if id(kernel) not in _places:
        python = kernel.fn
        facts = functions.find_path(python, kernel)
        path = str(facts.get("path") or "")
        value: Any = functions.at_path(sys.modules.get(python.__module__), path) if path else None
        computed: list[str] = []
        depth, deepest = 0, 0
        while value is not None and value is not python and depth < _DEEPEST:
            depth += 1
            if type(value).__name__ == "Heuristics":
                computed += value.values
                deepest = depth
            value = getattr(value, "fn", None)
        _places[id(kernel)] = _Place(facts, ".fn" * deepest, [*dict.fromkeys(computed)], kernel)
    return _places[id(kernel)]


def _count(
    function: Any,
    types: list[Any],
    constexprs: dict[str, object],
    options: dict[str, object],
    gpu: object,
) -> None:
    """Count a launch of a kernel with types, values of constexprs and options."""
    python = function.fn
    params = function.params
    notations = {name: _constant(value) for name, value in constexprs.items()}
    constants = {name: value for name, (value, _) in notations.items()}
    refusal = _refusal(params, types, {name: problem for name, (_, problem) in notations.items() if problem})
    tuned: dict[str, object] = {}
    if (tuner := getattr(_now, "tuner", None)) is not None:
        tuned = {"chosen": sorted({name for config in tuner.configs for name in config.kwargs})}
    types = ["tuple" if kind is None else kind for kind in types]
    values = [f"{name}={_text(value)}" for name, value in {**constants, **options}.items()]
    place = _place(function)
    path = place.facts
    if place.computed:
        path = {"path": f"{path['path']}{place.suffix}"}
        tuned = {**tuned, "computed": place.computed}
    facts = {
        "frontend": FRONT_END,
        "kind": "kernel",
        **functions.describe(python),
        **path,
        "signature": f"void({', '.join(types)}; {', '.join(values)})",
        "options": {
            "parameters": [parameter.name for parameter in params],
            "types": types,
            "constants": constants,
            **options,
            **tuned,
        },
        **({"types_refused": refusal} if refusal else {}),
    }
    entry = log.entry(facts, lambda: {"site": functions.site()})
    entry.count(gpu, lambda: f"compute capability {gpu / 10:.1f}" if isinstance(gpu, int) else str(gpu))


_MOST_INTEGERS = 2000
"""The most different integers of launches of one kernel that a process writes."""

_noted: dict[int, int] = {}
"""The number of launches with new integers, by the kernel's id."""


def _note_integers(function: Any, arguments: dict[str, Any], constexprs: dict[str, object]) -> None:
    """Write the integers of a launch once, and the constexprs that equal a size or stride of an array."""
    number = _noted.setdefault(id(function), 0)
    if number >= _MOST_INTEGERS:
        return
    extents: set[int] = set()
    for value in arguments.values():
        shape, stride = getattr(value, "shape", None), getattr(value, "stride", None)
        if isinstance(shape, (tuple, list)):
            extents.update(each for each in shape if isinstance(each, int))
            extents.update(each for each in (stride() if callable(stride) else ()) if isinstance(each, int))
    extents -= {0, 1}
    place = _place(function)
    plain = [parameter.name for parameter in function.params if not parameter.is_constexpr]
    values = {name: arguments[name] for name in plain if type(arguments.get(name)) is int}
    facts = {
        "kind": "integers",
        "module": function.fn.__module__,
        "function": function.fn.__qualname__,
        "path": f"{place.facts.get('path')}{place.suffix if place.computed else ''}",
        "names": [*values],
        "values": [*values.values()],
        "equal": sorted(name for name, value in constexprs.items() if type(value) is int and value in extents),
    }
    if log.write_once(facts):
        _noted[id(function)] = number + 1


def _text(value: object) -> str:
    """Return a constant for the signature that reports show."""
    if not isinstance(value, dict):
        return repr(value)
    ((kind, name),) = value.items()
    return {"dtype": "tl.", "torch": "torch."}.get(kind, "") + str(name)
