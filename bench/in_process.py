"""From a program's first line to its first result, less the time inside the driver's own calls, in milliseconds.

Each run is a fresh process that takes the time itself, so the start of the interpreter is not in it. Between the run
time and the driver lies a library that hands the calls on and adds up what they take (`driver_clock.c`); that is
subtracted. So is what the program does for itself: its context and its arrays. `import ctypes` is the run time's to
pay, unless an array library has imported it. Imports alone end before the first launch.

States of aotcuda, each a folder that holds the package `aotcuda`, take turns in one run. They import the same packages;
packages in a folder of a state's name below `--packages` are its own. CPU time is that of the thread that launches.

    python bench/in_process.py                                # this state alone; building packages takes minutes
    python bench/in_process.py --packages DIR --states before=OLDER after=.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import machine
import projects

_HERE = Path(__file__).resolve().parent
_SIZES = {"one": 1, "two_hundred": 200, "thousand": 1000}
_LIMITS = {"one": 12.0, "two_hundred": 14.0, "thousand": 20.0}
_LOADS = ("first-use", "import")
_ALONE = "import alone"  # with load = "import", and no launch after it
_LIBRARIES = ("none", "cupy", "torch")
_BARE = """
import time
wall, cpu = time.perf_counter_ns, time.thread_time_ns
marks = [("", wall(), cpu())]
own = [0, 0]
"""
# Without a GPU library the program has to make its own context and arrays, which takes ctypes. It does so when it is
# first asked what its arrays are, in the midst of the launch: the run time has imported by then what it needs itself.
_BARE_DATA = """
made = {}
def make():
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    def check(code):
        if code:
            raise SystemExit(f"CUresult {code}")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(driver.cuInit(0))
    check(driver.cuDeviceGet(ctypes.byref(device), 0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver.cuCtxSetCurrent(context))
    for values in ([1, 2, 3], [0, 0, 0]):
        host, pointer = (ctypes.c_float * 3)(*values), ctypes.c_uint64()
        size = ctypes.c_size_t(ctypes.sizeof(host))
        check(driver.cuMemAlloc_v2(ctypes.byref(pointer), size))
        check(driver.cuMemcpyHtoD_v2(pointer, host, size))
        made[len(made)] = host, pointer, size
def clock():
    import ctypes
    spent = (ctypes.c_uint64 * 4)()
    ctypes.CDLL("libcuda.so.1").clock_read(spent)
    return list(spent)
class Buffer:
    def __init__(self, at):
        self.at = at
    @property
    def __cuda_array_interface__(self):
        if not made:
            begin, before = (wall(), cpu()), clock()
            make()
            after = clock()
            for at, now in enumerate((wall(), cpu())):  # what of it the driver took is in its own time
                own[at] += now - begin[at] - (after[at] - before[at])
        return {"shape": (3,), "typestr": "<f4", "data": (made[self.at][1].value, False), "version": 3}
def read():
    import ctypes
    host, pointer, size = made[1]
    ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(host, pointer, size)
    return list(host)
"""
_ARRAYS = {
    "cupy": """
import cupy
x, out = cupy.array([1, 2, 3], "float32"), cupy.zeros(3, "float32")
cupy.cuda.runtime.deviceSynchronize()
def read(array):
    return array.get().tolist()
""",
    "torch": """
import torch
x, out = torch.tensor([1.0, 2.0, 3.0], device="cuda"), torch.zeros(3, device="cuda")
torch.cuda.synchronize()
def read(array):
    return array.tolist()
""",
}
# The library has loaded the driver; the run time, which asks for it by its name, is to go through the clock.
_WITH_LIBRARY = """
import ctypes, os, time
plain = ctypes.CDLL
clocked = plain(os.environ["CLOCK"])
class Clocked(plain):
    def __init__(self, name, *rest, **more):
        super().__init__(os.environ["CLOCK"] if name == "libcuda.so.1" else name, *rest, **more)
ctypes.CDLL = Clocked
wall, cpu = time.perf_counter_ns, time.thread_time_ns
def clock():
    spent = (ctypes.c_uint64 * 4)()
    clocked.clock_read(spent)
    return list(spent)
before = clock()
own = [-before[0], -before[1]]
marks = [("", wall(), cpu())]
"""
_LAUNCH = """
marks.append(("import", wall(), cpu()))
k.k0[1, 32](2.0, x, out)
marks.append(("launch", wall(), cpu()))
spent = clock()
"""
_MARK = 'marks.append(("import", wall(), cpu()))'
_ENDS = "spent, result = clock(), None"
_TAIL = """
import json, sys
print(json.dumps([marks, own, spent, result, len(sys.modules)]))
"""

Parts = dict[str, float]


def main() -> int:
    parser = machine.parser(__doc__, "in_process")
    parser.add_argument("--packages", type=Path, help="folder of the built packages (default: a temporary one)")
    parser.add_argument("--states", nargs="+", default=[f"after={_HERE.parent}"], metavar="NAME=FOLDER")
    parser.add_argument("--sizes", nargs="+", default=[*_SIZES], choices=[*_SIZES])
    parser.add_argument("--libraries", nargs="+", default=[*_LIBRARIES], choices=_LIBRARIES)
    parser.add_argument("--runs", type=int, default=20, help="processes of each kind (%(default)s)")
    arguments = parser.parse_args()
    here = machine.describe()
    states = {name: Path(folder).resolve() for name, _, folder in (item.partition("=") for item in arguments.states)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        packages = (arguments.packages or folder / "packages").resolve()
        for name in arguments.sizes:
            build(name, _SIZES[name], packages)
        driver, is_real = _driver(folder)
        clock = _compile(_HERE / "driver_clock.c", folder / "clock" / "libcuda.so.1", functions=True)
        environment = {"CLOCKED_DRIVER": str(driver), "CLOCK": str(clock)}
        libraries = [name for name in arguments.libraries if name == "none" or (is_real and find_spec(name))]
        figures = _measure(states, arguments.sizes, libraries, packages, environment, arguments.runs, real=is_real)

    machine.table(
        ("ms", "wall", "spread", "CPU", "least CPU", "driver"),
        [
            (name, *(row[key] for key in ("wall", "wall spread", "cpu", "least cpu", "driver")))
            for name, row in figures.items()
        ],
    )
    last = [*states][-1]
    met = {
        f"{name}: at most {limit} ms": row["wall"] <= limit
        for name, row in figures.items()
        if name.endswith(f", {last}")
        for limit in [_LIMITS[row["size"]]]
    }
    for text, verdict in met.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    machine.write(
        arguments.out, here, unit="ms", driver="real" if is_real else "stand-in", figures=figures, measures=met
    )
    return 0 if all(met.values()) else 1


def build(name: str, kernels: int, packages: Path) -> None:
    """Build the package `name` with so many kernels, unless it is there."""
    if (packages / name / "kernels.py").is_file():
        return
    print(f"building {kernels} kernels ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        project = projects.generate(Path(folder), name, kernels, archs=(*projects.ARCHS, "compute_75"))
        command = [sys.executable, "-m", "aotcuda", "build", str(project), "--out", str(packages)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packages / name / "__init__.py").write_text("", encoding="utf-8")


def _driver(folder: Path) -> tuple[Path, bool]:
    """The driver's library, and whether it is a real one: else the stand-in that tests have."""
    if machine.driver() is not None:
        mapped = re.search(r"\s(/\S*libcuda\.so\S*)", Path("/proc/self/maps").read_text(encoding="utf-8"))
        if mapped:
            return Path(mapped[1]).resolve(), True
    source = _HERE.parent / "tests" / "support" / "fake_libcuda.c"
    return _compile(source, folder / "stand_in" / "libcuda.so.1"), False


def _compile(source: Path, library: Path, *, functions: bool = False) -> Path:
    """A shared library; `functions` writes those that the run time calls into its place in the source."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("this needs a C compiler")
    library.parent.mkdir()
    text = source.read_text(encoding="utf-8")
    if functions:
        files = (_HERE.parent / "aotcuda" / "runtime").rglob("*.py")
        runtime = "".join([file.read_text(encoding="utf-8") for file in files])
        names = {*re.findall(r'"(cu[A-Z]\w+)"', runtime), *re.findall(r"\.(cu[A-Z]\w+)", _BARE_DATA)}
        lines = [f"FORWARD({name}, {int(name.startswith('cuLaunchKernel'))})" for name in sorted(names)]
        text = text.replace("/* @FUNCTIONS@ */", "\n".join(lines))
    copy = library.with_suffix(".c")
    copy.write_text(text, encoding="utf-8")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(copy), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


def _program(package: str, library: str, *, alone: bool) -> str:
    importing = f"import {package}.kernels as k"
    if library == "none":
        marked = _MARK if alone else ""  # before what the program imports itself
        launch = _ENDS if alone else f"x, out = Buffer(0), Buffer(1)\n{_LAUNCH}\nresult = read()"
        return f"{_BARE}\n{importing}\n{marked}\n{_BARE_DATA}\n{launch}\n{_TAIL}"
    launch = f"{_MARK}\n{_ENDS}" if alone else f"{_LAUNCH}\nresult = read(out)"
    return f"{_ARRAYS[library]}\n{_WITH_LIBRARY}\n{importing}\n{launch}\n{_TAIL}"


def _measure(
    states: dict[str, Path],
    sizes: list[str],
    libraries: list[str],
    packages: Path,
    environment: dict[str, str],
    runs: int,
    *,
    real: bool,
) -> dict[str, dict[str, Any]]:
    """Medians, by kind of program and state; the first round, which leaves bytecode behind, is left out."""
    found: dict[tuple[str, str, str, str], list[Parts]] = {}
    for turn in range(runs + 1):
        for size in sizes:
            for load in (*_LOADS, _ALONE):
                for library in libraries:
                    for state, folder in states.items():
                        search = [str(packages / state), str(packages), str(folder), os.environ.get("PYTHONPATH", "")]
                        path = os.pathsep.join(search)
                        more = {"PYTHONPATH": path, "AOTCUDA_LOAD": "import" if load == _ALONE else load, **environment}
                        if library == "none":
                            more["LD_LIBRARY_PATH"] = str(Path(environment["CLOCK"]).parent)
                        program = _program(size, library, alone=load == _ALONE)
                        parts = _run(program, machine.environment(**more), real=real, alone=load == _ALONE)
                        if turn:
                            found.setdefault((size, load, library, state), []).append(parts)
    return {", ".join(key): {"size": key[0], **_summary(values)} for key, values in found.items()}


def _run(program: str, environment: dict[str, str], *, real: bool, alone: bool) -> Parts:
    """Milliseconds by part: what is counted, and the driver's own."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    marks, own, spent, result, modules = json.loads(done.stdout.splitlines()[-1])
    if real and not alone and result != [2.0, 4.0, 6.0]:
        sys.exit(f"the result is {result}")
    if spent[3] != (0 if alone else 1):
        sys.exit(f"the driver was asked for {spent[3]} launches")
    (_, wall, cpu), *_, (_, last_wall, last_cpu) = marks
    return {
        "wall": (last_wall - wall - own[0] - spent[0]) / 1e6,
        "cpu": (last_cpu - cpu - own[1] - spent[1]) / 1e6,
        "driver": spent[0] / 1e6,
        "modules": modules,
    }


def _summary(values: list[Parts]) -> dict[str, Any]:
    summary: dict[str, Any] = {name: round(median(each[name] for each in values), 3) for name in values[0]}
    low, _, high = quantiles([each["wall"] for each in values], n=4) if len(values) > 1 else (0.0, 0.0, 0.0)
    least = {f"least {name}": round(min(each[name] for each in values), 3) for name in ("wall", "cpu")}
    return {**summary, **least, "wall spread": round(high - low, 3)}


if __name__ == "__main__":
    sys.exit(main())
