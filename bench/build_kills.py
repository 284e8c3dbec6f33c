"""Stop builds at random moments, and see what they leave behind.

Each round starts a build of a small project in a process of its own, waits a random time, and sends SIGINT, SIGTERM,
SIGHUP or SIGKILL to that process alone. Every second source has started a daemon, and every fourth one ignores the
signals that can be ignored. A round fails if a process of the build is left two seconds later, if more or less than
one line was printed, if the project's folder has changed, or if an interrupted build has left a temporary file. At the
end one build is made in peace; afterwards there must be no temporary file either.

    python bench/build_kills.py [--kills 100]
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import machine
import projects

ROUTES = {
    "aotcuda build": ("-m", "aotcuda", "build"),
    "wheel": ("-m", "hatchling", "build", "-t", "wheel"),
    "editable": ("-m", "hatchling", "build", "-t", "wheel:editable"),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
LINE = "aotcuda: build interrupted; nothing was written\n"
LIMIT = 2.0

DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.pause()
    os._exit(0)
"""
DEAF = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
"""


def main() -> int:
    parser = machine.parser(__doc__, "build_kills")
    parser.add_argument("--kills", type=int, default=100)
    arguments = parser.parse_args()
    here = machine.describe()
    # What a shell starts in the background ignores SIGINT, under nohup SIGHUP too, and so would the builds.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    chance = random.Random(3)
    state: Counter[str] = Counter()
    problems: list[str] = []
    gone: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, "temporary")
        temporary.mkdir()
        project = projects.generate(Path(folder), "stopped", 5, archs=("sm_80", "sm_90"))
        config = project / "pyproject.toml"
        config.write_text(config.read_text() + '\n[tool.hatch.build]\ndev-mode-dirs = ["."]\n')
        source = project / "stopped" / "_kernels.py"
        text = source.read_text()
        whole, complete = {}, {}
        for route in ROUTES:
            whole[route] = _whole(project, route, temporary)
            complete[route] = {*_files(project)}
            _tidy(project)
        for number in range(arguments.kills):
            source.write_text(DAEMON * (number % 2) + DEAF * (number % 4 == 3) + text)
            route = chance.choice([*ROUTES])
            how = SIGNALS[number % len(SIGNALS)]
            after = chance.uniform(0, whole[route] * 1.05)
            what = _round(project, route, how, after, temporary, gone, complete[route])
            state[what.partition(":")[0]] += 1
            print(f"\r{number + 1}", end="", file=sys.stderr, flush=True)
            if ":" in what:
                problems.append(f"{number} {route} {how.name} {what}")
            _tidy(project)
        source.write_text(text)
        left = len(list(temporary.iterdir()))
        _whole(project, "wheel", temporary)
        remaining = [path.name for path in temporary.iterdir() if "aotcuda" in path.name]
        others = [path.name for path in temporary.iterdir() if "aotcuda" not in path.name]
        problems += [f"left after the last build: {name}" for name in remaining]
    rows: list[tuple[object, ...]] = [("kills", arguments.kills), *sorted(state.items())]
    rows += [("temporary files left by SIGKILL", left), ("of those after the next build", len(remaining))]
    rows += [("hatchling's own files", len(others)), ("failures", len(problems))]
    machine.table(("", "count"), rows)
    print(f"\nuntil the last process was gone: median {sorted(gone)[len(gone) // 2]:.2f} s, longest {max(gone):.2f} s")
    print(*problems[:10], sep="\n")
    machine.write(
        arguments.out,
        here,
        kills=arguments.kills,
        found=dict(state),
        left_by_sigkill=left,
        left_after_the_next_build=len(remaining),
        hatchlings_own_files=len(others),
        failures=len(problems),
        seconds_until_all_are_gone=machine.summary(gone) | {"max": round(max(gone), 3)},
    )
    return 1 if problems else 0


def _start(project: Path, route: str, temporary: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *ROUTES[route]],
        cwd=project,
        # Progress is lines that come on a slow machine alone.
        env={**os.environ, **environ, "TMPDIR": str(temporary), "AOTCUDA_PROGRESS": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _whole(project: Path, route: str, temporary: Path) -> float:
    """Seconds that a build takes which nobody stops."""
    begin = time.perf_counter()
    done = _start(project, route, temporary)
    _, err = done.communicate()
    if done.returncode:
        sys.exit(err)
    return time.perf_counter() - begin


def _round(
    project: Path,
    route: str,
    how: signal.Signals,
    after: float,
    temporary: Path,
    gone: list[float],
    complete: set[str],
) -> str:
    """Stop one build; what became of it, and behind a colon what is wrong with that.

    `complete` are the files of a project that was built.
    """
    before = _files(project)
    earlier = set(temporary.iterdir())
    mark = str(uuid.uuid4())
    build = _start(project, route, temporary, BENCH_MARK=mark)
    time.sleep(after)
    build.send_signal(how)
    begin = time.perf_counter()
    _, err = build.communicate()
    while (left := _marked(mark)) and time.perf_counter() - begin < 2 * LIMIT:
        time.sleep(0.005)
    gone.append(time.perf_counter() - begin)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if build.returncode == 0 or err.startswith("dist/"):  # which hatchling prints at its end
        return f"lost:it went on for {gone[-1]:.1f} s" if gone[-1] > LIMIT else "it had ended"
    if gone[-1] > LIMIT:
        return f"too slow:{gone[-1]:.1f} s, {left} left; {build.returncode} {err}"
    new = [path.name for path in set(temporary.iterdir()) - earlier]
    if (build.returncode == -how and not err) and {*_files(project)} == complete != {*before}:
        return "it had ended"  # all is written, the signals are nobody's again, and Python has not ended yet
    if _files(project) != before and how != signal.SIGKILL:
        return f"half-written:{err}"
    if how == signal.SIGKILL:
        return "killed" if not err else f"killed:{err}"
    if (build.returncode == -how and not err) or err == "aotcuda: interrupted\n":
        return "before the build began"
    if how == signal.SIGINT and err.endswith("KeyboardInterrupt\n") and "aotcuda/build" not in err:
        return "before the build began"  # Python's own traceback: it was importing hatchling, or itself
    if (build.returncode, err) != (128 + how, LINE):
        return f"interrupted, badly:{build.returncode} {err}"
    return f"interrupted:{new} left" if [name for name in new if "aotcuda" in name] else "interrupted"


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__", "dist"} & set(path.parts)
    }


def _tidy(project: Path) -> None:
    made = [path for path in (project / "stopped").iterdir() if path.name.startswith(("kernels", ".kernels"))]
    for path in [project / "build", project / "dist", *made]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _marked(mark: str) -> list[int]:
    """The processes whose environment has the mark, and that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
