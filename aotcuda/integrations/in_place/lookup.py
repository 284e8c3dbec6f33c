"""Find the packaged kernel of a decorated function, or allow Numba to compile it."""

from __future__ import annotations

import os
import sys

from ... import manifest as manifests
from ...common import object_path, stamp, value_descriptions
from ...errors import DependencyError, NoImageError, StaleBuildError
from . import numba_proxy, sources
from .kernel import PackagedKernel
from .numba_proxy import Proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any

    from ...runtime.kernel import Kernel
    from .sources import InPlaceModule, Source

_problems: dict[Source, str | None] = {}
"""The results of `_difference`, by source."""


def find_numba_kernel(kernel: Proxy, function: FunctionType) -> PackagedKernel | None:
    """Return the packaged kernel of a function with a decorator of Numba, or None; errors as for `find_kernel`."""
    packaged = find_kernel(kernel, function, lambda value: value if isinstance(value, Proxy) else None)
    assert packaged is None or isinstance(packaged, PackagedKernel)  # noqa: S101 (only for mypy)
    return packaged


def find_kernel(kernel: object, function: FunctionType, resolve: Callable[[Any], object]) -> Kernel | None:
    """Return the packaged kernel of a decorated function, or None.

    A kernel is packaged if its function begins in the line that the build recorded, and if the source has the kernel
    under the name that the build recorded. If a decorator of the source has wrapped the kernel, the line suffices.

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
        name = _packaged_name(kernel, defined, module, source, resolve)
        if name is not None:
            if not source.editable:
                _check(source, module)
            return module.kernels[name]
    return None


def _packaged_name(
    kernel: object, defined: str, module: InPlaceModule, source: Source, resolve: Callable[[Any], object]
) -> str | None:
    """Return the name under which a module packages a kernel of a source."""
    wrapped = None
    for record in module.manifest["kernels"]:
        is_same = record.get("defined") == defined
        current = resolve(_current_object(record["origin"], source))
        if current is kernel:
            return record["name"] if is_same or source.editable else None
        if is_same and current is None:
            wrapped = record["name"]
    return wrapped


def _current_object(origin: str, source: Source) -> object:
    """Return the current object of a name in a source: `mypkg.solver:Solver.step`."""
    name, _, path = origin.partition(":")
    namespace: dict[str, Any] = source.namespace if name == source.name else vars(sys.modules.get(name, object))
    first, *rest = object_path.split(path)
    return object_path.walk(namespace.get(first), rest)


def _check(source: Source, module: InPlaceModule) -> None:
    """Raise StaleBuildError if an installed source is not the file that its images were built from."""
    if source not in _problems:
        _problems[source] = _difference(source, module)
    problem = _problems[source]
    if problem is not None:
        raise StaleBuildError(problem)


def _difference(source: Source, module: InPlaceModule) -> str | None:
    """Return the reason why a source is not the file that its images were built from, or None."""
    file = os.path.abspath(source.namespace["__file__"])
    listed = {os.path.join(module.package_root, item["path"]): item["sha256"] for item in module.manifest["sources"]}
    if file not in listed:
        return None  # the package was installed without its source
    with open(file, "rb") as stream:
        digest = manifests.digest(stream.read())
    if digest == listed[file]:
        return None
    return (
        f"{file} is not the file that its images were built from; install the package again, or set "
        "AOTCUDA_IN_PLACE=0 to let its compiler compile it"
    )


def value_difference(packaged: PackagedKernel, function: FunctionType) -> str | None:
    """Return the first value that a kernel reads and that differs from the build's; None if there is none.

    An editable install whose inputs were edited has none, since its images are compiled again.
    """
    source = sources.find_source(function.__globals__)
    modules = source.modules() if source is not None else []
    for module in (module for module in modules if module.name == packaged.__module__):
        for record in module.manifest["kernels"]:
            if record["name"] != packaged.__name__ or "values" not in record:
                continue
            difference = value_descriptions.difference(function, record["values"])
            if difference is not None and source is not None and source.editable:
                built = stamp.from_manifest(module.manifest, module.package_root)
                return None if built.changed() is not None else difference
            return difference
    return None


def allow_numba(function: FunctionType, package: str, difference: str | None) -> None:
    """Warn that Numba compiles a kernel that was not packaged, or that was packaged for other values.

    Args:
        function: The function of the kernel.
        package: The compiler's package.
        difference: The result of `value_difference` for a packaged kernel.

    Raises:
        NoImageError: Nothing may be compiled here.
        DependencyError: Numba is not installed.
    """
    from ...runtime.jit import compile as jit_compile  # noqa: PLC0415 (packaged kernels need neither)
    from ...runtime.jit import fallback  # noqa: PLC0415

    source = sources.find_source(function.__globals__)
    modules = source.modules() if source is not None else []
    named = modules[0].name if modules else source.name if source is not None else function.__module__
    line = function.__code__.co_firstlineno
    what = f"{function.__module__}.{function.__qualname__} (line {line})"
    if difference is None:
        what += " is in no image that was packaged"
        advice = f'name it in tool.aotcuda.modules."{named}".kernels, as `aotcuda record --write` does'
    else:
        what += f" was packaged for other values ({difference})"
        advice = "build the package with the values of this run, or pass them as arguments"
    if not fallback.is_allowed(modules[0].manifest["fallback"] if modules else "jit"):
        message = f"{what}, and nothing may be compiled here; {advice}"
        raise NoImageError(message)
    try:
        numba_proxy.import_numba(package, what)
    except DependencyError:
        message = (
            f"{what}, and compiling it here needs {package}, which is not installed: "
            f"pip install {numba_proxy.requirement(package)!r}; or {advice}"
        )
        raise DependencyError(message) from None
    jit_compile.warn(f"{what}, so Numba compiles it; {advice}")
