"""Compare the code of numba-cuda with that of numba-cuda-mlir: registers, stack and shared memory, and GPU time.

    python bench/front_ends_code.py build FOLDER     # where both compilers and cuobjdump are installed; needs no GPU
    python bench/front_ends_code.py time FOLDER      # on a machine with a GPU and CuPy, with the same folder

Both compile the kernels of bench/kernels, of examples/quickstart and of packages under tests/packages, from the same
sources with another import of `cuda`. NVIDIA's cuobjdump reads the resources from the images. Four kernels of
bench/kernels are timed, in turn on the same arrays.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import gpu_time
import machine

ARCH = "sm_90"
NUMBA, MLIR = FRONT_ENDS = ("numba-cuda", "numba-cuda-mlir")
REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("checked", "devicefunctions", "features", "flat", "gpufeatures")
PROJECTS = {
    "benchkernels": REPOSITORY / "bench" / "kernels",
    "quickstart": REPOSITORY / "examples" / "quickstart",
    **{name: REPOSITORY / "tests" / "packages" / name for name in PACKAGES},
}
RESOURCES = {"registers": "REG", "stack": "STACK", "shared": "SHARED"}


def main() -> int:
    parser = machine.parser(__doc__, "front_ends_code")
    parser.add_argument("step", choices=["build", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--scale", type=int, default=1, help="divides the arrays' extents")
    arguments = parser.parse_args()
    here, notes = machine.describe(), arguments.folder / "front_ends_code.json"
    if arguments.step == "build":
        figures = _build(arguments.folder)
        notes.write_text(json.dumps({"machine": here, "figures": figures}, indent=1), encoding="utf-8")
        _print(figures)
        machine.write(arguments.out, here, arch=ARCH, totals=_totals(figures), kernels=figures)
        return 0
    before = json.loads(notes.read_text(encoding="utf-8"))
    times = _times(arguments.folder, arguments.turns, arguments.scale)
    rows = [(name, *(item[way] for way in FRONT_ENDS), item[MLIR] / item[NUMBA]) for name, item in times.items()]
    machine.table(("us on the GPU", *FRONT_ENDS, "over"), rows)
    machine.write(
        arguments.out,
        here,
        built_on=before["machine"],
        arch=ARCH,
        microseconds=times,
        totals=_totals(before["figures"]),
        kernels=before["figures"],
    )
    return 0


def _build(folder: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Build all packages by both; return the resources by package and symbol, then by front end."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for package, project in PROJECTS.items():
        used = {name: _resources(_wheel(package, project, name, folder)) for name in FRONT_ENDS}
        for symbol in sorted(used[NUMBA].keys() & used[MLIR].keys()):
            found[f"{package}: {symbol}"] = {name: used[name][symbol] for name in FRONT_ENDS}
    return found


def _wheel(package: str, project: Path, front_end: str, folder: Path) -> Path:
    sys.path.insert(0, str(REPOSITORY / "tests"))
    front_ends: Any = importlib.import_module("support.front_ends")
    target = folder / front_end / package
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        ignored = shutil.ignore_patterns("__pycache__", "dist")
        copy = Path(shutil.copytree(project, Path(temporary, package), ignore=ignored))
        if front_end == MLIR:
            front_ends.port(copy, front_ends.refused_names(package))
        if package == "benchkernels":  # one process imports both
            _rename(copy, package, _module(front_end))
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(copy)]
        environment = {**os.environ, "AOTCUDA_ARCH": ARCH}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (wheel,) = target.glob("*.whl")
    return wheel


def _module(front_end: str) -> str:
    return f"benchkernels_{front_end.replace('-', '_')}"


def _rename(project: Path, name: str, other: str) -> None:
    config = project / "pyproject.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(name, other), encoding="utf-8")
    (project / name).rename(project / other)


def _resources(wheel: Path) -> dict[str, dict[str, int]]:
    """Return the resources of each kernel, by module and symbol."""
    images: Any = importlib.import_module("support.images")
    fatbin: Any = importlib.import_module("aotcuda.binary.fatbin")
    found: dict[str, dict[str, int]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not (module := re.search(r"(\w+)\.aotcuda/kernels\.fatbin$", name)):
                continue
            (image,) = [entry.content for entry in fatbin.read(archive.read(name), name) if entry.arch == ARCH]
            for symbol, usage in images.resource_usage(image).items():
                if symbol.startswith("__cuda"):  # the toolkit's functions, where they are not inlined
                    continue
                found[f"{module[1]}.{symbol}"] = {what: int(usage[key]) for what, key in RESOURCES.items()}
    return found


def _totals(figures: dict[str, dict[str, dict[str, int]]]) -> dict[str, Any]:
    """Return sums, and how many kernels of numba-cuda-mlir take more, as much, or less of each resource."""
    totals: dict[str, Any] = {"kernels": len(figures)}
    for what in RESOURCES:
        pairs = [(item[NUMBA][what], item[MLIR][what]) for item in figures.values()]
        totals[what] = {
            NUMBA: sum(one for one, _ in pairs),
            MLIR: sum(other for _, other in pairs),
            "more": sum(other > one for one, other in pairs),
            "same": sum(other == one for one, other in pairs),
            "less": sum(other < one for one, other in pairs),
        }
    return totals


def _print(figures: dict[str, dict[str, dict[str, int]]]) -> None:
    header = ("kernel", *(f"{what} {name}" for what in RESOURCES for name in FRONT_ENDS))
    machine.table(
        header,
        [(name, *(item[way][what] for what in RESOURCES for way in FRONT_ENDS)) for name, item in figures.items()],
    )
    for what, total in _totals(figures).items():
        print(what, total)


def _times(folder: Path, turns: int, scale: int) -> dict[str, dict[str, float]]:
    """Return microseconds on the GPU by kernel, then by front end; exit if their results differ."""
    cupy: Any = importlib.import_module("cupy")
    modules: dict[str, Any] = {}
    for name in FRONT_ENDS:
        (wheel,) = (folder / name / "benchkernels").glob("*.whl")
        target = folder / name / "installed"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
        sys.path.insert(0, str(target))
        modules[name] = importlib.import_module(f"{_module(name)}.kernels")
    found = {}
    for kernel, (grid, block, given, _, out) in gpu_time.cases(cupy, scale).items():
        launchers = {name: getattr(module, kernel)[grid, block] for name, module in modules.items()}
        ways = {name: gpu_time.call(launcher, given) for name, launcher in launchers.items()}
        gpu_time.agree(cupy, kernel, ways, out)
        found[kernel] = gpu_time.measure(cupy, ways, turns)
    return found


if __name__ == "__main__":
    sys.exit(main())
