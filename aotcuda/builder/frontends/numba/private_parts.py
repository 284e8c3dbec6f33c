"""Check that a compiler has the private functions that patches replace.

Patches replace private functions, which any release may change. Before patches are applied, the compiler's version is
compared with the tested versions, and the parameters of each function with those of the tested releases. If one of
them differs, the build fails with a one-line error, and does not make a wrong image.
"""

from __future__ import annotations

import importlib
import inspect
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNTESTED = "AOTCUDA_UNTESTED"
"""The environment variable that lets a build go on with a compiler of another version."""


def check(frontend: str, parts: Mapping[str, str]) -> None:
    """Check the installed compiler of a front end with the name of its distribution, as `check_release` does."""
    check_release(frontend, registry.BUILT_IN[frontend].tested, parts)


def check_release(distribution: str, tested: Sequence[str], parts: Mapping[str, str]) -> None:
    """Check that an installed compiler is a tested release with the expected private functions.

    Args:
        distribution: The compiler's distribution.
        tested: The tested releases.
        parts: The parameters of each function that is replaced or called, by `package.module:Class.function`.

    Raises:
        ToolchainError: The release was not tested, and `AOTCUDA_UNTESTED` is not set; or a function has changed.
    """
    installed = version(distribution)
    remedy = f"pip install {distribution}=={tested[-1]}"
    if installed not in tested and os.environ.get(UNTESTED) != "1":
        releases = f"{tested[0]} to {tested[-1]} were" if len(tested) > 1 else f"{tested[0]} was"
        message = (
            f"{distribution} {installed} was not tested with this aotcuda, {releases}: {remedy}, "
            f"or set {UNTESTED}=1 to go on"
        )
        raise ToolchainError(message)
    for name, parameters in parts.items():
        actual = _parameters(name)
        if actual != parameters:
            change = f"has {actual}" if actual is not None else "does not exist"
            message = (
                f"{distribution} {installed} cannot be used: {name}, which aotcuda replaces, {change} "
                f"where {tested[-1]} had {parameters}; {remedy}"
            )
            raise ToolchainError(message)


def _parameters(name: str) -> str | None:
    """Return the parameters of a function, `(self, fnty)`; None if there is no such function."""
    module, _, path = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in path.split("."):
            value = inspect.getattr_static(value, part)
    except (ImportError, AttributeError):
        return None
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    if not callable(value):
        return type(value).__name__
    signature = inspect.signature(value)
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
