"""Test what a recorded process writes outlives it, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotcuda.tools.record import collect, process

INJECT = Path(process.__file__).parent / "inject"
START = """
from aotcuda_recorder import log
e = log.entry({**F}, lambda: {'path': 'k'})
c = lambda: e.count(0, lambda: 'GPU')
"""
FACTS = {"frontend": "numba-cuda", "kind": "kernel", "module": "m", "function": "k", "file": "m.py", "line": 1}

THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=lambda: [c() for _ in range(5000)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
BOTH = "for _ in range(100000): c()\nif p: os.waitpid(p, 0)\nelse: os._exit(0)"
ENDS = {
    "exit": ("c(); c()", 2),
    "os._exit": ("import os; c(); os._exit(0)", 1),
    "SIGKILL": ("import os, signal; c(); os.kill(os.getpid(), signal.SIGKILL)", 1),
    "exec": ("import os; c(); os.execv('/bin/true', ['true'])", 1),
    "fork": ("import os\nc()\np = os.fork()\nc()\nif p: os.waitpid(p, 0)\nelse: c(); os._exit(0)", 4),
    "fork, both at once": (f"import os\nc()\np = os.fork()\n{BOTH}", 200001),
    "daemon": ("import os\nos.closerange(3, 256)\nc()\nlog.entry({**F, 'line': 2}, dict).count(0, str)", 2),
    "threads": (THREADS, 20000),
    "many": ("for i in range(9000): log.entry({**F, 'line': i}, dict).count(0, str)", 9000),
    "many GPUs": ("for i in range(5): e.count(i, lambda: f'GPU {i}')", 5),
}


def collected(folder: Path, code: str) -> collect.Run:
    environ = {**os.environ, "PYTHONPATH": str(INJECT), "AOTCUDA_RECORD_FOLDER": str(folder)}
    text = f"import sys; sys.path.insert(0, {str(INJECT)!r})\nF = {FACTS!r}\n{START}{code}"
    subprocess.run([sys.executable, "-W", "error", "-c", text], env=environ, check=False)
    return collect.read(folder, Path("/"))


@pytest.mark.parametrize("end", ENDS)
def test_every_launch_is_counted(end: str, tmp_path: Path) -> None:
    code, count = ENDS[end]
    run = collected(tmp_path, code)
    assert sum(item.count for item in run.records) == count
    assert run.started


def test_launches_on_several_gpus_are_told_apart(tmp_path: Path) -> None:
    (record,) = collected(tmp_path, "c(); c()\nfor i in (1, 2, 1): e.count(i, lambda: f'GPU {i}')").records
    assert record.launches == {"GPU": 2, "GPU 1": 2, "GPU 2": 1}


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    collected(tmp_path, "c()")
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"slot": 1, "kind": "ker')
    assert [item.count for item in collect.read(tmp_path, Path("/")).records] == [1]


def test_a_process_that_cannot_write_runs_on_and_says_so(tmp_path: Path) -> None:
    code = "import os\nos.environ['AOTCUDA_RECORD_FOLDER'] = '/nowhere'\n"
    code += "try: c()\nexcept OSError: log.failed('x')\nprint('on')"
    environ = {**os.environ, "PYTHONPATH": str(INJECT), "AOTCUDA_RECORD_FOLDER": str(tmp_path)}
    text = f"import sys; sys.path.insert(0, {str(INJECT)!r})\nF = {FACTS!r}\n{START}{code}"
    done = subprocess.run([sys.executable, "-c", text], env=environ, check=True, capture_output=True, text=True)
    assert done.stdout == "on\n"
    assert "is not recorded: " in done.stderr
