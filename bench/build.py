"""Compare the build time of wheels with nvcc's for the same kernels in C++, and with another commit of aotcuda.

    python bench/build.py [--runs 5] [--before TREE]
    python bench/build.py --files [--runs 5] [--before TREE]

- cold: fifty kernels for five GPU generations, without a build cache; nvcc gets one file, and two threads.
- filling a cache: the same with an empty build cache, as in the first build of a user.
- again, edited: the same with a full build cache, after no change and after an edit of one kernel.
- a thousand (`--thousand`): an edit of one of a thousand kernels, in this checkout alone.
- quickstart: the example, cold.
- back end: hatchling's build of the fifty without aotcuda; all other times include it.

With `--files` it measures a module of ten `.cu` files of five kernels, and writes `build_files.json`: a cold build, an
edit of one file, the bytes of the wheel, the processor time of an import and of a first launch on the stand-in driver.

All cases take turns, and every second turn is in the opposite order. TREE is a checkout of another commit. It runs on
the same Python with the same compilers; its figures begin with "before":

    git worktree add --detach ../before 2a99a90 && python bench/build.py --before ../before

On two idle cores a run takes about a quarter of a minute for each state. Before the first run each case is built
once or twice, and the thousand kernels in two minutes.

A driver caches the code that nvJitLink makes (CUDA_CACHE_PATH), and the second of two cold builds would not be cold.
So the driver's cache is off.

Memory is the largest sum of the proportional set sizes of a build's processes, read every 50 ms in a run without a
clock.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
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

if TYPE_CHECKING:
    from collections.abc import Callable

    Cases = dict[str, Callable[[], float]]

_CHECKOUT = Path(__file__).resolve().parent.parent
_BUILD = (sys.executable, "-m", "hatchling", "build", "-t", "wheel")
_TICK = 0.05
_THOUSAND = "a thousand, one kernel edited"
_MIB = 1 << 20


def main() -> int:
    parser = machine.parser(__doc__, "build")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of another commit, built in turn")
    parser.add_argument("--files", action="store_true", help="measure ten .cu files alone")
    parser.add_argument("--thousand", action="store_true", help="also edit one of a thousand kernels")
    arguments = parser.parse_args()
    if arguments.files:
        trees = {"": _CHECKOUT, "before: ": arguments.before}
        return _files(arguments.runs, trees, arguments.out.with_stem(f"{arguments.out.stem}_files"))
    nvcc = find_nvidia_binary_utility("nvcc")
    if nvcc is None:
        sys.exit("nvcc is not installed; it belongs to the extra `test`")
    here = machine.describe()
    states = {"": _CHECKOUT} | ({"before: ": arguments.before.resolve()} if arguments.before else {})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cases, peaks = _cases_without_aotcuda(folder, nvcc), {}
        for label, tree in states.items():
            state = State(tree, folder / tree.name)
            state_cases = state.cases()
            cases |= {f"{label}{name}": run for name, run in state_cases.items()}
            peaks |= {f"{label}{name}": peak for name, peak in state.peaks().items()}
        if arguments.thousand:
            cases[_THOUSAND] = State(_CHECKOUT, folder / "many").thousand()
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(arguments.runs):
            for name in [*cases][:: -1 if number % 2 else 1]:
                seconds[name].append(cases[name]())
    figures = {name: machine.summary(values) for name, values in seconds.items()}
    machine.table(("seconds", "median", "min"), [(name, item["median"], item["min"]) for name, item in figures.items()])
    print()
    machine.table(("MiB at most", "at once"), [(name, peak // _MIB) for name, peak in peaks.items()])
    aims = _aims({name: item["median"] for name, item in figures.items()}, peaks)
    commits = {label.partition(":")[0] or "now": _commit(tree) for label, tree in states.items()}
    return machine.report(
        arguments.out, here, aims, unit="seconds", commits=commits, figures=figures, memory_bytes=peaks
    )


class State:
    """A checkout of aotcuda with its own projects and build cache."""

    def __init__(self, tree: Path, folder: Path) -> None:
        machine.write_bytecode(tree)
        plugins = [str(tree / "hatch_plugin" / "src"), str(tree / "hatch_plugin")]  # the second in older commits
        path = [str(tree), *plugins, os.environ.get("PYTHONPATH", "")]
        self._environ = {"CUDA_CACHE_DISABLE": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))}
        self._folder = folder
        self._check(tree)
        self._cold = projects.generate(folder / "cold", "fifty", 50)

    def cases(self) -> Cases:
        """Return functions that build and return seconds; the builds that fill the caches are made here."""
        ignored = shutil.ignore_patterns("dist", "kernels.aotcuda", "kernels.py*", "__pycache__")
        quickstart = Path(
            shutil.copytree(_CHECKOUT / "examples" / "quickstart", self._folder / "quickstart", ignore=ignored)
        )
        unchanged = projects.generate(self._folder / "kept", "fifty", 50)
        edited = projects.generate(self._folder / "edited", "fifty", 50)
        self.build(unchanged, "kept")
        self.build(edited, "edited")
        return {
            "quickstart, cold": lambda: self.build(quickstart),
            "fifty, cold": lambda: self.build(self._cold),
            "fifty, filling a cache": lambda: self._filling(self._cold),
            "fifty, again": lambda: self.build(unchanged, "kept"),
            "fifty, one kernel edited": lambda: self.build(_edit(edited), "edited"),
        }

    def thousand(self) -> Callable[[], float]:
        """Return a function that edits one of a thousand kernels, builds, and returns seconds."""
        project = projects.generate(self._folder, "thousand", 1000)
        self.build(project, "thousand")
        return lambda: self.build(_edit(project), "thousand")

    def peaks(self) -> dict[str, int]:
        """Return the most bytes that a cold build's processes have held together."""
        return {"fifty, cold": _peak(self._cold, self._with())}

    def _check(self, tree: Path) -> None:
        """Exit unless a build takes aotcuda and its hook from the tree."""
        code = "import aotcuda, hatch_aotcuda; print(aotcuda.__file__, hatch_aotcuda.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code], env=self._with(), cwd="/", check=True, stdout=subprocess.PIPE, text=True
        )
        for file in done.stdout.split():
            if not Path(file).resolve().is_relative_to(tree):
                sys.exit(f"builds of {tree} would take {file}")

    def _with(self, cache: str = "0") -> dict[str, str]:
        return os.environ | self._environ | {"AOTCUDA_BUILD_CACHE": cache}

    def build(self, project: Path, cache: str | None = None) -> float:
        """Build a wheel, with a build cache of this name or without one; return the seconds."""
        folder = "0" if cache is None else str(self._folder / "caches" / cache)
        return _timed([*_BUILD], project, self._with(folder))

    def _filling(self, project: Path) -> float:
        shutil.rmtree(self._folder / "caches" / "filled", ignore_errors=True)
        return self.build(project, "filled")


