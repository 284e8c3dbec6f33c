"""Obtain the result of a JIT build: from the cache, or by building it in one process for all."""

from __future__ import annotations

import sys
import warnings

from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.cache import compilers, folder
from aotcuda.cache.entries import size_cap
from aotcuda.common import system
from aotcuda.common.jit_build import Result
from aotcuda.errors import AotcudaError, ArgumentError, BuildError, DependencyError, FallbackWarning
from aotcuda.gpus import FIRST_CURRENT
from aotcuda.runtime.arguments.host_arrays import depth
from aotcuda.runtime.jit import cache_key
from aotcuda.runtime.jit.cache import Cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.common.jit_build import Request

_caches: dict[str | None, Cache] = {}
_warned: set[str] = set()


def cache() -> Cache:
    """Return this process's cache; another one after `AOTCUDA_CACHE_DIR` has changed."""
    root = folder.folder()
    if root not in _caches:
        _caches[root] = Cache(root, warn)
    return _caches[root]


def obtain(request: Request, gpu: object, cause: AotcudaError) -> Result:
    """Return the result of a request: from the cache, or by building it.

    Args:
        request: What to build.
        gpu: The GPU, for messages.
        cause: Why nothing in the wheel is taken.

    Raises:
        DependencyError: It has to be compiled, and the compiler is not installed.
        AotcudaError: It cannot be compiled.
    """
    of_kernel = f"{request.module}.{request.kernel} for {request.signature}"
    what = of_kernel if request.kernel else f"{request.module}, all of it, for {gpu}"
    if (problem := system.why_not("builds")) is not None:
        message = f"{what}: {problem}"
        raise DependencyError(message)
    kept = cache()
    size_cap()  # a wrong value is reported before anything is compiled
    key = cache_key.key(request)
    found = kept.get(key)
    if found is not None and cache_key.is_current(found, request):
        return found
    is_older = request.capability is not None and request.capability < FIRST_CURRENT
    _check_installed(request, what, 12 if is_older else request.driver[0])
    because = str(cause).partition("\n")[0]
    warn(f"{what}: it is compiled on this machine, which takes a few seconds, because {because}")
    lock = kept.lock(key)
    try:
        found = kept.get(key)
        if found is not None and cache_key.is_current(found, request):
            return found
        if lock is not None:
            kept.discard(key)
        return kept.put(key, _build(request), request.record)
    finally:
        if lock is not None:
            lock.release()


def refused(cause: AotcudaError, reason: AotcudaError) -> AotcudaError:
    """Return `cause` with the reason why the fallback could not help either."""
    first, newline, rest = str(cause).partition("\n")
    detail = str(reason) if not isinstance(cause, ArgumentError) else str(reason).partition("\n")[0]
    try:
        return type(cause)(f"{first}; and the JIT fallback failed: {detail}{newline}{rest}")
    except TypeError:  # an error with arguments of its own
        return cause


def warn(text: str) -> None:
    """Give a FallbackWarning for the line of the user's program that led here; each text once."""
    if text in _warned:
        return
    _warned.add(text)
    warnings.warn(text, FallbackWarning, stacklevel=depth())


def _check_installed(request: Request, what: str, cuda: int) -> None:
    front_end = registry.find(request.frontend)  # an unknown one is for the configuration's check to refuse
    if front_end is not None and not _is_installed(front_end):
        message = (
            f"{what}: compiling it here needs {front_end.name}, which is not installed: "
            f"pip install {front_end.requirement(jit=True, cuda=cuda)!r}"
        )
        raise DependencyError(message)
    if not sys.executable:
        message = f"{what}: compiling it here needs another Python process, and sys.executable names none to start"
        raise DependencyError(message)


def _is_installed(front_end: registry.Registration) -> bool:
    package = front_end.package
    return not package or package in compilers.installed(front_end.all_distributions) or _is_importable(package)


def _is_importable(package: str) -> bool:
    import importlib.util  # noqa: PLC0415 (few come here)

    return importlib.util.find_spec(package) is not None


def _build(request: Request) -> Result:
    # The one place where the run time imports the builder.
    try:
        from aotcuda.builder import jit  # noqa: PLC0415
    except ImportError as error:
        raise _lacking(error) from error
    try:
        built = jit.build(request)
    except OSError as error:  # no room for temporary files, no more processes, ...
        message = f"the build could not run: {error}"
        raise BuildError(message) from error
    # As it will be read back from the disk, where tuples are lists.
    return Result(manifests.parse(manifests.dump(built.manifest), request.module), built.image)


def _lacking(error: ImportError) -> DependencyError:
    return DependencyError(
        f"{error.name} is not installed, which compiling on this machine needs; install aotcuda again"
    )
