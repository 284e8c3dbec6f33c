"""The recorder loses no launch of a process, and does not disturb it."""

from __future__ import annotations

import json
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
NESTED = """
class Launching:
    def __repr__(self):
        log.entry({**F, 'line': F.setdefault('launches', 0)}, dict).count(0, str)
        F['launches'] += 1
        return ''
log.entry({**F, 'more': Launching()}, dict).count(0, str)
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
    "cleared environment": ("import os; os.environ.clear(); c()", 1),
    "a launch while another one is written": (NESTED, 3),
    "many": ("for i in range(9000): log.entry({**F, 'line': i}, dict).count(0, str)", 9000),
}


def recorded(folder: Path, code: str, before: str = "") -> tuple[collect.Launches, str]:
    """Run code in a process with the recorder; return the launches and what it printed. `before` runs first."""
    environ = {**os.environ, "PYTHONPATH": str(INJECT), "AOTCUDA_RECORD_FOLDER": str(folder)}
    text = f"import sys; sys.path.insert(0, {str(INJECT)!r})\nF = {FACTS!r}\n{before}{START}{code}"
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    return collect.read([folder], Path("/")), done.stdout + done.stderr


@pytest.mark.parametrize("end", ENDS)
def test_every_launch_is_counted(end: str, tmp_path: Path) -> None:
    code, count = ENDS[end]
    run, _ = recorded(tmp_path, code)
    assert sum(item.count for item in run.records) == count
    assert run.started


def test_launches_are_counted_for_each_gpu(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, "c(); c()\nfor i in (1, 2, 1): e.count(i, lambda: f'GPU {i}')")
    assert run.records[0].launches == {"GPU": 2, "GPU 1": 2, "GPU 2": 1}
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"slot": 1, "kind": "ker')  # the process was killed here
    assert collect.read([tmp_path], Path("/")).records == run.records


def test_a_process_that_clears_its_environment_first_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"name": "NVIDIA X", "capability": [8, 7], "attributes": {}, "same": []}
    monkeypatch.setenv("AOTCUDA_RECORD_DRY", json.dumps(target))
    monkeypatch.setenv("AOTCUDA_RECORD_TYPES", '{"pair": "os:name"}')
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "records"
    folder.mkdir()
    code = "c()\nimport cupy\nfrom aotcuda_recorder import dry, types\n"
    code += "print(cupy.cuda.Device().compute_capability, dry.target().name, *types._types_of_the_project())"
    run, output = recorded(folder, code, "import os\nos.environ.clear()\n")
    assert output == f"87 NVIDIA X {('pair', os.name)}\n"
    assert [item.count for item in run.records] == [1]
    assert [*tmp_path.iterdir()] == [folder]


def test_paths_through_a_link_are_relative_to_the_project(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "project")
    recorded(tmp_path, f"log.entry({{**F, 'file': {str(tmp_path / 'link/tests/m.py')!r}}}, dict).count(0, str)")
    assert collect.read([tmp_path], tmp_path / "project").records[0].file == "tests/m.py"


def test_a_process_that_cannot_write_runs_on(tmp_path: Path) -> None:
    code = "import os, shutil\nshutil.rmtree(os.environ['AOTCUDA_RECORD_FOLDER'])\n"
    _, output = recorded(tmp_path, f"{code}with log.guard('x'): c()\nprint('on')")
    assert output.startswith("on\n")
    assert "is not recorded: " in output


def test_attributes_that_raise_errors_do_not_hide_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "class Failing:\n    def __get__(self, *_): raise RuntimeError\n"
        "class Options:\n    name = Failing()\n    @staticmethod\n    def kernel(): pass\n"
    )
    code = f"sys.path.append({str(tmp_path)!r})\nimport m\nfrom aotcuda_recorder import functions\n"
    _, output = recorded(tmp_path, f"{code}print(functions.find_path(m.Options.kernel))")
    assert output == "{'path': 'Options.kernel'}\n"
