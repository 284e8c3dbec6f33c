"""Describe a Python function: its place, the attributes that lead to it, and reasons against packaging it."""

from __future__ import annotations

import functools
import json
import re
import sys

from aotcuda_recorder import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FunctionType
    from typing import Any

    from aotcuda_recorder.log import Facts

_MAIN = ("__main__", "__mp_main__")  # multiprocessing uses the second name in spawned children
_REFERENCES = ("py_func", "python_func", "__wrapped__", "fn", "func")
"""The attributes in which objects of decorators store the function."""

_INTERNAL = (
    "numba.", "numba_cuda.", "numba_cuda_mlir.", "aotcuda_recorder.", "aotcuda.", "triton.", "functools.",
    "contextlib.", "cupy.", "cupyx.", "torch.",
)  # fmt: skip
"""The beginnings of names of modules in which no launch is written."""


def describe(function: FunctionType) -> Facts:
    """Return module, qualified name, file and line of a function, and as `refused` a reason against packaging it."""
    problem = _problem(function)
    return {
        "module": module_name(function),
        "function": function.__qualname__,
        "file": function.__code__.co_filename,
        "line": function.__code__.co_firstlineno,
        **({"refused": problem} if problem else {}),
    }


def module_name(function: FunctionType) -> str:
    """Return the import name of the function's module, also for a module that `python -m` runs."""
    name = function.__module__
    if name not in _MAIN:
        return name
    spec = getattr(sys.modules.get(name), "__spec__", None)
    import_name: str = getattr(spec, "name", None) or name
    return name if import_name.rpartition(".")[2] in _MAIN else import_name


def find_path(function: FunctionType, kernel: object = None) -> Facts:
    """Return as `path` what leads from the module to a function, or as `behind` the type that hides it.

    A path has attributes and items of dictionaries, lists and tuples: `Solver.step`, `_by_groups[2]`.

    If a function has several kernels, `kernel` is the object that a decorator made of it.
    """
    record_packages()
    if _problem(function):
        return {}
    path = _path(function, kernel)
    if path is not None:
        return {"path": path}
    value = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
    return {} if value is None else {"behind": type(value).__qualname__}


_packages: set[str] = set()
"""The imported packages whose distributions are recorded."""


def record_packages() -> None:
    """Record the distributions of the packages that the program imported; a build may import them."""
    imported = {name.partition(".")[0] for name in list(sys.modules)}
    new = imported - _packages - set(getattr(sys, "stdlib_module_names", ()))
    if not new:
        return
    _packages.update(new)
    distributions = {name: item for name, item in sorted(_distributions().items()) if name in new}
    if distributions:
        log.write_once({"kind": "installed", "packages": distributions})


@functools.cache
def _distributions() -> dict[str, str]:
    from importlib import metadata  # noqa: PLC0415 (only processes with launches need it)

    find = getattr(metadata, "packages_distributions", dict)  # from Python 3.10 on
    return {name: distributions[0] for name, distributions in find().items()}


def site() -> str:
    """Return `file:line` of the launch: the innermost frame outside of compilers, libraries and the recorder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_INTERNAL):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _problem(function: FunctionType) -> str | None:
    code = function.__code__
    if module_name(function) in _MAIN:
        if code.co_filename.startswith("<") or hasattr(sys, "ps1"):
            return "it was typed into an interactive session; write it into a module"
        return "it is defined in a script, which no build can import; move it into a module of the package"
    if code.co_name == "<lambda>":
        return "it is a lambda; write it as a function"
    if code.co_freevars:
        names = ", ".join(code.co_freevars)
        return f"it is a closure over {names}; pass it as an argument, or use the module's globals"
    return None


def _path(function: FunctionType, kernel: object) -> str | None:
    module = sys.modules.get(function.__module__)
    if module is None:
        return None
    direct: object = module
    for part in function.__qualname__.split("."):
        direct = _attribute(direct, part)
    values = {name: value for name, value in vars(module).items() if name.isidentifier()}
    if kernel is not None and not _refers(direct, kernel):
        names = [name for name, value in values.items() if _refers(value, kernel)]
        names += [f"{name}{item}" for name, value in values.items() for item in _items_with(value, kernel)]
        if names:
            return names[0]
    if direct is not function and _refers(direct, function):
        return function.__qualname__
    # The function itself comes last: of `k = jit(f)` the kernel is `k`.
    names = [name for name, value in values.items() if value is not function and _refers(value, function)]
    names += [f"{name}.{inner}" for name, value in values.items() for inner in _attributes_with(value, function)]
    names += [f"{name}{item}" for name, value in values.items() for item in _items_with(value, function)]
    names += [function.__qualname__] if direct is function else []
    names += [name for name, value in values.items() if value is function]
    return names[0] if names else None


def _attributes_with(value: object, function: FunctionType) -> Iterator[str]:
    """Yield the attributes of an object or class that refer to the function."""
    if value is None or type(value).__name__ == "module":
        return
    for name in list(getattr(value, "__dict__", ())):
        if isinstance(name, str) and not name.startswith("__") and _refers(_attribute(value, name), function):
            yield name


def _items_with(value: object, item: object) -> Iterator[str]:
    """Yield the items of a dictionary, list or tuple that refer to `item`: `[2]`, `["fp8"]`."""
    pairs: Iterable[tuple[object, object]] = ()
    if type(value) is dict:
        pairs = list(value.items())
    elif type(value) is list or type(value) is tuple:
        pairs = enumerate(value)
    for key, each in pairs:
        is_plain = type(key) is int or (type(key) is str and re.fullmatch(r"[\w-]*", key))
        if is_plain and _refers(each, item):
            yield f"[{json.dumps(key, ensure_ascii=False)}]"


def at_path(module: object, path: str) -> object:
    """Return the object at a path of `find_path` in a module; None if there is none."""
    value: Any = module
    for name, key in re.findall(r"([^\W\d]\w*)|\[(.*?)\]", path):
        try:
            value = value[json.loads(key)] if key else getattr(value, name)
        except (AttributeError, LookupError, TypeError):
            return None
    return value


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 (a property of the program)
        return None


def _refers(value: object, item: object, depth: int = 8) -> bool:
    """Return True if an object is `item`, or refers to it through attributes of decorators' objects."""
    if value is item:
        return True
    attributes: Mapping[str, object] = getattr(value, "__dict__", {})
    if depth == 0 or not hasattr(attributes, "get"):  # some objects have every attribute
        return False
    references = (attributes.get(name) for name in _REFERENCES)
    return any(each is not None and _refers(each, item, depth - 1) for each in references)
