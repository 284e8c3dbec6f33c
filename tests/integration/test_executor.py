"""Test builds with shards as jobs of an executor: processes of this machine, and Dask with two workers."""

from __future__ import annotations

import concurrent.futures
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import zipfile
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.entry import api
from aotcuda.builder.shards import executor, remote_job
from aotcuda.errors import AotcudaError
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KERNELS = 32
TABLE = """\
[tool.aotcuda]
arch = ["sm_80"]

[tool.aotcuda.modules."pkg.kernels"]
source = "pkg._kernels"

[tool.aotcuda.modules."pkg.kernels".kernels]
"""
WAITS = """\
import socket

try:
    with socket.create_connection(("127.0.0.1", {port})) as test:
        test.recv(1)
except OSError:
    pass
"""
MAKE = """\
import concurrent.futures
import os
import signal


def once(flag):
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def make():
    return concurrent.futures.ProcessPoolExecutor(1, initializer=once, initargs=({flag!r},))
"""
SECONDS = 120


def written(root: Path, kernels: int, beginning: str = "") -> Path:
    source = (
        beginning
        + "from numba import cuda\n"
        + "".join(f"\n\n@cuda.jit\ndef k{number}(x):\n    x[cuda.grid(1)] = {number}\n" for number in range(kernels))
    )
    table = TABLE + "".join(f'k{number} = "void(float32[::1])"\n' for number in range(kernels))
    return projects.put(root, {"pyproject.toml": table, "pkg/__init__.py": "", "pkg/_kernels.py": source})


def build(root: Path) -> Any:
    return api.build(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"], root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path.resolve() / "project", 2)


def test_job_of_a_lost_pool_process_runs_again(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    expected = build(project)
    (project / "pool_of_one.py").write_text(MAKE.format(flag=str(tmp_path / "flag")))
    monkeypatch.setenv("AOTCUDA_EXECUTOR", "pool_of_one:make")
    assert build(project).files == expected.files
    assert (tmp_path / "flag").exists()


class OneOutcome(concurrent.futures.Executor):
    """An executor whose jobs all have the same outcome."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def submit(self, *_: object, **__: object) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if isinstance(self.outcome, Exception):
            future.set_exception(self.outcome)
        else:
            future.set_result(self.outcome)
        return future


def result(**values: object) -> tuple[dict[str, object], dict[str, bytes]]:
    return {"error": "", "worker": "node7", "warnings": [], **values}, {}


OUTCOMES = {
    "other tools": (
        result(error="has numba-cuda 0.30.3, and the build has 0.30.4", refused=True),
        "the worker node7 has numba-cuda 0.30.3, and the build has 0.30.4; install the same there",
    ),
    "an error of a kernel": (result(error="tool.aotcuda: no", **{"class": "CompileError"}), "^tool.aotcuda: no$"),
    "no aotcuda": (ModuleNotFoundError("No module named 'aotcuda'"), "shard 1 of 1: ModuleNotFoundError: No module"),
    "lost": (concurrent.futures.BrokenExecutor("gone"), r"shard 1 of 1 was lost with its worker 3 times \(.*gone\)"),
    "damage": (({**result()[0]}, {"0" * 64: b"?"}), "entry from the worker node7 cannot be stored: it is damaged"),
    "nothing": (result(), "the build cache lacks 2 of 2"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_failing_job_gives_one_line(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, message = OUTCOMES[name]
    monkeypatch.setenv("AOTCUDA_EXECUTOR", "given_executor:make")
    monkeypatch.setitem(sys.modules, "given_executor", SimpleNamespace(make=lambda: OneOutcome(outcome)))
    with pytest.raises(AotcudaError, match=message) as error:
        build(project)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense", "AOTCUDA_EXECUTOR is 'nonsense'; write dask://HOST:PORT, or module:function"),
        ("os:getpid", "os:getpid returned a int; write dask"),
        pytest.param(
            "dask://127.0.0.1:1", "no scheduler answers at 127.0.0.1:1 within 1 seconds", marks=pytest.mark.matrix
        ),
    ],
)
def test_invalid_executor_gives_one_line(
    given: str, message: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTCUDA_EXECUTOR", given)
    monkeypatch.setattr(executor, "_TIME_LIMIT", 1.0)
    with pytest.raises(AotcudaError, match=message) as error:
        build(project)
    assert "\n" not in str(error.value)


def test_worker_with_other_tools_refuses_the_job() -> None:
    request = {
        "table": {}, "roots": [], "variables": {}, "distributions": [], "tools": {"Python": "2.7"},
        "index": 1, "count": 1,
    }  # fmt: skip
    outcome, entries = remote_job.run(b"no archive", request)
    assert outcome["refused"]
    assert re.fullmatch(r"has Python .*, and the build has 2\.7", outcome["error"])
    assert not entries


def test_hidden_files_and_environments_are_not_sent(project: Path, tmp_path: Path) -> None:
    for path in (".git/config", "venv/pyvenv.cfg", "venv/lib/x.py", "pkg/__pycache__/x.pyc", "pkg/.hidden"):
        projects.put(project, {path: "x"})
    names = zipfile.ZipFile(io.BytesIO(executor.pack_project(project))).namelist()
    assert sorted(names) == ["pkg/__init__.py", "pkg/_kernels.py", "pyproject.toml"]


@contextmanager
def dask(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """Start a scheduler and workers of one thread each; give the address and the processes, the scheduler first."""
    here = {"cwd": folder, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    command = (sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0")
    processes = [subprocess.Popen([*command, "--no-dashboard"], **here)]
    try:
        address = line_with(processes[0], r"tcp://(127\.0\.0\.1:\d+)")
        for _ in range(2):
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder))
            command = (sys.executable, "-m", "distributed.cli.dask_worker", address, *options)
            processes.append(subprocess.Popen(command, **here))
        for worker in processes[1:]:
            line_with(worker, "(Registered to)")
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def line_with(process: subprocess.Popen[str], pattern: str) -> str:
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(process.wait())


@contextmanager
def started(root: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    """Start a build with the executor."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aotcuda", "build", "--out", str(root / "out")],
        cwd=root,
        env={**os.environ, "AOTCUDA_EXECUTOR": f"dask://{address}", "AOTCUDA_PROGRESS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """Return a project whose sources connect to a socket and wait for its end, and the socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        root = tmp_path.resolve() / "project"
        yield written(root, KERNELS, WAITS.format(port=server.getsockname()[1])), server


@pytest.mark.matrix
def test_job_of_a_lost_dask_worker_runs_again(
    waiting: tuple[Path, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, server = waiting
    with dask(tmp_path) as (address, processes), started(root, address) as client:
        connections = [server.accept()[0] for _ in range(2)]
        processes[1].kill()
        server.close()
        for connection in connections:
            connection.close()
        err = client.communicate(timeout=SECONDS)[1]
    assert client.returncode == 0, err
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    assert projects.tree(root / "out") == build(root).files


@pytest.mark.matrix
def test_ctrl_c_ends_the_jobs_on_dask_workers(waiting: tuple[Path, socket.socket], tmp_path: Path) -> None:
    root, server = waiting
    with dask(tmp_path) as (address, _), started(root, address) as client:
        connections = [server.accept()[0] for _ in range(2)]
        client.send_signal(signal.SIGINT)
        err = client.communicate(timeout=SECONDS)[1]
        assert (client.returncode, err) == (130, "aotcuda: build interrupted; nothing was written\n")
        for connection in connections:
            connection.settimeout(SECONDS)
            assert connection.recv(1) == b"", "the job's process has ended"
            connection.close()
