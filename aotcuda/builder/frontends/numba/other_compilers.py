"""Recognise objects of other compilers and ufuncs, which launch their own kernels."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.numba.user_lines import function_place
from aotcuda.errors import SourceError

if TYPE_CHECKING:
    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.type_notation import Notation


class Vectorized:
    """A stand-in for the object that `@vectorize` returns for a GPU; builds use it while they import source modules."""

    def __init__(self, function: FunctionType) -> None:
        self.py_func = function
        self.__name__ = function.__name__

    def __call__(self, *_: object, **__: object) -> Any:
        """Raise RuntimeError, because a build has no GPU."""
        raise RuntimeError(gpu_queries.MISSING)


def _is_vectorized(kind: str) -> bool:
    return kind == Vectorized.__name__ or kind.lower().endswith(("ufunc", "ufuncdispatcher"))


def check_is_own(unit: NumbaUnit, value: object, name: str, notation: Notation, root: str) -> None:
    """Raise SourceError if another compiler made `value`, which the unit calls `name`, or if it is a ufunc."""
    if isinstance(value, FunctionType):
        return
    other, own = front_end_of(value), front_end_of_module(notation.types.__name__)
    if other not in (None, own):
        raise other_compiler_error(unit, name, other, own)
    if _is_vectorized(type(value).__name__):
        dispatcher = getattr(value, "_dispatcher", value)
        vectorized = getattr(dispatcher, "py_func", None) or getattr(dispatcher, "pyfunc", None)
        where = f" ({function_place(vectorized, root)})" if isinstance(vectorized, FunctionType) else ""
        message = (
            f"{unit.key}: {name}{where} is made by @vectorize or @guvectorize, which launch kernels of their own; "
            "write a kernel that calls the plain function for each element, and name that kernel"
        )
        raise SourceError(message)


def front_end_of(value: object) -> str | None:
    """Return the front end whose compiler contains the module `value` or made the object; None if there is none."""
    return front_end_of_module(value.__name__ if isinstance(value, ModuleType) else type(value).__module__)


def front_end_of_module(module: str) -> str | None:
    """Return the front end whose compiler contains a Python module; None if there is none."""
    found = registry.front_end_of_module(module)
    return None if found is None else found.name


def other_compiler_error(unit: NumbaUnit, name: str, other: str | None, own: str | None) -> SourceError:
    """Return the error for an object that the front end `other` made in a module of the front end `own`."""
    registered = registry.find(own) if own else None
    imports = registered.imports if registered is not None else "its own compiler"
    return SourceError(
        f"{unit.key}: {name} is made by {other}, and the front end of {unit.module} is {own}; "
        f'set frontend = "{other}" for the module, or import it from {imports}'
    )