_START = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
import sys
if len(sys.argv) > 1:
    import files.kernels as k
if len(sys.argv) > 2:
    k.k0[1, 32](2.0, Array(), 8, Array(), 8)
"""
_STARTS = {"start of Python": (), "import": ("import",), "first launch": ("import", "launch")}


def _files(runs: int, trees: dict[str, Path | None], out: Path) -> int:
    """Measure a module of ten `.cu` files in each tree, in turn."""
    here, figures = machine.describe(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        library, source = folder / "libcuda.so.1", _CHECKOUT / "tests" / "support" / "fake_libcuda.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-lpthread"], check=True)
        cases: Cases = {}
        for label, tree in trees.items():
            if tree is not None:
                cases |= {f"{label}{name}": run for name, run in _cases_of_files(tree.resolve(), folder).items()}
        values: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(runs):
            for name in [*cases][:: -1 if number % 2 else 1]:
                values[name].append(cases[name]())
    figures = {name: machine.summary(numbers) for name, numbers in values.items()}
    machine.table(("", "median", "min"), [(name, item["median"], item["min"]) for name, item in figures.items()])
    return machine.report(out, here, {}, unit="seconds, of processor time for starts; bytes", figures=figures)


def _cases_of_files(tree: Path, folder: Path) -> Cases:
    state = State(tree, folder / tree.name)
    cold, edited = (projects.generate_files(folder / tree.name / name, 10) for name in ("files", "edited-files"))
    state.build(edited, "files")
    packages = folder / tree.name / "packages"
    state.build(cold)
    (wheel,) = (cold / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, packages, "zip")
    shutil.copytree(tree / "aotcuda", packages / "aotcuda", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    machine.write_bytecode(packages)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "LD_LIBRARY_PATH": str(folder)}

    def start(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-S", "-c", _START, *words], env=environ, cwd=packages, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return {
        "cold": lambda: state.build(cold),
        "one file edited": lambda: state.build(_edit_file(edited), "files"),
        "wheel": lambda: wheel.stat().st_size,
        **{name: functools.partial(start, *words) for name, words in _STARTS.items()},
    }


def _edit_file(project: Path) -> Path:
    """Change a constant of the first file, each time to another one."""
    path = project / "csrc" / "kernels0.cu"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"(a \* x\[i\] \+ )(\d+)", lambda it: f"{it[1]}{int(it[2]) + 1}", text, count=1))
    return project


def _cases_without_aotcuda(folder: Path, nvcc: str) -> Cases:
    """Return the cases without aotcuda."""
    plain = projects.generate(folder / "plain", "fifty", 50)
    config = plain / "pyproject.toml"
    config.write_text(config.read_text().replace("[tool.hatch.build.targets.wheel.hooks.aotcuda]\n", ""))
    cpp = projects.generate_cpp(folder / "cpp", 50)
    return {
        "fifty, nvcc": lambda: _nvcc(nvcc, cpp),
        "fifty, the back end alone": lambda: _timed([*_BUILD], plain, None),
    }


def _aims(median: dict[str, float], peaks: dict[str, int]) -> dict[str, bool]:
    """Return the aims: cold a tenth slower at most; an unchanged project takes 0.3 s, an edited one 2.5 s."""
    beyond = median["fifty, again"] - median["fifty, the back end alone"]
    met = {
        "quickstart: under 5 s": median["quickstart, cold"] < 5,
        "fifty, one kernel edited: at most 2.5 s": median["fifty, one kernel edited"] <= 2.5,
        "fifty, again: at most 0.3 s beyond the back end": beyond <= 0.3,
    }
    if _THOUSAND in median:
        met[f"{_THOUSAND}: at most 15 s"] = median[_THOUSAND] <= 15
    if "before: fifty, cold" in median:
        met["fifty, cold: at most 10 % slower than before"] = (
            median["fifty, cold"] <= 1.1 * median["before: fifty, cold"]
        )
    return met | {f"{name}: under 1 GiB": peak < 1024 * _MIB for name, peak in peaks.items()}


def _edit(project: Path) -> Path:
    """Change a constant of the first kernel, each time to another one."""
    source = next(path for path in project.rglob("_kernels.py") if "cuda.jit" in path.read_text(encoding="utf-8"))
    text = source.read_text(encoding="utf-8")
    source.write_text(re.sub(r"(a \* x\[i\] \+ )(\d+)", lambda it: f"{it[1]}{int(it[2]) + 1}", text, count=1))
    return project


def _nvcc(nvcc: str, file: Path) -> float:
    """Compile a file for the same GPUs; return the seconds."""
    numbers = [arch.removeprefix("sm_") for arch in projects.ARCHS]
    targets = [word for number in numbers for word in ("-gencode", f"arch=compute_{number},code=sm_{number}")]
    return _timed([nvcc, "--threads", "2", *targets, "-fatbin", "-o", f"{file}.fatbin", str(file)], file.parent, None)


def _timed(command: list[str], folder: Path, environment: dict[str, str] | None) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in {folder} failed: {done.stderr[-2000:]}")
    return time.perf_counter() - started


def _peak(project: Path, environment: dict[str, str]) -> int:
    """Return the largest sum of the memory of a build's processes, in bytes."""
    most = 0
    with subprocess.Popen(
        _BUILD, cwd=project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as build:
        while build.poll() is None:
            most = max(most, sum(map(_proportional, _family(build.pid))))
            time.sleep(_TICK)
    if build.returncode:
        sys.exit(f"the build in {project} failed")
    return most


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    processes = [pid]
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended, or one of its threads
            for task in list(Path(f"/proc/{process}/task").iterdir()):
                processes += map(int, (task / "children").read_text().split())
    return processes


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _commit(tree: Path) -> str:
    """Return the commit of a checkout; empty for another folder."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
