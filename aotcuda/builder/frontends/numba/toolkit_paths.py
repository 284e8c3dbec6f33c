"""Where Numba's compilers find the CUDA toolkit: the one that the worker has loaded, wherever else they would look."""

from __future__ import annotations

from pathlib import Path

from aotcuda.builder import toolchain


def found() -> dict[str, str] | None:
    """The paths that `get_cuda_paths` of either compiler is asked for, by its names; None leaves it to search.

    It would search the installed packages, where those of CUDA 12 come first, and miss those that pip has put into an
    overlay for an isolated build.
    """
    toolkit = toolchain.loaded()
    if toolkit is None:
        return None
    folder = str(Path(toolkit.libraries["nvrtc"]).parent)
    return {
        "nvrtc": toolkit.libraries["nvrtc"],
        "nvvm": toolkit.libraries["nvvm"],
        "libdevice": toolkit.libdevice,
        "cudalib_dir": folder,
        "static_cudalib_dir": folder,
        "include_dir": toolkit.include_dirs[0],
    }
