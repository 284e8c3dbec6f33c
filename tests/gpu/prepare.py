"""Build the wheels that the GPU tests run: `python tests/gpu/prepare.py FOLDER`, on a machine without a GPU.

    python tests/gpu/prepare.py FOLDER                      # all wheels whose compilers are installed
    python tests/gpu/prepare.py FOLDER --triton             # one group: numba, mlir, mixed, cpp, triton, all
    python tests/gpu/prepare.py FOLDER --cutile             # needs an environment with the extra `cutile`
    python tests/gpu/prepare.py FOLDER --nvmath             # needs nvmath-python, libmathdx and a driver
    python tests/gpu/prepare.py FOLDER --without foreign    # for CUDA 12, whose linker refuses binaries of a newer nvcc

The tests find the wheels by the environment variable AOTCUDA_GPU_WHEELS, or build them if it is not set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
EXAMPLES, PACKAGES = REPOSITORY / "examples", REPOSITORY / "tests" / "packages"
sys.path.insert(0, str(REPOSITORY / "tests"))  # for runs as a script

from support import front_ends  # noqa: E402

WHEELS = {
    "quickstart": (EXAMPLES / "quickstart", ""),
    "quickstart-ptx": (EXAMPLES / "quickstart", "compute_80"),
    "quickstart-older": (EXAMPLES / "quickstart", "sm_75;sm_80"),
    "quickstart-specific": (EXAMPLES / "quickstart", "sm_80;sm_90;sm_90a;compute_90"),
    "foreign": (PACKAGES / "foreign", ""),
    "foreign-functions": (EXAMPLES / "foreign_functions", ""),
    "checked": (PACKAGES / "checked", ""),
    "devicefunctions": (PACKAGES / "devicefunctions", ""),
    "udf": (EXAMPLES / "udf", ""),
    "gpufeatures": (PACKAGES / "gpufeatures", ""),
    "inplace": (PACKAGES / "inplace", "sm_80;sm_90;sm_100;sm_120;compute_75"),
    "mixed": (PACKAGES / "mixed", ""),
    "cudacpp": (PACKAGES / "cudacpp", ""),
    "cppdevice": (PACKAGES / "cppdevice", ""),
    "cppimages": (PACKAGES / "cppimages", ""),
    "tritonkernels": (PACKAGES / "tritonkernels", ""),
    "tritonops": (PACKAGES / "tritonops", ""),
    "all-front-ends": (EXAMPLES / "all_front_ends", ""),
    "mathdx": (PACKAGES / "mathdx", ""),
    "cutilekernels": (PACKAGES / "cutilekernels", ""),
}
"""Folder of each wheel -> its project, and the AOTCUDA_ARCH that it is built with."""

MLIR_WHEELS = {
    f"{name}-mlir": name
    for name in ("quickstart", "quickstart-older", "foreign", "checked", "devicefunctions", "gpufeatures")
}
"""Folder of each wheel that numba-cuda-mlir builds of the same sources -> the folder above that it replaces."""

_NUMBA, _MLIR, _CPP = "numba_cuda", "numba_cuda_mlir", "elftools"
GROUPS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "numba": ((_NUMBA,), [*WHEELS][:11]),
    "mlir": ((_MLIR,), [*MLIR_WHEELS]),
    "mixed": ((_NUMBA, _MLIR), ["mixed"]),
    "cpp": ((_NUMBA, _CPP), ["cudacpp", "cppdevice", "cppimages"]),
    "triton": (("triton",), ["tritonkernels", "tritonops"]),
    "all": ((_NUMBA, _MLIR, "triton", _CPP), ["all-front-ends"]),
    "nvmath": (("nvmath",), ["mathdx"]),
    "cutile": (("cuda.tile",), ["cutilekernels"]),
}
"""Groups of wheels, each with the Python packages that its builds need."""


def build(folder: Path, without: str = "") -> None:
    """Build the wheels whose compilers are installed, each into its own folder below `folder`."""
    for group, (packages, names) in GROUPS.items():
        if group not in ("nvmath", "cutile") and all(find_spec(package) for package in packages):
            build_wheels([name for name in names if name.removesuffix("-mlir") != without], folder)


def build_wheels(names: list[str], folder: Path) -> None:
    """Build the named wheels, each into the folder of its name below `folder`."""
    for name in names:
        original = MLIR_WHEELS.get(name, name)
        project, arch = WHEELS[original]
        if original == "foreign":
            make_binaries(project)
        if name == original:
            build_wheel(project, folder / name, arch)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            ignored = shutil.ignore_patterns("__pycache__", "dist", "kernels.aotcuda", "kernels.py*")
            copy = Path(shutil.copytree(project, Path(temporary, original), ignore=ignored))
            build_wheel(front_ends.port(copy, front_ends.refused_names(original)), folder / name, arch)


def make_binaries(project: Path) -> None:
    """Make the binaries that the project `foreign` links, by nvcc of the package nvidia-cuda-nvcc or on PATH."""
    from cuda.pathfinder import find_nvidia_binary_utility

    nvcc = find_nvidia_binary_utility("nvcc") or shutil.which("nvcc") or "nvcc"
    subprocess.run([sys.executable, "make_binaries.py", nvcc], cwd=project, check=True)


def build_wheel(project: Path, folder: Path, arch: str) -> None:
    """Build a project's wheel into `folder`, for the targets `arch` if there are any."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    command += ["--outdir", str(folder)]
    environment = {**os.environ, "AOTCUDA_ARCH": arch}
    subprocess.run([*command, str(project)], check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    target, options = Path(sys.argv[1]).resolve(), sys.argv[2:]
    if options[:1] == ["--without"] or not options:
        build(target, *options[1:])
    else:
        for option in options:
            build_wheels(GROUPS[option.removeprefix("--")][1], target)
