"""A toolkit with nvcc and its device linker, from the packages of the extra `test`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_binary_utility


def make(folder: Path) -> Path:
    """Make a toolkit in `folder`: the device linker does not find the libraries where the packages have them."""
    nvcc = find_nvidia_binary_utility("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("nvcc or g++ is not installed")
    home = Path(nvcc).parents[1]
    if (home / "nvvm" / "lib64").is_dir():
        return home
    (folder / "bin").mkdir(parents=True)
    (folder / "nvvm" / "lib64").mkdir(parents=True)
    for path in (home / "bin").iterdir():
        (folder / "bin" / path.name).symlink_to(path)
    (folder / "bin" / "nvcc").unlink()
    shutil.copy(nvcc, folder / "bin" / "nvcc")  # it finds its toolkit by its own path, with links resolved
    for name in ("bin", "libdevice"):
        (folder / "nvvm" / name).symlink_to(home / "nvvm" / name)
    (library,) = (home / "lib").glob("libnvvm.so.*")
    (folder / "nvvm" / "lib64" / "libnvvm.so").symlink_to(library)
    for name in ("lib", "lib64"):
        (folder / name).symlink_to(home / "lib")
    (folder / "include").symlink_to(home / "include")
    return folder


def run(toolkit: Path, *command: str | Path) -> str:
    """Run a program with the toolkit on its path, and return its output."""
    environment = {
        **os.environ,
        "PATH": f"{toolkit / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{toolkit / 'lib64'}",
    }
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout
