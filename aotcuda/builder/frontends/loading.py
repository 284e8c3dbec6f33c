"""Import a front end of `aotcuda.registry`: its configuration side, or its compiler."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, cast

from aotcuda import registry
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from aotcuda.builder.frontends.protocol import FrontEnd, Session, Tables


def tables(name: str) -> Tables:
    """Return the configuration side of the front end called `name`.

    Raises:
        ToolchainError: No front end of that name is registered, or its tables cannot be imported.
    """
    try:
        return cast("Tables", importlib.import_module(_find(name).tables))
    except ImportError as error:
        message = f"the front end {name} cannot be imported ({error}); install {registry.requirement(name)} again"
        raise ToolchainError(message) from error


def compiler(name: str, key: str, *, jit: bool = False) -> FrontEnd:
    """Return the compiler side of the front end called `name`; errors begin with `key`, which names it.

    Raises:
        ToolchainError: The compiler is not installed.
    """
    registered = _find(name)
    module, _, attribute = registered.compiler.partition(":")
    try:
        imported = importlib.import_module(module)
        return cast("FrontEnd", getattr(imported, attribute) if attribute else imported)
    except (ImportError, AttributeError) as error:
        raise not_installed(name, key, error, jit=jit) from error


def prepare(front: FrontEnd, session: Session, name: str, key: str, *, jit: bool = False) -> dict[str, str]:
    """Import the compilers of a front end and return their versions; errors begin with `key`.

    Raises:
        ToolchainError: The compilers are not installed, are not of a supported version, or do not support a target.
    """
    try:
        return front.prepare(session)
    except ImportError as error:
        raise not_installed(name, key, error, jit=jit) from error


def not_installed(name: str, key: str, error: Exception, *, jit: bool) -> ToolchainError:
    """Return the error for a front end whose compilers or libraries are not installed."""
    registered = _find(name)
    requirements = [registered.requirement(jit=jit), *_companions(registered)]
    remedy = f"install it with: pip install {_quote(requirements)}"
    if not jit:
        remedy = f"add {_quote(requirements)} to build-system.requires, or, in a build without isolation, {remedy}"
    return ToolchainError(f"{key}, {name}, cannot be imported ({error}); {remedy}")


def _companions(registered: registry.Registration) -> list[str]:
    """Return the further requirements of the installed release of a compiler."""
    try:
        return (
            [registered.requirements_by_release[metadata.version(registered.name)]]
            if registered.requirements_by_release
            else []
        )
    except (KeyError, metadata.PackageNotFoundError):
        return []


def _quote(requirements: list[str]) -> str:
    return " ".join(map(repr, requirements))


def _find(name: str) -> registry.Registration:
    registered = registry.find(name)
    if registered is None:
        message = f"no front end {name} is registered here; install the package that has it"
        raise ToolchainError(message)
    return registered
