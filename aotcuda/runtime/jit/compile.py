"""Getting what a JIT build makes: from the cache, or by running the build, which one process does for all."""

from __future__ import annotations

import os
import sys
import warnings

from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.cache import compilers, folder
from aotcuda.cache.entries import size_cap
from aotcuda.errors import AotcudaError, ArgumentError, BuildError, DependencyError, FallbackWarning
from aotcuda.gpus import FIRST_CURRENT
from aotcuda.runtime.jit import cache_key
from aotcuda.runtime.jit.cache import Cache
from aotcuda.runtime.jit.cache_files import Artifact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.jit.recipe import Recipe

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_caches: dict[str | None, Cache] = {}
_warned: set[str] = set()


def cache() -> Cache:
    """This process's cache; another one when `AOTCUDA_CACHE_DIR` has changed."""
    root = folder.folder()
    if root not in _caches:
        _caches[root] = Cache(root, warn)
    return _caches[root]


def obtain(recipe: Recipe, kernel: str | None, signature: str | None, gpu: Device, cause: AotcudaError) -> Artifact:
    """The artifact for a case.

    Args:
        recipe: What to build from.
        kernel: The kernel; None for the whole module.
        signature: Its types; None for the packaged ones.
        gpu: The GPU.
        cause: Why nothing in the wheel is taken.

    Raises:
        DependencyError: It has to be compiled, and the compiler is not installed.
        AotcudaError: It cannot be compiled.
    """
    major, minor = gpu.capability
    target = f"sm_{major}{minor}"
    kept = cache()
    size_cap()  # a wrong value is said before anything is compiled
    name = cache_key.key(recipe, kernel, signature, target)
    what = f"{recipe.module}.{kernel} for {signature}" if kernel else f"{recipe.module}, all of it, for {gpu}"
    found, driver = kept.get(name), gpu.driver_version
    if found is not None and _serves(found, recipe, driver):
        return found
    _check_installed(recipe, what, driver[0] if gpu.capability >= FIRST_CURRENT else 12)
    because = str(cause).partition("\n")[0]
    warn(f"{what}: it is compiled on this machine, which takes a few seconds, because {because}")
    lock = kept.lock(name)
    try:
        found = kept.get(name)
        if found is not None and _serves(found, recipe, driver):
            return found
        if lock is not None:
            kept.discard(name)
        found = _build(recipe, kernel, signature, target, driver)
        kept.put(name, found)
        return found
    finally:
        if lock is not None:
            lock.release()


def _serves(found: Artifact, recipe: Recipe, driver: tuple[int, int]) -> bool:
    """Whether an entry is as it would be compiled now, and a driver loads it: one that is newer may have made it."""
    general = found.manifest["toolchain"].get("cuda", "0.0")
    newest = max(int(image.get("cuda", general).partition(".")[0]) for image in found.manifest["images"])
    return newest <= driver[0] and cache_key.is_good(found, recipe)


def refused(cause: AotcudaError, reason: AotcudaError) -> AotcudaError:
    """`cause`, with why the fallback could not help either."""
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
    level = 1
    frame = sys._getframe()  # noqa: SLF001 (its documented use; `skip_file_prefixes` came with Python 3.12)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(text, FallbackWarning, stacklevel=level)


def _check_installed(recipe: Recipe, what: str, cuda: int) -> None:
    front_end = registry.find(recipe.frontend)  # an unknown one is for the configuration's check to refuse
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
    return not package or package in compilers.installed(front_end.distributions) or _is_importable(package)


def _is_importable(package: str) -> bool:
    import importlib.util  # noqa: PLC0415 (few come here)

    return importlib.util.find_spec(package) is not None


def _build(recipe: Recipe, kernel: str | None, signature: str | None, target: str, driver: tuple[int, int]) -> Artifact:
    # The one place where the run time meets the build.
    try:
        from aotcuda.builder import jit  # noqa: PLC0415
    except ImportError as error:
        raise _lacking(error) from error
    names = recipe.names
    request = jit.Request(
        table=recipe.table,
        module=recipe.module,
        kernel=kernel,
        signature=signature,
        target=target,
        driver=driver,
        root=recipe.root,
        package_root=recipe.package_root,
        names=None if names is None else {module: tuple(found) for module, found in names.items()},
        project=recipe.names is None,
    )
    try:
        built = jit.build(request)
    except OSError as error:  # no room for temporary files, no more processes, ...
        message = f"the build could not run: {error}"
        raise BuildError(message) from error
    record = {
        "format": 1,
        "module": recipe.module,
        "kernel": kernel,
        "signature": signature,
        "target": target,
    }
    # As it will be read back from the disk, where tuples are lists.
    return Artifact(manifests.parse(manifests.dump(built.manifest), recipe.module), built.image, record)


def _lacking(error: ImportError) -> DependencyError:
    return DependencyError(
        f"{error.name} is not installed, which compiling on this machine needs; install aotcuda again"
    )
