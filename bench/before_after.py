"""Two states of this project in one run: launches over C and cold starts beyond the driver's, or imports.

Processes of the two take turns, and begin in turn; a figure is the median over them, and its spread the distance
between the quartiles.

    python bench/before_after.py OLDER NEWER       # needs a GPU; each folder has bench/ and site/
    python bench/before_after.py OLDER NEWER --scripts imports      # needs none; each is a checkout

For launches and cold starts a state is a folder with a checkout's `bench` and, in `site`, what pip installed of it;
both launch the same packaged kernels, so the newer one also shows that it reads the older one's wheels. For imports it
is a checkout, or such a folder; each imports what it has built itself. They are given in wall time and in the CPU time
of all processes, which other users of the machine disturb less. `bench/build_time.py` compares builds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import machine
import projects

# What each script is asked for; the bench scripts of a state print and write what they measured.
_SCRIPTS = {
    "launch": ["--only", "aotcuda", "--counts", "--launches", "0", "--turns", "15"],
    "cold_start": ["--runs", "3", "--peer-runs", "0"],
}
_KERNELS = (2, 200)
"""Of the modules that are imported."""

_IMPORTS = 8
"""Processes of a turn for each statement."""

_Rows = dict[str, dict[str, list[float]]]
"""By what was measured and by state: what each process took."""


def main() -> int:
    parser = machine.parser(__doc__, "before_after")
    parser.add_argument("older", type=Path)
    parser.add_argument("newer", type=Path)
    parser.add_argument("--turns", type=int, default=5, help="processes of each state and script (%(default)s)")
    parser.add_argument("--scripts", nargs="*", default=["launch", "cold_start"], choices=[*_SCRIPTS, "imports"])
    arguments = parser.parse_args()
    here = machine.describe()
    states = {"before": arguments.older.resolve(), "after": arguments.newer.resolve()}
    found: dict[str, _Rows] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "imports" in arguments.scripts:
            for state, place in states.items():
                for kernels in _KERNELS:
                    _package(place, f"k{kernels}", kernels, folder / state, archs=("sm_80",))
        for turn in range(arguments.turns):
            for script in arguments.scripts:
                measure = _imports if script == "imports" else None
                for state in [*states][:: -1 if turn % 2 else 1]:
                    place = states[state]
                    values = measure(place, folder / state) if measure else _run(place, script, folder)
                    for name, value in values.items():
                        rows = found.setdefault(script, {}).setdefault(name, {name: [] for name in states})
                        rows[state].append(value)
    figures = {script: {name: _summary(values) for name, values in rows.items()} for script, rows in found.items()}
    for script, rows in figures.items():
        print(f"\n{script}")
        machine.table(
            ("", "before", "spread", "after", "spread"), [(name, *row.values()) for name, row in rows.items()]
        )
    machine.write(arguments.out, here, turns=arguments.turns, figures=figures)
    return 0


def _run(place: Path, script: str, folder: Path) -> dict[str, float]:
    """One process of one state: microseconds over C by way of launching, or milliseconds beyond the driver's start."""
    out = folder / "result.json"
    path = os.pathsep.join([str(place / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(place / "bench" / f"{script}.py"), "--out", str(out), *_SCRIPTS[script]]
    done = subprocess.run(
        command, env=machine.environment(PYTHONPATH=path), capture_output=True, text=True, check=False
    )
    if not out.is_file():
        sys.exit(f"{' '.join(command)} wrote nothing: {done.stderr[-2000:]}")
    measured = json.loads(out.read_text(encoding="utf-8"))["figures"]
    out.unlink()
    if script == "launch":
        # An older state calls the fast path in C by the name of the distribution that it came in.
        named = {name.replace("aotcuda, accelerator", "aotcuda, C"): row for name, row in measured["axpy"].items()}
        rows = {name: row["over_c"] for name, row in named.items() if name.startswith("aotcuda")}
        return {**rows, "C itself": measured["axpy"]["C, one buffer"]["median"]}
    return {
        name.replace("no accelerator", "general path"): row["beyond"]
        for name, row in measured.items()
        if name.startswith("aotcuda")
    }


def _imports(place: Path, folder: Path) -> dict[str, float]:
    """Milliseconds by which importing packaged modules takes longer than a bare interpreter does, at the least."""
    statements = {"bare": "pass"}
    statements |= {f"{kernels} kernels": f"import k{kernels}.kernels" for kernels in _KERNELS}
    statements["200 kernels, then one looked up"] = "from k200.kernels import k7"
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in statements}
    for _ in range(_IMPORTS):
        for name, statement in statements.items():
            times[name].append(_timed([sys.executable, "-c", statement], place, Path("/"), str(folder)))
    # Whatever else the machine does adds to what a process takes, so the least is nearest to the truth.
    found = {name: [min(values) for values in zip(*taken, strict=True)] for name, taken in times.items()}
    bare = found.pop("bare")
    return {
        f"{name}, {kind}": (took - base) * 1e3
        for name, least in found.items()
        for kind, took, base in zip(("wall ms", "CPU ms"), least, bare, strict=True)
    }


def _package(place: Path, name: str, kernels: int, out: Path, *, archs: tuple[str, ...]) -> None:
    """Build a module of so many kernels into `out`, by the state that lies at `place`."""
    with tempfile.TemporaryDirectory() as folder:
        project = projects.generate(Path(folder), name, kernels, archs=archs)
        _timed([sys.executable, "-m", "aotcuda", "build", str(project), "--out", str(out)], place, Path(folder))
    (out / name / "__init__.py").write_text("", encoding="utf-8")


def _timed(command: list[str], place: Path, cwd: Path, *path: str) -> tuple[float, float]:
    """Wall and CPU time, in seconds, of a process that imports the state at `place`, and of those that it starts."""
    site = place / "site"
    search = os.pathsep.join([*path, str(site if site.is_dir() else place)])
    environment = machine.environment(PYTHONPATH=search, AOTCUDA_LOAD="first-use")
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with exit status {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime


def _summary(values: dict[str, list[float]]) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for state, numbers in values.items():
        row[state] = round(median(numbers), 3) if numbers else None
        low, _, high = quantiles(numbers, n=4) if len(numbers) > 1 else (0.0, 0.0, 0.0)
        row[f"{state} spread"] = round(high - low, 3)
    return row


if __name__ == "__main__":
    sys.exit(main())
