"""Find the packaged kernel of a decorated function, or allow Numba to compile it."""

from __future__ import annotations

import os
import sys

from aotcuda import manifest as manifests
from aotcuda.errors import DependencyError, NoImageError, StaleBuildError
from aotcuda.integrations.in_place import numba_proxy, sources
from aotcuda.integrations.in_place.kernel import PackagedKernel
from aotcuda.integrations.in_place.numba_proxy import Proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any

    from aotcuda.integrations.in_place.sources import InPlaceModule, Source
    from aotcuda.runtime.kernel import Kernel

_checked: dict[Source, str | None] = {}  # by source, the reason why its images are stale


def find(kernel: Proxy, function: FunctionType) -> PackagedKernel | None:
    """Return the packaged kernel of a function with a decorator of Numba; it raises the errors of `packaged`."""
    found = packaged(kernel, function, lambda value: value if isinstance(value, Proxy) else None)
    assert found is None or isinstance(found, PackagedKernel)  # noqa: S101 (only for mypy)
    return found


def packaged(kernel: object, function: FunctionType, resolve: Callable[[Any], object]) -> Kernel | None:
    """Return the packaged kernel of a decorated function, or None.

    A kernel is packaged if the object of its name in the source begins in the line that the build recorded. If a
    decorator of the source has wrapped the object, the wrapped function is compared.

    Args:
        kernel: The object that the compiler's decorator made.
        function: The Python function.
        resolve: A function that returns the compiler's kernel inside an object of a source; None for other objects.

    Raises:
        ManifestError: A file of the build was altered.
        StaleBuildError: The source has changed since the build.
    """
    source = sources.find_source(function.__globals__)
    if source is None:
        return None
    defined = f"{source.name}:{function.__qualname__}:{function.__code__.co_firstlineno}"
    for module in source.modules():
        name = _name(kernel, defined, module, source, resolve)
        if name is not None:
            if not source.editable:
                _check(source, module)
            return module.kernels[name]
    return None


def _name(
    kernel: object, defined: str, module: InPlaceModule, source: Source, resolve: Callable[[Any], object]
) -> str | None:
    """Return the name under which a module packages a kernel of a source."""
    wrapped = None
    for record in module.manifest["kernels"]:
        same = record.get("defined") == defined
        found = resolve(_value(record["origin"], source))
        if found is kernel:
            return record["name"] if same or source.editable else None
        if same and found is None:
            wrapped = record["name"]
    return wrapped


def _value(origin: str, source: Source) -> object:
    """Return the current object of a name in a source: `mypkg.solver:Solver.step`."""
    name, _, path = origin.partition(":")
    first, *rest = path.split(".")
    namespace: dict[str, Any] = source.namespace if name == source.name else vars(sys.modules.get(name, object))
    value: object = namespace.get(first)
    for part in rest:
        value = getattr(value, part, None)
    return value


def _check(source: Source, module: InPlaceModule) -> None:
    """Raise StaleBuildError if an installed source is not the file that its images were built from."""
    if source not in _checked:
        _checked[source] = _difference(source, module)
    problem = _checked[source]
    if problem is not None:
        raise StaleBuildError(problem)


def _difference(source: Source, module: InPlaceModule) -> str | None:
    file = os.path.abspath(source.namespace["__file__"])
    listed = {os.path.join(module.package_root, item["path"]): item["sha256"] for item in module.manifest["sources"]}
    if file not in listed:
        return None  # it was installed without its source
    with open(file, "rb") as stream:
        digest = manifests.digest(stream.read())
    if digest == listed[file]:
        return None
    return (
        f"{file} is not the file that its images were built from; install the package again, or set "
        "AOTCUDA_IN_PLACE=0, and its compiler compiles it"
    )


def allow_numba(function: FunctionType, package: str) -> None:
    """Warn that Numba compiles a kernel that was not packaged.

    Raises:
        NoImageError: Nothing may be compiled here.
        DependencyError: Numba is not installed.
    """
    from aotcuda.runtime.jit import compile as jit_compile  # noqa: PLC0415 (packaged kernels need neither)
    from aotcuda.runtime.jit import fallback  # noqa: PLC0415

    source = sources.find_source(function.__globals__)
    modules = source.modules() if source is not None else []
    named = modules[0].name if modules else source.name if source is not None else function.__module__
    line = function.__code__.co_firstlineno
    what = f"{function.__module__}.{function.__qualname__} (line {line}) is in no image that was packaged"
    advice = f'name it in tool.aotcuda.modules."{named}".kernels, as `aotcuda record --write` does'
    if not fallback.is_allowed(modules[0].manifest["fallback"] if modules else "jit"):
        message = f"{what}, and nothing may be compiled here; {advice}"
        raise NoImageError(message)
    try:
        numba_proxy.need(package, what)
    except DependencyError:
        message = (
            f"{what}, and compiling it here needs {package}, which is not installed: "
            f"pip install {numba_proxy.requirement(package)!r}; or {advice}"
        )
        raise DependencyError(message) from None
    jit_compile.warn(f"{what}, so Numba compiles it; {advice}")
