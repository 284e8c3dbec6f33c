"""`aotcuda cache warm`: fill the JIT cache on a machine without a GPU, for a container image or a cluster."""

from __future__ import annotations

import warnings

from aotcuda import arch as archs
from aotcuda import registry
from aotcuda.binary import targets
from aotcuda.binary.targets import PackagedModule
from aotcuda.builder import toolkits
from aotcuda.cache import folder
from aotcuda.errors import ConfigError, FallbackWarning, NoImageError, TargetError
from aotcuda.runtime.images.choice import choose
from aotcuda.runtime.jit import build_inputs, cache_key
from aotcuda.runtime.jit import compile as jit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aotcuda.builder.toolkits import Toolkit
    from aotcuda.common.jit_build import Request
    from aotcuda.manifest import Manifest


class _Gpu:
    """The properties of a GPU that the JIT fallback reads."""

    def __init__(self, capability: tuple[int, int], driver_version: tuple[int, int]) -> None:
        self.capability = capability
        self.driver_version = driver_version

    def __str__(self) -> str:
        return f"GPUs of compute capability {'.'.join(map(str, self.capability))}"


def warm(name: str, wanted: Sequence[str] | None, cuda: int | None) -> Iterator[str]:
    """Compile the packaged modules in `name` for GPUs without an image, and yield a line for each.

    Args:
        name: An importable module or package.
        wanted: The GPUs, `sm_XY`; None for all GPUs without an image that the installed compilers support.
        cuda: The major version of CUDA of their drivers; None for that of the newest installed compilers.

    Raises:
        TargetError: There is no such module, it has no sources, or nothing can be stored.
        ConfigError: `wanted` names no GPU, or no installed compilers make code for drivers of `cuda`.
        AotcudaError: It cannot be compiled.
    """
    root = folder.folder()
    problem = folder.problem(root) if root is not None else "there is no home folder; AOTCUDA_CACHE_DIR can name one"
    if problem is not None:
        message = f"nothing can be stored: {problem}"
        raise TargetError(message)
    installed = toolkits.installed()
    if cuda is not None:
        _check_cuda(cuda, installed)
    driver = (cuda, 99) if cuda is not None else installed[-1].linker if installed else (13, 0)
    chosen = [_capability(text) for text in wanted] if wanted is not None else None
    for module in targets.find(name):
        if isinstance(module, PackagedModule):
            yield from _warm(module, chosen, driver, toolkits.capabilities(installed))


def _warm(
    module: PackagedModule,
    chosen: Sequence[tuple[int, int]] | None,
    driver: tuple[int, int],
    known: Sequence[tuple[int, int]],
) -> Iterator[str]:
    manifest = module.manifest
    name = manifest["module"]
    if not manifest["kernels"]:
        yield f"{name}: has no kernels"
        return
    source = _inputs(manifest, module.path)
    for capability in known if chosen is None else chosen:
        served = choose(manifest, capability, driver=None).arch
        if served is None:
            yield f"{name} for sm_{_number(capability)}: {_compiled(source, _Gpu(capability, driver))}"
        elif chosen is not None:
            yield f"{name} for sm_{_number(capability)}: packaged, as {served}"
    if chosen is None and all(choose(manifest, capability, driver=None).arch is not None for capability in known):
        yield f"{name}: has an image for every GPU that the installed compilers know"


def _compiled(source: Request, gpu: _Gpu) -> str:
    """Compile for a GPU unless the cache has the result, and return what happened."""
    request = source.case(None, None, gpu.capability, gpu.driver_version)
    before = jit.cache().get(cache_key.key(request))
    if before is not None and cache_key.is_current(before, request):
        return "was compiled before"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        made = jit.obtain(request, gpu, NoImageError("aotcuda cache warm needs it"))
    if not made.folder:
        message = f"{source.module}: nothing was stored, because {folder.folder()} cannot be written"
        raise TargetError(message)
    return f"compiled, {len(made.image):,} bytes"


def _inputs(manifest: Manifest, where: Path | None) -> Request:
    """Return the inputs of the JIT fallback for the module with the data folder `where`.

    Raises:
        TargetError: There are none.
    """
    name = manifest["module"]
    if where is None:
        message = f"{name} is in a wheel; install it, because cache entries belong to the folder of the installation"
        raise TargetError(message)
    editable = "reads" in manifest
    root = str((where.resolve() if editable else where.absolute()).parents[name.count(".")])
    found = build_inputs.packaged(manifest, root)
    if found is not None and editable:  # built from the project
        found = build_inputs.project(name, root, found.files)
    if found is None:
        message = (
            f'{name} carries no sources to compile (it was built with fallback = "error"), so its fallback has no use '
            "for a cache"
        )
        raise TargetError(message)
    return found


def _check_cuda(cuda: int, installed: Sequence[Toolkit]) -> None:
    """Refuse a major version of CUDA that aotcuda does not know, or whose drivers load nothing that is made here.

    Raises:
        ConfigError: It is refused.
    """
    majors = sorted({known[0] for versions in registry.TOOLKITS.values() for known in versions})
    if cuda not in majors:
        message = f"--cuda {cuda}: write {' or '.join(map(str, majors))}"
        raise ConfigError(message)
    if installed and not toolkits.supported_by_driver((cuda, 0), installed):
        message = (
            f"--cuda {cuda}: such drivers load nothing of the compilers that are installed, CUDA "
            f"{installed[0].linker[0]}'s; install those of CUDA {cuda} in their place"
        )
        raise ConfigError(message)


def _capability(text: str) -> tuple[int, int]:
    """Return the compute capability of `sm_XY`.

    Raises:
        ConfigError: It is no target of machine code for one GPU.
    """
    try:
        target = archs.parse(text)
    except ValueError as error:
        message = f"--arch {text}: {error}"
        raise ConfigError(message) from None
    if target.kind != "sass" or target.suffix:
        message = f"--arch {text}: the fallback compiles for a GPU as it is; write sm_{target.major}{target.minor}"
        raise ConfigError(message)
    return target.capability


def _number(capability: tuple[int, int]) -> str:
    return f"{capability[0]}{capability[1]}"
