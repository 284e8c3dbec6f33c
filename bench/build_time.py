"""How long wheels take to build, beside nvcc with two threads on the same kernels in C++, turn by turn.

python bench/build_time.py [--runs 5] [--thousand] [--gpu]

- cold: fifty kernels for five GPU generations, with nothing kept from earlier builds; nvcc gets one file.
- filling: the same, with a build cache that is empty before, as the first build of a user has it.
- edited, again: the same after one kernel was edited, and after nothing was, with a build cache that is filled before.
- lowered: the fifty again, with all machine code made before and no kernel lowered: what a build takes at the least,
  whatever its linker takes.
- with --thousand: twenty modules of fifty kernels each, cold and after one kernel was edited; nvcc gets twenty files
  of fifty.
- with --gpu, where there is CuPy: a process that launches a kernel of an editable install, after it was edited,
  and once more.
- back end: the same project without aotcuda, of which the times of builds are a part.

Where there is a driver, nvJitLink has it keep what it makes (CUDA_CACHE_PATH), and the second of two cold builds would
not be cold. So the driver's cache is turned off.

Memory is what the processes of a build hold together (their proportional set size), looked at every 50 ms in a run that
is not timed.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import machine
import projects
from cuda.pathfinder import find_nvidia_binary_utility

import aotcuda

if TYPE_CHECKING:
    from collections.abc import Callable

_QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart"
_BUILD = (sys.executable, "-m", "hatchling", "build", "-t", "wheel")
_NOTHING_KEPT = {"CUDA_CACHE_DISABLE": "1"}
_TICK = 0.05
_MIB = 1 << 20


def main() -> int:
    parser = machine.parser(__doc__, "build_time")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--thousand", action="store_true", help="also twenty modules of fifty kernels")
    parser.add_argument("--gpu", action="store_true", help="also launches of an editable install")
    arguments = parser.parse_args()
    nvcc = find_nvidia_binary_utility("nvcc")
    if nvcc is None:
        sys.exit("nvcc is not installed; it belongs to the extra `test`")
    here = machine.describe()
    compileall.compile_dir(str(Path(aotcuda.__file__).parent), quiet=1)  # as installers leave it; workers write none
    with tempfile.TemporaryDirectory() as temporary:
        cases, memory = _cases(Path(temporary), nvcc, thousand=arguments.thousand)
        if arguments.gpu:
            cases |= _editable(Path(temporary))
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(arguments.runs):
            for name, run in cases.items():
                seconds[name].append(run())
        peaks = {name: _peak(*command) for name, command in memory.items()}
    figures = {name: machine.summary(values) for name, values in seconds.items()}
    machine.table(("seconds", "median", "min"), [(name, item["median"], item["min"]) for name, item in figures.items()])
    print()
    machine.table(("MiB at most", "at once"), [(name, peak // _MIB) for name, peak in peaks.items()])
    met = _met({name: item["median"] for name, item in figures.items()}, peaks)
    machine.verdicts(met, {})
    machine.write(arguments.out, here, unit="seconds", figures=figures, memory_bytes=peaks, measures=met)
    return 0 if all(met.values()) else 1


def _cases(
    folder: Path, nvcc: str, *, thousand: bool
) -> tuple[dict[str, Callable[[], float]], dict[str, tuple[Path, dict[str, str]]]]:
    """What is timed, each a function that returns seconds; and the builds whose memory is looked at."""
    ignored = shutil.ignore_patterns("dist", "kernels.aotcuda", "kernels.py*", "__pycache__")
    quickstart = Path(shutil.copytree(_QUICKSTART, folder / "quickstart", ignore=ignored))
    fifty = projects.generate(folder, "fifty", 50)
    edited = projects.generate(folder / "edited", "fifty", 50)
    plain = _without_hook(projects.generate(folder / "plain", "fifty", 50))
    cpp = projects.generate_cpp(folder / "cpp", 50)
    cold = _NOTHING_KEPT | {"AOTCUDA_BUILD_CACHE": "0"}
    kept = _NOTHING_KEPT | {"AOTCUDA_BUILD_CACHE": str(folder / "cache")}
    _build(edited, kept)
    code = _part(folder / "cache", folder / "code", "code")
    beside = projects.generate(folder / "beside", "fifty", 50)

    read_alone = {"AOTCUDA_BUILD_CACHE_ACCESS": "read"}  # so each build finds the same, and writes nothing
    from_code = _NOTHING_KEPT | read_alone | {"AOTCUDA_BUILD_CACHE": str(code)}

    runs = {
        "quickstart: 2 + 2 signatures, 5 archs and PTX, cold": lambda: _build(quickstart, cold),
        "fifty, cold": lambda: _build(fifty, cold),
        "fifty, filling a cache": lambda: _filling(fifty, folder / "filled"),
        "fifty, lowered": lambda: _build(beside, from_code),
        "fifty, nvcc": lambda: _nvcc(nvcc, cpp),
        "fifty, one kernel edited": lambda: _build(_edit(edited), kept),
        "fifty, again": lambda: _build(edited, kept),
        "fifty, the back end alone": lambda: _build(plain, cold),
    }
    memory = {"fifty, cold": (fifty, cold)}
    if thousand:
        many = projects.generate(folder, "thousand", 50, modules=20)
        files = projects.generate_cpp(folder / "many", 50, files=20)
        kept_many = _NOTHING_KEPT | {"AOTCUDA_BUILD_CACHE": str(folder / "of_many")}
        runs |= {"thousand, cold": lambda: _build(many, cold), "thousand, nvcc": lambda: _nvcc(nvcc, files)}
        _build(many, kept_many)
        runs["thousand, one kernel edited"] = lambda: _build(_edit(many), kept_many)
        memory["thousand, cold"] = (many, cold)
    return runs, memory


_LAUNCH = """
import cupy, fifty.kernels
x, out = cupy.ones(64, "float32"), cupy.empty(64, "float32")
fifty.kernels.k0[1, 64](2.0, x, out)
print(out[0])
"""


def _editable(folder: Path) -> dict[str, Callable[[], float]]:
    project = projects.generate(folder / "editable", "fifty", 50)
    environ = _NOTHING_KEPT | {
        "AOTCUDA_BUILD_CACHE": str(folder / "cache"),
        "AOTCUDA_CACHE_DIR": str(folder / "launched"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")])),
    }
    _timed([*_BUILD[:-1], "wheel:editable"], project, os.environ | environ)

    def launch() -> float:
        return _timed([sys.executable, "-c", _LAUNCH], folder, os.environ | environ)

    def launch_edited() -> float:
        _edit(project)
        return launch()

    launch()  # CuPy keeps code of its own
    return {"fifty, editable, launched after an edit": launch_edited, "fifty, editable, launched again": launch}


def _met(median: dict[str, float], peaks: dict[str, int]) -> dict[str, bool]:
    alone = median["fifty, the back end alone"]
    met = {
        "quickstart: under 5 s": median["quickstart: 2 + 2 signatures, 5 archs and PTX, cold"] < 5,
        "fifty, cold: at most 1.5 times nvcc": median["fifty, cold"] <= 1.5 * median["fifty, nvcc"],
        "fifty, one kernel edited: at most 2.5 s": median["fifty, one kernel edited"] <= 2.5,
        "fifty, again: at most 0.3 s beyond the back end": median["fifty, again"] - alone <= 0.3,
    }
    if "fifty, editable, launched again" in median:
        after = median["fifty, editable, launched after an edit"] - median["fifty, editable, launched again"]
        met["fifty, editable, launched after an edit: at most 1.5 s beyond one that was not"] = after <= 1.5
    if "thousand, cold" in median:
        met["thousand, cold: at most 2 times nvcc"] = median["thousand, cold"] <= 2 * median["thousand, nvcc"]
        met["thousand, one kernel edited: at most 40 s"] = median["thousand, one kernel edited"] <= 40
    return met | {f"{name}: under 1 GiB": peak < 1024 * _MIB for name, peak in peaks.items()}


def _without_hook(project: Path) -> Path:
    path = project / "pyproject.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("[tool.hatch.build.targets.wheel.hooks.aotcuda]\n", ""))
    return project


def _edit(project: Path) -> Path:
    """Change a constant of the first kernel, each time to another one."""
    source = next(
        path for path in sorted(project.rglob("_kernels*.py")) if "cuda.jit" in path.read_text(encoding="utf-8")
    )
    text = source.read_text(encoding="utf-8")
    source.write_text(re.sub(r"(a \* x\[i\] \+ )(\d+)", lambda it: f"{it[1]}{int(it[2]) + 1}", text, count=1))
    return project


def _part(cache: Path, folder: Path, kind: str) -> Path:
    """A copy of a build cache with its entries of one kind alone."""
    shutil.copytree(cache, folder)
    for entry in folder.glob("v*/*/*.aotcuda"):
        if json.loads((entry / "entry.json").read_text(encoding="utf-8"))["record"]["kind"] != kind:
            shutil.rmtree(entry)
    return folder


def _build(project: Path, more: dict[str, str]) -> float:
    return _timed([*_BUILD], project, os.environ | more)


def _filling(project: Path, cache: Path) -> float:
    shutil.rmtree(cache, ignore_errors=True)
    return _build(project, _NOTHING_KEPT | {"AOTCUDA_BUILD_CACHE": str(cache)})


def _nvcc(nvcc: str, files: list[Path]) -> float:
    """All files, one after the other, for the same GPUs."""
    numbers = [arch.removeprefix("sm_") for arch in projects.ARCHS]
    targets = [word for number in numbers for word in ("-gencode", f"arch=compute_{number},code=sm_{number}")]
    return sum(
        _timed([nvcc, "--threads", "2", *targets, "-fatbin", "-o", f"{path}.fatbin", str(path)], path.parent, None)
        for path in files
    )


def _timed(command: list[str], folder: Path, environment: dict[str, str] | None) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def _peak(project: Path, more: dict[str, str]) -> int:
    """The most bytes that a build's processes have held together."""
    most = 0
    with subprocess.Popen(
        _BUILD, cwd=project, env=os.environ | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as build:
        while build.poll() is None:
            most = max(most, sum(map(_proportional, _family(build.pid))))
            time.sleep(_TICK)
    if build.returncode:
        sys.exit(f"the build in {project} failed")
    return most


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):  # it has ended, or one of its threads
            for task in list(Path(f"/proc/{one}/task").iterdir()):
                found += map(int, (task / "children").read_text().split())
    return found


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    sys.exit(main())
