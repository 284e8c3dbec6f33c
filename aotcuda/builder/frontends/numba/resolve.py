"""Find the function that a table names, or the kernel inside an object that a decorator returned."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends import python_source
from aotcuda.builder.frontends.numba import other_compilers
from aotcuda.builder.frontends.numba.user_lines import function_place
from aotcuda.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.type_notation import Notation

_INNER = ("__wrapped__", "py_func", "python_func")
_DEEPEST = 16
_DECLARED = "_aotcuda_declared"
_BY_NAME = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


@dataclass(frozen=True, slots=True, eq=False)
class LoadedFunction:
    """The function of a unit.

    Attributes:
        module: The name of the source module that has it.
        value: A dispatcher, or the plain function.
        python: The plain function.
    """

    module: str
    value: Any
    python: FunctionType

    @property
    def is_device(self) -> bool | None:
        """Return True for `@cuda.jit(device=True)`, False for another `@cuda.jit`, None for a plain function."""
        return _is_device(self.value) if self.value is not self.python else None

    @property
    def declared(self) -> list[tuple[tuple[Any, ...], Any]]:
        """Return the argument types and the result (None if absent) of each signature in its `@cuda.jit`."""
        return list(getattr(self.value, "__dict__", {}).get(_DECLARED, ()))


def declare(dispatcher: Any, args: tuple[Any, ...], result: Any) -> None:
    """Record a signature of `@cuda.jit`."""
    dispatcher.__dict__.setdefault(_DECLARED, []).append((args, result))


def find(unit: NumbaUnit, dispatcher: Any, notation: Notation, root: str) -> LoadedFunction:
    """Find the function of `unit`; `dispatcher` is the class of the objects that the compiler's `@cuda.jit` returns.

    Raises:
        SourceError: A source cannot be imported, or no function has that name.
    """
    modules = [python_source.import_source(name, unit, root) for name in unit.sources]
    values = [(module, value) for module in modules for value in python_source.attributes(module, unit.python)]
    if not values:
        raise python_source.missing_error(unit, modules)
    module, value = values[0]
    if any(other is not value for _, other in values):
        own = [(module, value) for module, value in values if python_source.is_defined_in(value, module)]
        if len(own) != 1:
            names = " and ".join(python_source.name_of(module) for module, _ in values)
            message = (
                f"{unit.key}: {names} each have {unit.python}; choose one with python = "
                f'"{python_source.name_of(module)}:{unit.python}"'
            )
            raise SourceError(message)
        module, value = own[0]
    name = f"{python_source.name_of(module)}.{unit.python}"
    python_source.check_no_placeholder(value, unit, name)
    value = _unwrap(unit, value, name, dispatcher, notation, root)
    return LoadedFunction(python_source.name_of(module), value, _python_function(unit, value, name, dispatcher))


def _python_function(unit: NumbaUnit, value: object, name: str, dispatcher: Any) -> FunctionType:
    """Return the plain Python function behind `value`, which may be of class `dispatcher`."""
    python = value.py_func if isinstance(value, dispatcher) else value
    if not isinstance(python, FunctionType):
        message = (
            f"{unit.key}: {name} is of type {type(value).__name__}, and no function; name a Python function, plain or "
            "decorated with @cuda.jit, or an object that holds one"
        )
        raise SourceError(message)
    return python


def _unwrap(unit: NumbaUnit, value: Any, name: str, dispatcher: Any, notation: Notation, root: str) -> Any:
    """Return the dispatcher or the plain function inside `value`, or the innermost other object."""
    for _ in range(_DEEPEST):
        if isinstance(value, dispatcher):
            return value
        other_compilers.check_is_own(unit, value, name, notation, root)
        if isinstance(value, type | ModuleType | MethodType):
            return value
        inner = _inner_object(unit, value, name, dispatcher, root)
        if inner is None or (isinstance(value, FunctionType) and not _is_host_wrapper(value, inner, unit, dispatcher)):
            return value
        value = inner
    return value


def _inner_object(unit: NumbaUnit, value: Any, name: str, dispatcher: Any, root: str) -> Any:
    """Return the kernel that a function or an object holds, or the object that it wraps."""
    wrapped = next(
        (inner for inner in (_attribute(value, attribute) for attribute in _INNER) if inner is not None), None
    )
    kernels = [(key, item) for key, item in _contents(value) if isinstance(item, dispatcher) and not _is_device(item)]
    # Prefer kernels of @cuda.jit to functions of @njit.
    kernels = [(key, item) for key, item in kernels if "device" in item.targetoptions] or kernels
    if any(item is not kernels[0][1] for _, item in kernels):
        plain = getattr(wrapped, "py_func", wrapped)
        kernels = [(key, item) for key, item in kernels if item is wrapped or item.py_func is plain] or kernels
    if any(item is not kernels[0][1] for _, item in kernels):
        items = ", ".join(f"{key} ({function_place(item.py_func, root)})" for key, item in kernels)
        message = (
            f"{unit.key}: {name} holds several kernels: {items}; name one of them, by the path that leads to it: "
            f'python = "module:object.attribute"'
        )
        raise SourceError(message)
    return kernels[0][1] if kernels else wrapped


def _is_host_wrapper(function: FunctionType, inner: Any, unit: NumbaUnit, dispatcher: Any) -> bool:
    """Return True if a function is a host function that launches or calls the function that it wraps.

    A function that takes `*args` or `**kwargs` cannot be compiled. A function with its own parameters may be a kernel
    that holds a helper; if it wraps a kernel, it launches that kernel.
    """
    if function.__code__.co_flags & _BY_NAME:
        return True
    wrapped = getattr(function, "__wrapped__", None)
    is_kernel = isinstance(inner, dispatcher) and not _is_device(inner)
    return unit.kind == "kernel" and wrapped is not None and is_kernel and wrapped in (inner, inner.py_func)


def _contents(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each variable in a closure, or of each attribute of an object."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        yield from vars(value).items()
        return
    yield from getattr(value, "__dict__", {}).items()
    for name in _slots(type(value)):
        if (item := _attribute(value, name)) is not None:
            yield name, item


def _slots(kind: type) -> Iterable[str]:
    for cls in kind.__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 (a property in the user's code may raise any exception)
        return None


def _is_device(value: Any) -> bool:
    return bool(getattr(value, "targetoptions", {}).get("device"))
