"""Obtain the result of a JIT build from the cache, or build it in one process for all."""

from __future__ import annotations

import sys
import warnings

from ... import manifest as manifests
from ... import registry
from ...cache import compilers, folder
from ...cache.entries import size_cap
from ...common import system
from ...common.jit_build import Result
from ...errors import AotcudaError, ArgumentError, BuildError, DependencyError, FallbackWarning
from ...gpus import FIRST_CURRENT
from ..launch.arguments.host_arrays import caller_depth
from . import cache_key, cache_lock
from .cache import Cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...common.jit_build import Request

_caches: dict[str | None, Cache] = {}
_warned: set[str] = set()


def cache() -> Cache:
    """Return this process's cache for the current value of `AOTCUDA_CACHE_DIR`."""
    root = folder.folder()
    if root not in _caches:
        _caches[root] = Cache(root, warn)
    return _caches[root]


def obtain(request: Request, gpu: object, cause: AotcudaError) -> Result:
    """Return the result of a request from the cache, or build it.

    Args:
        request: The request.
        gpu: The GPU, for messages.
        cause: The error that a launch without the fallback would raise.

    Raises:
        DependencyError: The compiler is needed, and not installed.
        AotcudaError: The build failed.
    """
    kernel = f"{request.module}.{request.kernel} for {request.signature}"
    part = "all of it" if request.image is None else f"image {request.image}"
    subject = kernel if request.kernel else f"{request.module}, {part}, for {gpu}"
    if (problem := system.why_not("builds")) is not None:
        message = f"{subject}: {problem}"
        raise DependencyError(message)
    results = cache()
    size_cap()  # report a wrong value before the compilation
    key = cache_key.key(request)
    result = results.get(key)
    if result is not None and cache_key.is_current(result, request):
        return result
    is_older = request.capability is not None and request.capability < FIRST_CURRENT
    _check_installed(request, subject, 12 if is_older else request.driver[0])
    reason = str(cause).partition("\n")[0]
    warn(f"{subject}: it is compiled on this machine, which takes a few seconds, because {reason}")
    lock = results.lock(key)
    try:
        result = results.get(key)
        if result is not None and cache_key.is_current(result, request):
            return result
        if lock is not None:
            results.discard(key)
        return results.put(key, _build(request), request.record)
    finally:
        if lock is not None:
            cache_lock.release(lock)


def add_reason(cause: AotcudaError, reason: str) -> AotcudaError:
    """Return an error like `cause` that also has the reason why the fallback failed."""
    first, newline, rest = str(cause).partition("\n")
    detail = reason if not isinstance(cause, ArgumentError) else reason.partition("\n")[0]
    try:
        return type(cause)(f"{first}; and the JIT fallback failed: {detail}{newline}{rest}")
    except TypeError:  # the constructor of this class takes other arguments
        return cause


def warn(text: str) -> None:
    """Warn once for each text; the warning shows the line of the user's program."""
    if text in _warned:
        return
    _warned.add(text)
    warnings.warn(text, FallbackWarning, stacklevel=caller_depth())


def _check_installed(request: Request, subject: str, cuda: int) -> None:
    front_end = registry.find(request.frontend)  # None for an unknown one, which the build refuses
    if front_end is not None and not _is_installed(front_end):
        message = (
            f"{subject}: compiling it here needs {front_end.name}, which is not installed: "
            f"pip install {front_end.requirement(jit=True, cuda=cuda)!r}"
        )
        raise DependencyError(message)
    if not sys.executable:
        message = f"{subject}: compiling it here needs another Python process, and sys.executable names none to start"
        raise DependencyError(message)


def _is_installed(front_end: registry.Registration) -> bool:
    package = front_end.package
    return not package or package in compilers.installed(front_end.all_distributions) or _is_importable(package)


def _is_importable(package: str) -> bool:
    import importlib.util  # noqa: PLC0415 (few programs compile)

    return importlib.util.find_spec(package) is not None


def _build(request: Request) -> Result:
    try:
        from aotcuda.builder.entry import jit  # noqa: PLC0415 (the only import of the builder by the run time)
    except ImportError as error:
        message = f"{error.name} is not installed, which compiling on this machine needs; install aotcuda again"
        raise DependencyError(message) from error
    try:
        built = jit.build(request)
    except OSError as error:  # no space for temporary files, no more processes, ...
        message = f"the build could not run: {error}"
        raise BuildError(message) from error
    # Lists replace tuples, as in a result that is read from the disk.
    return Result(manifests.parse(manifests.dump(built.manifest), request.module), built.image)
