"""Describe a module on this machine: the images of its GPUs, its fast path, its `repr`."""

from __future__ import annotations

from ... import arch
from ...common import removed
from ...errors import LaunchError
from .. import driver as drivers
from .. import streams
from ..images.choice import Tier, choose, survey
from ..launch import fast as extension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sized

    from ..images.choice import Choice
    from ..images.images import Images


def choices(images: Images) -> dict[int, Choice]:
    """Return the image for each GPU of this machine with the reason, by the GPU's ordinal.

    Raises:
        RuntimeUnavailableError: There is no driver or no GPU.
        CudaError: The driver cannot be started.
    """
    kernel_table = images.current  # another thread may unload it
    if kernel_table is not None:
        return dict(kernel_table.library.choices)
    return survey(images.manifest, drivers.get())


def tiers(images: Images) -> dict[str, list[Tier]]:
    """Return for each kernel the image of each overload on each GPU; errors as for `choices`."""
    kernel_table, jit_images = images.current, images.jit_images
    manifest = kernel_table.manifest if kernel_table is not None else images.manifest
    by_kernel: dict[str, list[Tier]] = {kernel["name"]: [] for kernel in manifest["kernels"]}
    for choice in choices(images).values():
        jit_module = jit_images.get(((None, None), choice.capability))
        if choice.arch is None and jit_module is not None:
            choice = jit_module.choice_for(choice.capability)  # noqa: PLW2901 (the choice that replaces it)
        for kernel in manifest["kernels"]:
            by_kernel[kernel["name"]] += [Tier(overload["signature"], choice) for overload in kernel["overloads"]]
    for ((name, signature), capability), library in jit_images.items():
        if name is not None and signature is not None:
            by_kernel.setdefault(name, []).append(Tier(signature, library.choice_for(capability)))
    return by_kernel


def choice_for(images: Images, capability: tuple[int, int] | str, driver: tuple[int, int] | None) -> Choice:
    """Return the image for a GPU of a compute capability, with a driver that supports a CUDA version.

    Raises:
        ValueError: `capability` is neither a target nor a pair of integers.
    """
    if not isinstance(capability, str) and [type(part) for part in _parts(capability)] != [int, int]:
        message = f"{capability!r} is no compute capability; write it as (9, 0), or as 'sm_90'"
        raise ValueError(message)
    pair = arch.parse(capability).capability if isinstance(capability, str) else capability
    return choose(images.manifest, pair, driver=driver)


def _parts(capability: object) -> tuple[object, ...]:
    return capability if isinstance(capability, tuple) else ()


def fast_path(images: Images) -> str:
    """Return `"in C"` if launches take the fast path, else `"none: ..."` with the reason.

    Raises:
        ConfigError: `AOTCUDA_SYNCHRONIZE` has an unknown value.
    """
    kernel_table = images.current
    if kernel_table.library.synchronous if kernel_table is not None else streams.launches_wait():
        return "none: launches wait for their kernels, because AOTCUDA_SYNCHRONIZE is 1"
    problem = extension.why_not()
    return "in C" if problem is None else f"none: {problem}"


def describe(images: Images) -> str:
    """Return the `repr` of a module whose manifest has been read."""
    state, kernel_table = "not loaded", images.current
    if kernel_table is not None and kernel_table.library.is_loaded:
        state = "; ".join([*map(str, kernel_table.library.choices.values()), f"fast path {fast_path(images)}"])
    changed = images.source.changed()
    if changed is not None:
        state += f"; out of date: {changed}"
    counts = f"{_count(images.kernels, 'kernel')}, {_count(images.manifest['functions'], 'function')}"
    return f"<aotcuda.Module {images.source.name}: {counts}; {state}>"


def simulator_error(module: str, origins: Collection[str]) -> LaunchError:
    """Return the error of a generated module in Numba's simulator; `origins` are its source modules and files."""
    names = ", ".join(sorted(origins))
    fact = "GPU code, which Numba's simulator cannot run, and NUMBA_ENABLE_CUDASIM is set: "
    replacement = removed.SIMULATED["python"].format(origins=names)
    if any(origin.endswith(".cu") for origin in origins):
        fact, replacement = f"GPU code of {names}, which Numba's simulator cannot run; ", removed.SIMULATED["cuda-cpp"]
    message = f"{module} has {fact}{replacement}"
    return LaunchError(message)


def _count(items: Sized, noun: str) -> str:
    return f"{len(items)} {noun}{'s' if len(items) != 1 else ''}"
