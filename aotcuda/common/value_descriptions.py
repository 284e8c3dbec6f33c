"""Describe the values that a Numba kernel reads when it is compiled, and compare them with the values of a run.

Numba compiles globals, variables of closures, attributes of modules and default arguments as constants. The builder
writes a description of each into the manifest, and a module in place compares them at the kernel's first launch.

A path names a value. It begins with a name that the kernel's function sees, and goes on with attributes: `BLOCK`,
`config.BLOCK`, or with the index of an item: `FUNCTIONS.0`. A colon leads into a function: `helper:SCALE` is the value
that `helper` reads as `SCALE`. A description is a list: the kind of the value, and its content.

Two other modules write values: `aotcuda.common.kernel_digest` describes what Triton reads, with the text of functions;
`aotcuda.manifest.constants` writes constants of launches, and reads them back.
"""

from __future__ import annotations

import sys
from hashlib import sha256

from . import scalar_types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import FunctionType
    from typing import Any

    Description = list[Any]

COMPILERS = frozenset(["aotcuda", "numba", "numba_cuda", "numba_cuda_mlir", "llvmlite"])
"""The top packages whose objects are parts of the compiler."""

_PLAIN: tuple[Any, ...] = (type(None), bool, int, float, complex, str, bytes, type(...))
_KINDS = frozenset(kind.__name__ for kind in _PLAIN)
_LONGEST = 200
"""The most characters of a text that a description contains; longer ones are represented by their digest."""

_Function: Any = type(lambda: None)

MISSING: Any = object()
"""The value of a path that does not exist."""


def describe(value: Any) -> Description | None:
    """Return the description of a value; None for a value that Numba does not compile as a constant."""
    kind = type(value)
    function = python_function(value)
    if function is not None:
        code = function.__code__
        namespace = function.__globals__
        module = getattr(namespace.get("__spec__"), "name", None) or namespace.get("__name__")
        return ["function", f"{module}.{code.co_qualname}", code.co_firstlineno]
    enum: Any = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return ["enum", kind.__qualname__, value.name, describe(value.value)]
    if isinstance(value, tuple | list | dict | set | frozenset):
        return _container(value)
    plain = next((base for base in _PLAIN if isinstance(value, base)), None)  # Numba compiles subclasses alike
    return _array(value) or ([plain.__name__, _short(plain.__repr__(value))] if plain else _type(value))


def _container(value: Any) -> Description | None:
    items: Iterable[Any] = [item for pair in value.items() for item in pair] if isinstance(value, dict) else value
    descriptions = [describe(item) for item in items]
    if None in descriptions:
        return None
    name = next(base.__name__ for base in (tuple, list, dict, set, frozenset) if isinstance(value, base))
    return [name, *(sorted(descriptions, key=repr) if isinstance(value, set | frozenset) else descriptions)]


def _array(value: Any) -> Description | None:
    """Return the description of an array, a number or a type of NumPy."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray | numpy.generic):
        dtype = value.dtype
        if dtype.hasobject:
            return None
        shape = "x".join(map(str, value.shape))
        return ["array", str(dtype), shape, sha256(value.tobytes()).hexdigest()]
    return ["dtype", str(value)] if isinstance(value, numpy.dtype) else None


def _type(value: Any) -> Description | None:
    """Return the description of a scalar type of Numba, of a stand-in for one, or of a class of NumPy."""
    if isinstance(value, type):
        is_scalar = value.__module__ in {"numpy", "builtins"}
        return ["type", scalar_types.NUMBA.get(value.__name__, value.__name__)] if is_scalar else None
    if top_package(type(value)) not in COMPILERS and not hasattr(type(value), "numba_object"):
        return None
    # The label of a stand-in is the path that the source wrote: numba.types.float32.
    text = vars(value).get("_label") if hasattr(type(value), "numba_object") else str(value)
    name = scalar_types.NUMBA.get(str(text).rpartition(".")[2])
    return None if name is None else ["type", name]


def python_function(value: Any) -> FunctionType | None:
    """Return the Python function of a function or of a compiler's object for one; None for other values."""
    if not isinstance(value, _Function):
        try:
            value = value.py_func
        except Exception:  # noqa: BLE001 (a property in the user's code may raise any exception)
            return None
    return value if isinstance(value, _Function) else None


def look_up(function: FunctionType, name: str) -> Any:
    """Return the value of a name that a function reads: a default argument, a closure's variable, or a global."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    if name in positional:
        defaults = function.__defaults__ or ()
        index = positional.index(name) - len(positional) + len(defaults)
        return defaults[index] if index >= 0 else MISSING
    if name in code.co_freevars:
        try:
            return (function.__closure__ or ())[code.co_freevars.index(name)].cell_contents
        except ValueError:  # not assigned yet
            return MISSING
    return function.__globals__.get(name, MISSING)


def find(function: FunctionType, path: str) -> Any:
    """Return the value of a path; MISSING if there is none."""
    value: Any = MISSING
    inner: FunctionType | None = function
    for part in path.split(":"):
        if inner is None:
            return MISSING
        name, *attributes = part.split(".")
        value = look_up(inner, name)
        for attribute in attributes:
            try:
                value = value[int(attribute)] if attribute.isdecimal() else getattr(value, attribute)
            except Exception:  # noqa: BLE001 (a property in the user's code may raise any exception)
                return MISSING
        inner = python_function(value)
    return value


def difference(function: FunctionType, recorded: Mapping[str, Sequence[Description]]) -> str | None:
    """Return the first difference between the values of a run and those of the build; None if there is none.

    Args:
        function: The function of the kernel.
        recorded: The descriptions by path. A build that imports the sources for each GPU may have several for one path.
    """
    for path, known in recorded.items():
        value = find(function, path)
        description = None if value is MISSING else describe(value)
        if not any(_is_equal(value, description, other) for other in known):
            before = _text(None, known[0], "was")
            return f"{path.replace(':', '.')} {_text(value, description)}, and {before} in the build"
    return None


def _is_equal(value: Any, description: Description | None, known: Description) -> bool:
    if description is None:
        return value is not MISSING and known[0] == "type"  # without Numba, the name of a composed type is not known
    # The line of a function of another distribution is not recorded.
    return (description[: len(known)] if known[0] == "function" else description) == known


def _text(value: Any, description: Description | None, verb: str = "is") -> str:
    if value is MISSING:
        return "does not exist"
    if description is None:
        return f"{verb} a {type(value).__name__}"
    kind, *content = description
    if kind in ("function", "type", "dtype") or (kind in _KINDS and isinstance(content[0], str)):
        return f"{verb} {content[0]}"
    if kind == "enum":
        return f"{verb} {content[0]}.{content[1]}"
    return f"{verb} the {kind} with the digest {sha256(repr(content).encode()).hexdigest()[:8]}"


def top_package(value: Any) -> str:
    """Return the top package of a module, class or function."""
    name = value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", None)
    return str(name).partition(".")[0]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"sha256 {sha256(text.encode(errors='surrogatepass')).hexdigest()}"
