"""Load a worker's toolkit, and return its version and its targets."""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cuda import pathfinder
from cuda.bindings import nvjitlink, nvrtc

from aotcuda import arch, gpus, registry
from aotcuda.builder.plan import toolkits
from aotcuda.common import gpu_facts
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.arch import Target
    from aotcuda.builder.plan.toolkits import Toolkit

_loaded: list[Toolkit] = []


def load(toolkit: Toolkit | None) -> None:
    """Load the libraries of `toolkit` for the whole process; None leaves the choice to the bindings.

    The bindings use a library that is loaded already, whatever its version, because `cuda.pathfinder` looks for loaded
    libraries first.

    Raises:
        ToolchainError: A library cannot be loaded, or another toolkit's was loaded before.
    """
    if toolkit is None:
        return
    for path in toolkit.libraries.values():
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        except OSError as error:
            message = f"{path} cannot be loaded ({error}); install the extra that you build with again"
            raise ToolchainError(message) from error
    _loaded.append(toolkit)
    check_loaded()


def check_libraries(*, packs: bool) -> None:
    """Load the libraries that every build needs, and with `packs` the one that packs images.

    Raises:
        ImportError: One is not installed.
    """
    versions = {"NVRTC": nvrtc.nvrtcVersion, "nvJitLink": nvjitlink.version}
    if packs:
        versions["nvFatbin"] = importlib.import_module("cuda.bindings.nvfatbin").version
    for name, version in versions.items():
        try:
            version()
        except RuntimeError as error:
            message = f"{name} is not installed: {str(error).partition(chr(10))[0]}"
            raise ImportError(message) from error


def check_loaded() -> None:
    """Check that this process uses the libraries of the loaded toolkit and no others."""
    if (toolkit := loaded()) is None:
        return
    versions = {"NVRTC": (toolkit_version(), toolkit.cuda), "nvJitLink": (nvjitlink.version(), toolkit.linker)}
    for name, (version, expected) in versions.items():
        if tuple(version) != expected:
            message = (
                f"this build is to use {name} {gpu_facts.dotted(expected)}, and {gpu_facts.dotted(version)} is loaded; "
                "run it in a fresh environment, with one of aotcuda's extras and no other CUDA on LD_LIBRARY_PATH"
            )
            raise ToolchainError(message)
    library = Path(toolkit.libraries["nvvm"]).resolve()
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # without /proc it is unknown
        return
    for line in maps.splitlines():
        mapped = line.split(maxsplit=5)[-1]
        if "libnvvm.so" in mapped and Path(mapped) != library:
            message = f"this build is to use the libNVVM of {toolkit.home}, and {mapped} is loaded as well"
            raise ToolchainError(message)


def loaded() -> Toolkit | None:
    """Return the loaded toolkit; None if the bindings chose one."""
    return _loaded[0] if _loaded else None


def include_dirs() -> tuple[str, ...]:
    """Return the folders of the toolkit's headers and of libcu++."""
    if (toolkit := loaded()) is not None:
        return toolkit.include_dirs
    folders = [pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl", "nvcc")]
    return tuple(dict.fromkeys(path for path in folders if path))


def toolkit_version() -> tuple[int, int]:
    """Return the CUDA version of the toolchain, `(major, minor)`."""
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def supported_capabilities() -> tuple[tuple[int, int], ...]:
    """Return the compute capabilities for which the toolchain compiles, in order."""
    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return tuple(sorted((number // 10, number % 10) for number in numbers))


def unknown_target(name: str, key: str, tool: str, targets: Iterable[str], remedy: str = "") -> ToolchainError:
    """Return the error for a target, named at `key`, that a compiler does not support; several compilers count once."""
    names = list(targets)
    target = arch.parse(name)
    if not remedy and target.capability not in gpus.BY_NUMBER:  # no GPU has it, or only a newer aotcuda knows it
        lower = [known for known in names if arch.parse(known).capability < target.capability]
        newer = ", or install newer compilers and a newer aotcuda"
        remedy = f"write {lower[-1]}{newer}" if lower else f"the lowest is {names[0]}"
    error = ToolchainError(
        f"{key}: {name} is not known to {tool}, which builds for {', '.join(names)}; "
        f"{remedy or 'remove it, or install a newer one'}"
    )
    error.fault = f"{key}: {name}"
    return error


def check_target(target: Target, key: str, frontend: str = registry.DEFAULT) -> None:
    """Refuse a target that the toolchain does not support; `frontend` selects the extra that the message names.

    Raises:
        ToolchainError: It does not; the message lists the supported targets, and names the extra whose toolchain
            supports it.
    """
    numbers = supported_capabilities()
    lowest = gpus.FIRST_WITH[target.suffix]
    if target.capability in numbers and target.capability >= lowest:
        return
    toolkit = loaded()
    if toolkit is not None and toolkit.links(target):
        return
    kind = str(target).partition("_")[0]
    names = [f"{kind}_{major}{minor}{target.suffix}" for major, minor in numbers if (major, minor) >= lowest]
    remedy = ""
    if releases := gpu_facts.builders(target):
        extra = next((name for name, pair in registry.TOOLKITS.items() if toolkits.code_target(target, *pair)), None)
        front_end = registry.find(frontend)
        remedy = f"{target} needs {releases}" + (
            f": install {front_end.requirement_for_extra(extra)}"
            if extra and front_end
            else ", which no extra of aotcuda brings"
        )
    raise unknown_target(str(target), key, f"the CUDA {gpu_facts.dotted(toolkit_version())} toolchain", names, remedy)
