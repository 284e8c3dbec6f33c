"""Builds the wheels that the GPU tests run: `python tests/gpu/prepare.py FOLDER`, on a machine with no GPU.

The tests find them through the environment variable AOTCUDA_GPU_WHEELS, or build them themselves where it is not set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cuda.pathfinder import find_nvidia_binary_utility

REPOSITORY = Path(__file__).parents[2]

WHEELS = {
    "quickstart": (REPOSITORY / "examples" / "quickstart", ""),
    "quickstart-ptx": (REPOSITORY / "examples" / "quickstart", "compute_80"),
    "quickstart-older": (REPOSITORY / "examples" / "quickstart", "sm_75;sm_80"),
    "quickstart-specific": (REPOSITORY / "examples" / "quickstart", "sm_80;sm_90;sm_90a;compute_90"),
    "foreign": (REPOSITORY / "tests" / "packages" / "foreign", ""),
    "foreign-functions": (REPOSITORY / "examples" / "foreign_functions", ""),
    "checked": (REPOSITORY / "tests" / "packages" / "checked", ""),
    "gpufeatures": (REPOSITORY / "tests" / "packages" / "gpufeatures", ""),
}
"""Folder of each wheel -> its project, and the AOTCUDA_ARCH that it is built with."""


def make_binaries(project: Path) -> None:
    """Make the binaries that the project `foreign` links; nvcc is that of the package nvidia-cuda-nvcc, or on PATH."""
    nvcc = find_nvidia_binary_utility("nvcc") or shutil.which("nvcc") or "nvcc"
    subprocess.run([sys.executable, "make_binaries.py", nvcc], cwd=project, check=True)


def build(folder: Path) -> None:
    """Build every wheel into a folder of its own below `folder`."""
    make_binaries(WHEELS["foreign"][0])
    for name, (project, arch) in WHEELS.items():
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / name)]
        environment = {**os.environ, "AOTCUDA_ARCH": arch}
        subprocess.run([*command, str(project)], check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
