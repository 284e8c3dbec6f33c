"""Test that a dry run keeps packages from writing into the user's home, and reports what they write elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, pathlib, sqlite3, sys
from aotcuda_recorder import dry_files

def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")

home, real = pathlib.Path.home(), pathlib.Path(sys.argv[1])
write(home / ".tuner" / "times.json")
write(pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "tuner" / "times.json")
write(pathlib.Path(os.environ["XDG_STATE_HOME"]) / "times.json")
write(real / "before.json")
assert (home / "data" / "input").read_text() == (home / ".cache" / "huggingface" / "model").read_text() == "data"
assert not (home / ".tuner" / "old.json").exists()
dry_files.watch()
write(home / "data" / "times.json")
write(real / "times.json")
sqlite3.connect(real / "times.db").close()
write(pathlib.Path("output.json"))
(home / "data" / "input").read_text()
"""


@pytest.mark.parametrize("xdg", [False, True])
def test_dry_runs_leave_nothing_in_the_users_home(tmp_path, xdg):
    home, work = tmp_path / "user", tmp_path / "work"
    cache = tmp_path / "xdg" if xdg else home / ".cache"
    for path in (home / "data" / "input", cache / "huggingface" / "model", home / ".tuner" / "old.json"):
        path.parent.mkdir(parents=True)
        path.write_text("data")
    work.mkdir()
    (work / "program.py").write_text(PROGRAM)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environ |= {"HOME": str(home), **({"XDG_CACHE_HOME": str(cache)} if xdg else {})}
    command = [sys.executable, "-m", "aotcuda", "record", "--dry", "--", sys.executable, "program.py", str(home)]
    done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True, check=False)
    reported = {line.split(": ")[1] for line in done.stderr.splitlines() if "after it timed kernels" in line}
    assert reported == {str(home / "data" / "times.json"), str(home / "times.json"), str(home / "times.db")}, (
        done.stderr
    )
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        *("user/data/input", "user/.tuner/old.json", "user/before.json", "user/times.json", "user/times.db"),
        *("user/data/times.json", "work/program.py", "work/output.json"),
        "xdg/huggingface/model" if xdg else "user/.cache/huggingface/model",
    }
