"""`aotcuda cache warm`: fill the JIT cache on a machine without a GPU, for a container image or a cluster."""

from __future__ import annotations

import warnings

from aotcuda import arch as archs
from aotcuda import registry
from aotcuda.binary import targets
from aotcuda.binary.targets import PackagedModule
from aotcuda.builder.plan import toolkits
from aotcuda.cache import folder
from aotcuda.errors import ConfigError, FallbackWarning, NoImageError, TargetError
from aotcuda.runtime.images.choice import choose
from aotcuda.runtime.jit import build_inputs, cache_key
from aotcuda.runtime.jit import compile as jit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aotcuda.builder.plan.toolkits import Toolkit
    from aotcuda.common.jit_build import Request
    from aotcuda.manifest import Manifest


class _Gpu:
    """The properties of a GPU that the JIT fallback needs."""

    def __init__(self, capability: tuple[int, int], driver_version: tuple[int, int]) -> None:
        self.capability = capability
        self.driver_version = driver_version

    def __str__(self) -> str:
        return f"GPUs of compute capability {'.'.join(map(str, self.capability))}"


def warm(name: str, gpus: Sequence[str] | None, cuda: int | None) -> Iterator[str]:
    """Compile the packaged modules in `name` for GPUs without an image, and yield a line for each.

    Args:
        name: An importable module or package.
        gpus: The GPUs, `sm_XY`; None for all GPUs without an image that the installed compilers support.
        cuda: The major version of CUDA of their drivers; None for the version of the newest installed compilers.

    Raises:
        TargetError: There is no such module, it has no sources, or nothing can be stored.
        ConfigError: `gpus` has no GPU's name, or no installed compilers make code for drivers of `cuda`.
        AotcudaError: A module cannot be compiled.
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
    chosen = [_capability(text) for text in gpus] if gpus is not None else None
    for module in targets.find(name):
        if isinstance(module, PackagedModule):
            yield from _warm(module, chosen, driver, toolkits.capabilities(installed))


def _warm(
    module: PackagedModule,
    chosen: Sequence[tuple[int, int]] | None,
    driver: tuple[int, int],
    supported: Sequence[tuple[int, int]],
) -> Iterator[str]:
    """Compile a module for chosen GPUs, or for all supported ones, and yield a line for each."""
    manifest = module.manifest
    name = manifest["module"]
    if not manifest["kernels"]:
        yield f"{name}: has no kernels"
        return
    inputs = _inputs(manifest, module.path)
    images = {capability: choose(manifest, capability).arch for capability in (supported if chosen is None else chosen)}
    for capability, image in images.items():
        if image is None:
            yield f"{name} for sm_{_number(capability)}: {_compile(inputs, _Gpu(capability, driver))}"
        elif chosen is not None:
            yield f"{name} for sm_{_number(capability)}: packaged, as {image}"
    if chosen is None and None not in images.values():
        yield f"{name}: has an image for every GPU that the installed compilers support"


def _compile(inputs: Request, gpu: _Gpu) -> str:
    """Compile for a GPU unless the cache has the result; return the outcome in words."""
    request = inputs.case(None, None, gpu.capability, gpu.driver_version)
    entry = jit.cache().get(cache_key.key(request))
    if entry is not None and cache_key.is_current(entry, request):
        return "was compiled before"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        result = jit.obtain(request, gpu, NoImageError("aotcuda cache warm needs it"))
    if not result.folder:
        message = f"{inputs.module}: nothing was stored, because {folder.folder()} cannot be written"
        raise TargetError(message)
    return f"compiled, {len(result.image):,} bytes"


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
    inputs = build_inputs.packaged(manifest, root)
    if inputs is not None and editable:  # built from the project
        inputs = build_inputs.project(name, root, inputs.files)
    if inputs is None:
        message = f'{name} has no sources to compile, because it was built with fallback = "error"'
        raise TargetError(message)
    return inputs


def _check_cuda(cuda: int, installed: Sequence[Toolkit]) -> None:
    """Check a major version of CUDA.

    Raises:
        ConfigError: aotcuda does not know it, or its drivers load no code of the installed compilers.
    """
    majors = sorted({version[0] for versions in registry.TOOLKITS.values() for version in versions})
    if cuda not in majors:
        message = f"--cuda {cuda}: write {' or '.join(map(str, majors))}"
        raise ConfigError(message)
    if installed and not toolkits.supported_by_driver((cuda, 0), installed):
        message = (
            f"--cuda {cuda}: drivers for CUDA {cuda} load no code of the installed compilers of CUDA "
            f"{installed[0].linker[0]}; install the compilers of CUDA {cuda} in their place"
        )
        raise ConfigError(message)


def _capability(text: str) -> tuple[int, int]:
    """Return the compute capability of `sm_XY`.

    Raises:
        ConfigError: It is no target for machine code without a suffix.
    """
    try:
        target = archs.parse(text)
    except ValueError as error:
        message = f"--arch {text}: {error}"
        raise ConfigError(message) from None
    if target.kind != "sass" or target.suffix:
        message = f"--arch {text}: the JIT fallback compiles for one GPU; write sm_{target.major}{target.minor}"
        raise ConfigError(message)
    return target.capability


def _number(capability: tuple[int, int]) -> str:
    return f"{capability[0]}{capability[1]}"
