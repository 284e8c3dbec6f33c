"""Find the packaged kernel of a Triton function."""

from __future__ import annotations

from ....errors import NoImageError, StaleBuildError
from .. import lookup, sources
from . import bases
from .kernel import InPlaceKernel, allow_compilation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def find(function: Any) -> InPlaceKernel | None:
    """Return the packaged kernel of a Triton function; None, with a warning, if Triton has to compile it.

    Raises:
        NoImageError: The kernel is not packaged, and nothing may be compiled here.
        StaleBuildError: The source has changed since the build, and nothing may be compiled here.
        ManifestError: A file of the build was altered.
    """
    if vars(function).get("_pack") is not None:
        from . import packs  # noqa: PLC0415 (few programs have packs)

        return packs.find(function)
    python = function.fn
    what = f"{python.__module__}.{python.__qualname__}"
    source = sources.find_source(python.__globals__)
    modules = source.modules() if source is not None else []
    try:
        kernel = lookup.find_kernel(function, python, _jit_function)
    except StaleBuildError as error:
        allow_compilation(what, str(error), modules[0].manifest["fallback"], error)
        return None
    if isinstance(kernel, InPlaceKernel):
        kernel.function = function
        return kernel
    line = python.__code__.co_firstlineno
    problem = f"{what} (line {line}) is in no image that was packaged"
    allow_compilation(what, problem, modules[0].manifest["fallback"] if modules else "jit", NoImageError(problem))
    return None


def _jit_function(value: Any) -> Any:
    """Return the function that Triton's decorators have wrapped; None for another object."""
    while value is not None and not isinstance(value, bases.JITFunction):
        value = getattr(value, "fn", None)
    return value
