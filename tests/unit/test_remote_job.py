"""Test the process in which a worker of an executor builds a shard: its result, its last words and its end."""

from __future__ import annotations

import os
import sys
import types

import pytest

from aotcuda.builder.shards import remote_job

REQUEST = {"index": 1}


@pytest.fixture
def script(monkeypatch):
    """Return a function that sets the code of the process, which runs in the folder of the shard."""
    monkeypatch.setattr(remote_job, "_TICK", 0.01)
    monkeypatch.setattr(remote_job, "_TIME_LIMIT", 0.05)
    return lambda code: monkeypatch.setattr(remote_job, "_START", f"import json, os, pathlib, sys, time\n{code}")


def test_a_shard_returns_its_result_and_the_entries_of_the_cache(script):
    script("""
archive = pathlib.Path("project.zip").read_bytes().decode()
request = json.loads(pathlib.Path("request.json").read_text())
pathlib.Path("entries").mkdir()
for name in "ba":
    pathlib.Path("entries", name).write_text(name * 2)
own = os.getpgid(0) == os.getpid()  # a group of its own
path, parent = json.loads(sys.argv[1]), sys.argv[2]
facts = {"archive": archive, "request": request, "path": path, "parent": parent, "own": own}
pathlib.Path("result.json").write_text(json.dumps(facts))
""")
    result, entries = remote_job.run(b"archive", REQUEST)
    assert result.pop("worker").endswith(f" (process {os.getpid()})")
    path = [each for each in sys.path if each]
    assert result == {"archive": "archive", "request": REQUEST, "path": path, "parent": str(os.getpid()), "own": True}
    assert [*entries.items()] == [("a", b"aa"), ("b", b"bb")]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('one'); print('two', file=sys.stderr); print(' ')", "two"),
        ("sys.exit(3)", "exit status 3"),
        ("os.write(1, b'\\xff end')", "\N{REPLACEMENT CHARACTER} end"),
        ("os.kill(os.getpid(), 9)", "exit status -9"),
        ("print(sys.stdin.read() or 'no input')", "no input"),
    ],
)
def test_without_a_result_the_error_has_the_last_line(script, code, words):
    script(code)
    result, entries = remote_job.run(b"", REQUEST)
    assert (result["error"], entries) == (f"its process ended without a result: {words}", {})
    assert [*result] == ["error", "worker"]


def of_dask(monkeypatch, state):
    """Have a module `distributed` whose worker runs a task in a state; None for a task that it does not have."""
    tasks = {"key": types.SimpleNamespace(state=state)} if state is not None else {}
    worker = types.SimpleNamespace(state=types.SimpleNamespace(tasks=tasks), get_current_task=lambda: "key")
    monkeypatch.setitem(sys.modules, "distributed", types.SimpleNamespace(get_worker=lambda: worker))


@pytest.mark.parametrize(("state", "cancelled"), [("executing", False), ("cancelled", True), (None, True)])
def test_a_task_of_dask_is_cancelled_if_its_worker_says_so(monkeypatch, state, cancelled):
    of_dask(monkeypatch, state)
    assert remote_job._is_cancelled() is cancelled


def test_outside_of_dask_nothing_is_cancelled(monkeypatch):
    monkeypatch.delitem(sys.modules, "distributed", raising=False)
    assert remote_job._is_cancelled() is False


@pytest.mark.parametrize("ignores", [False, True])
def test_a_cancelled_shard_leaves_no_process(script, monkeypatch, tmp_path, ignores):
    file = tmp_path / "id"
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores else ""
    script(f"{ignoring}\nopen({str(file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    monkeypatch.setattr(remote_job, "_is_cancelled", lambda: file.exists() and bool(file.read_text()))
    with pytest.raises(remote_job.CancelledError):
        remote_job.run(b"", REQUEST)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
