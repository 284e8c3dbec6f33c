"""Builds the wheels that the GPU tests run: `python tests/gpu/prepare.py FOLDER`, on a machine with no GPU.

With `--mlir` behind the folder: only those of the second front end, for environments that have no other; `--triton`
likewise for Triton's, `--cutile` for cuTile's, `--all` for those with modules of every front end, `--nvmath` for the
one with nvmath-python's device functions, which no other way builds. With `--without foreign`: all of the first one's
but that, whose binaries are of the nvcc that is installed, and too new for the linker of an environment with CUDA 12
(`aotcuda[cu12]`).

The tests find them through the environment variable AOTCUDA_GPU_WHEELS, or build them themselves where it is not set.
A machine that was given wheels needs no compiler.
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
sys.path.insert(0, str(REPOSITORY / "tests"))  # where this is run as a script

from support import front_ends  # noqa: E402

WHEELS = {
    "quickstart": (REPOSITORY / "examples" / "quickstart", ""),
    "quickstart-ptx": (REPOSITORY / "examples" / "quickstart", "compute_80"),
    "quickstart-older": (REPOSITORY / "examples" / "quickstart", "sm_75;sm_80"),
    "quickstart-specific": (REPOSITORY / "examples" / "quickstart", "sm_80;sm_90;sm_90a;compute_90"),
    "foreign": (REPOSITORY / "tests" / "packages" / "foreign", ""),
    "foreign-functions": (REPOSITORY / "examples" / "foreign_functions", ""),
    "checked": (REPOSITORY / "tests" / "packages" / "checked", ""),
    "devicefunctions": (REPOSITORY / "tests" / "packages" / "devicefunctions", ""),
    "udf": (REPOSITORY / "examples" / "udf", ""),
    "gpufeatures": (REPOSITORY / "tests" / "packages" / "gpufeatures", ""),
    "inplace": (REPOSITORY / "tests" / "packages" / "inplace", "sm_80;sm_90;sm_100;sm_120;compute_75"),
}
"""Folder of each wheel -> its project, and the AOTCUDA_ARCH that it is built with."""

MLIR_WHEELS = {
    f"{name}-mlir": name
    for name in ("quickstart", "quickstart-older", "foreign", "checked", "devicefunctions", "gpufeatures")
}
"""Folder of each wheel that the second front end builds of the same sources -> the one above; where it is installed."""

MIXED_WHEELS = {"mixed": (REPOSITORY / "tests" / "packages" / "mixed", "")}
"""As WHEELS, for projects with modules of both front ends; where both are installed."""

CPP_WHEELS = {name: (REPOSITORY / "tests" / "packages" / name, "") for name in ("cudacpp", "cppdevice")}
"""As WHEELS, with kernels in CUDA C++ and Numba's beside them; where pyelftools is installed too."""


TRITON_WHEELS = {name: (REPOSITORY / "tests" / "packages" / name, "") for name in ("tritonkernels", "tritonops")}
"""As WHEELS, for Triton's kernels; where Triton is installed."""

ALL_WHEELS = {"all-front-ends": (REPOSITORY / "examples" / "all_front_ends", "")}
"""As WHEELS, with modules of every front end; where all compilers are installed."""


NVMATH_WHEELS = {"mathdx": (REPOSITORY / "tests" / "packages" / "mathdx", "")}
"""As WHEELS, for environments with nvmath-python and libmathdx; the import of these asks for a driver."""


CUTILE_WHEELS = {"cutilekernels": (REPOSITORY / "tests" / "packages" / "cutilekernels", "")}
"""Likewise for cuTile's kernels; where cuda-tile is installed, which has an environment of its own (extra `cutile`)."""


def make_binaries(project: Path) -> None:
    """Make the binaries that the project `foreign` links; nvcc is that of the package nvidia-cuda-nvcc, or on PATH."""
    from cuda.pathfinder import find_nvidia_binary_utility

    nvcc = find_nvidia_binary_utility("nvcc") or shutil.which("nvcc") or "nvcc"
    subprocess.run([sys.executable, "make_binaries.py", nvcc], cwd=project, check=True)


def build(folder: Path) -> None:
    """Build every wheel into a folder of its own below `folder`."""
    make_binaries(WHEELS["foreign"][0])
    build_without(folder, "")
    build_mlir(folder)
    build_mixed(folder)
    build_triton(folder)
    build_cpp(folder)
    build_all(folder)


def build_triton(folder: Path) -> None:
    """Build the wheels of Triton's kernels, if Triton is installed."""
    if find_spec("triton") is not None:
        build_each(TRITON_WHEELS, folder)


def build_cutile(folder: Path) -> None:
    """Build the wheels of cuTile's kernels."""
    build_each(CUTILE_WHEELS, folder)


def build_nvmath(folder: Path) -> None:
    """Build the wheel with nvmath-python's device functions."""
    build_each(NVMATH_WHEELS, folder)


def build_without(folder: Path, left_out: str) -> None:
    """Build the first front end's wheels but one."""
    build_each({name: one for name, one in WHEELS.items() if name != left_out}, folder)


def build_mixed(folder: Path) -> None:
    """Build the wheels with modules of both front ends; nothing where one of them is not installed."""
    if front_ends.installed() and find_spec("numba_cuda") is not None:
        build_each(MIXED_WHEELS, folder)


def build_cpp(folder: Path) -> None:
    """Build the wheels with kernels in CUDA C++; nothing where what they need is not installed."""
    if find_spec("elftools") is not None and find_spec("numba_cuda") is not None:
        build_each(CPP_WHEELS, folder)


def build_all(folder: Path) -> None:
    """Build the wheels with modules of every front end; nothing where one of the compilers is not installed."""
    if front_ends.installed() and all(find_spec(package) for package in ("numba_cuda", "triton", "elftools")):
        build_each(ALL_WHEELS, folder)


def build_mlir(folder: Path) -> None:
    """Build the wheels of the second front end likewise; nothing where it is not installed."""
    if not front_ends.installed():
        return
    make_binaries(WHEELS["foreign"][0])
    for name, original in MLIR_WHEELS.items():
        project, arch = WHEELS[original]
        with tempfile.TemporaryDirectory() as temporary:
            ignored = shutil.ignore_patterns("__pycache__", "dist", "kernels.aotcuda", "kernels.py*")
            copy = Path(shutil.copytree(project, Path(temporary, original), ignore=ignored))
            build_one(front_ends.port(copy, front_ends.absent(original)), folder / name, arch)


def build_each(wheels: dict[str, tuple[Path, str]], folder: Path) -> None:
    """Build wheels, each into the folder of its name below `folder`."""
    for name, (project, arch) in wheels.items():
        build_one(project, folder / name, arch)


def build_one(project: Path, folder: Path, arch: str) -> None:
    """Build a project's wheel into `folder`, for the targets `arch` if there are any."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    command += ["--outdir", str(folder)]  # by whichever of aotcuda's extras is installed
    environment = {**os.environ, "AOTCUDA_ARCH": arch}
    subprocess.run([*command, str(project)], check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    target, options = Path(sys.argv[1]).resolve(), sys.argv[2:]
    if options[:1] == ["--without"]:
        build_without(target, options[1])
    else:
        ways = {
            "--mlir": build_mlir,
            "--triton": build_triton,
            "--cutile": build_cutile,
            "--all": build_all,
            "--nvmath": build_nvmath,
        }
        ways.get("".join(options), build)(target)
