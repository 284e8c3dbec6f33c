"""Make the module `triton` that packaged modules import: Triton's own names, and a `jit` for packaged kernels."""

from __future__ import annotations

from types import ModuleType

from . import bases, functions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_modules: dict[str, ModuleType] = {}


def module() -> ModuleType:
    """Return the module. A process has one, so that a replacement of `triton.autotune` applies to all modules."""
    return _modules.get("triton") or _modules.setdefault("triton", _make())  # two threads may import at the same time


def _make() -> ModuleType:
    """Return a plain ModuleType, because Triton's compiler refuses names of other objects in kernels."""
    functions.adopt_autotuners()
    replacement = ModuleType("triton", bases.triton.__doc__)
    names = vars(replacement)
    names.update({name: value for name, value in vars(bases.triton).items() if name in names}, jit=jit)
    names.update(__getattr__=_attribute, __dir__=lambda: sorted({*dir(bases.triton), *names}))
    return replacement


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return Triton's `jit` of a function, which launches packaged code if the function's module was packaged.

    Args:
        fn: The function; without it a decorator is returned.
        options: Options of `triton.jit`.
    """
    if fn is None:
        return lambda function: jit(function, **options)
    return functions.adopt(bases.triton.jit(fn, **options))


def _attribute(name: str) -> Any:
    return getattr(bases.triton, name)
