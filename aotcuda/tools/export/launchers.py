"""Compile the modules of C that Triton compiles at the first launch of a process, without a driver.

Triton 3.6 has a launcher for each signature, and all releases have `cuda_utils`. They are linked with an empty stub of
libcuda.so.1. The compiler gets no absolute path that would reach the result.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_USUAL = ("/lib/{0}", "/usr/lib/{0}", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib")
"""Folders in which `ldconfig` finds the driver on most systems."""


def why_not() -> str:
    """Return the reason why no module of C can be compiled here; empty if one can be."""
    if _compiler() is None:
        return "there is no C compiler here (gcc or clang, or the variable CC)"
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        return "this Python has no Python.h; install its development files"
    return ""


def _compiler() -> str | None:
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def prepare(folder: Path) -> list[list[str]]:
    """Let Triton compile its modules of C with a stub of the driver in an empty folder, and load none of them.

    Return the folders of the driver for which `compile_utilities` has to compile.
    """
    import triton  # noqa: PLC0415 (only workers have Triton)
    from triton.backends.nvidia import driver  # noqa: PLC0415

    folders = _library_folders()
    command = [str(_compiler()), "-shared", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "-x", "c", os.devnull]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)

    def build(
        name: str, source: str, folder_of_source: str, _library_dirs: Any, include_dirs: Sequence[str], libraries: Any
    ) -> str:
        result = Path(folder_of_source, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
        includes = [*include_dirs, folder_of_source, sysconfig.get_paths()["include"]]
        places = dict.fromkeys([folder_of_source, str(Path(source).parent), *includes])
        subprocess.run(
            [
                *(str(_compiler()), source, "-O3", "-shared", "-fPIC", "-Wno-psabi", "-o", str(result)),
                "-Wl,--no-as-needed",  # the stub has no symbol that would make the library needed
                *(f"-l:{library}" for library in libraries),
                f"-L{folder}",
                *(f"-I{each}" for each in includes if each),
                *(f"-ffile-prefix-map={place}=." for place in places if place),
            ],
            check=True,
            capture_output=True,
        )
        return str(result)

    triton.knobs.build.impl = build
    triton.runtime.build._load_module_from_path = _not_loaded  # noqa: SLF001 (see private_parts)
    driver.libcuda_dirs = list
    driver.library_dirs.cache_clear()
    return folders


class _Module:
    """Stand in for a module of C, which cannot be loaded without the driver."""

    def __getattr__(self, name: str) -> object:
        return name


def _not_loaded(name: str, path: str) -> _Module:
    del name, path
    return _Module()


def _library_folders() -> list[list[str]]:
    """Return the folders of the driver for which `cuda_utils` is compiled: those that Triton may find for a user.

    `TRITON_LIBCUDA_PATH` names one; without it, the folders of this machine's driver and usual ones.
    """
    import triton  # noqa: PLC0415 (only workers have Triton)
    from triton.backends.nvidia import driver  # noqa: PLC0415

    if triton.knobs.nvidia.libcuda_path:
        return [[triton.knobs.nvidia.libcuda_path]]
    try:
        own = [list(driver.libcuda_dirs())]
    except (AssertionError, OSError, subprocess.SubprocessError):  # there is no driver
        own = []
    usual = [[folder.format(sysconfig.get_config_var("MULTIARCH") or "")] for folder in _USUAL]
    return [each for at, each in enumerate([*own, *usual]) if each not in [*own, *usual][:at]]


def compile_utilities(folders: Sequence[list[str]], cache: Path) -> list[list[str]]:
    """Compile `cuda_utils` into Triton's cache.

    Args:
        folders: The folders of the driver for which it is compiled.
        cache: The folder of Triton's cache.

    Returns:
        `folders`; an empty list if `cuda_utils` is the same for all of them.
    """
    from triton.backends.nvidia import driver  # noqa: PLC0415 (only workers have Triton)

    for each in folders:
        driver.libcuda_dirs = functools.partial(list, each)
        driver.library_dirs.cache_clear()
        if "instance" in vars(driver.CudaUtils):  # a process has one
            del driver.CudaUtils.instance
        driver.CudaUtils()
    driver.libcuda_dirs = list
    driver.library_dirs.cache_clear()
    return [*folders] if len(folders) == len([*cache.glob("*/cuda_utils*")]) else []


def compile_launcher(kernel: Any) -> None:
    """Compile the launcher of a kernel into Triton's cache; releases after 3.6 have one launcher for all kernels."""
    from triton.backends.nvidia import driver  # noqa: PLC0415 (only workers have Triton)

    if hasattr(driver, "make_launcher"):
        driver.CudaLauncher(kernel.src, kernel.metadata)
