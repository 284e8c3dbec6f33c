"""The worker that is started before its job is known: taken if it fits, and gone in any case."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder import ahead, backend, capacity
from aotcuda.builder.worker import lifetime, process
from aotcuda.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from typing import Any

TABLE: dict[str, object] = {"modules": {"pkg.kernels": {}, "pkg.more": {}}}


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 2)


def project(table: object) -> dict[str, object]:
    return {"tool": {"aotcuda": table}}


def waiting() -> process._Worker:
    (worker,) = process._ready
    return worker


def is_gone(worker: process._Worker) -> bool:
    return worker.process.poll() is not None and not lifetime.status(worker.process.pid)


def descriptors() -> list[str]:
    """Those that this process has open, and what they are."""
    return [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def test_a_worker_is_there_as_long_as_the_block_and_no_longer(tmp_path: Path) -> None:
    with ahead.worker(project(TABLE), tmp_path):
        worker = waiting()
        assert worker.process.poll() is None
        assert worker.kind.root == str(tmp_path)
        assert worker.kind.environ["AOTCUDA_BUILDING"] == "1"
    assert is_gone(worker)
    assert not process._ready


def test_the_jit_fallback_has_one_too(tmp_path: Path) -> None:
    with ahead.fallback(str(tmp_path / "gone"), str(tmp_path), "numba-cuda", "sm_90", (13, 0)):
        worker = waiting()
        assert worker.process.poll() is None
        assert worker.kind.root == str(tmp_path)
        assert worker.kind.environ["AOTCUDA_FALLBACK"] == "error"
    assert is_gone(worker)


@pytest.mark.parametrize("front_end", ["my-own", ""])
def test_it_has_none_for_a_front_end_that_aotcuda_does_not_know(tmp_path: Path, front_end: str) -> None:
    with ahead.fallback(str(tmp_path), str(tmp_path), front_end, "sm_90", (13, 0)):
        assert not process._ready


def test_it_is_taken_for_a_job_of_its_kind(tmp_path: Path) -> None:
    with ahead.worker(project(TABLE), tmp_path):
        worker = waiting()
        taken = process._taken(process._Kind(*worker.kind))
        assert taken is worker
        assert not process._ready
        taken.jobs.close()  # no job
        taken.wait()
        assert taken.process.wait() == 0  # its supervisor has seen it end
        taken.close()
    assert is_gone(worker)


@pytest.mark.parametrize(
    "other",
    [
        {"root": "/"},
        {"paths": ("/elsewhere",)},
        {"environ": {"AOTCUDA_BUILDING": "1"}},
        {"extra": "aotcuda[triton]"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_for_a_job_of_another_kind_another_one_is_started(tmp_path: Path, other: dict[str, Any]) -> None:
    with ahead.worker(project(TABLE), tmp_path):
        worker = waiting()
        kind = worker.kind._replace(**other)
        taken = process._taken(kind)
        assert taken is not worker
        assert taken.kind == kind
        assert is_gone(worker)
        taken.close()
        assert is_gone(taken)


def test_no_other_thread_takes_or_ends_it(tmp_path: Path) -> None:
    """The kernel ends a worker with the thread that started it, in the midst of another thread's job."""

    def build() -> None:
        with ahead.worker(project(TABLE), tmp_path):
            (own,) = [worker for worker in process._ready if worker is not others]
            taken.extend(process._taken(process._Kind(*kind)) for kind in (own.kind, own.kind))
            assert taken[0] is own
        for worker in taken:
            worker.close()

    taken: list[process._Worker] = []
    with ahead.worker(project(TABLE), tmp_path):
        others = waiting()
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
        assert len(taken) == 2
        assert others not in taken
        assert waiting() is others
        assert others.process.poll() is None


def test_a_copy_of_the_process_does_not_take_it(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from aotcuda.builder import ahead, capacity
from aotcuda.builder.worker import process
capacity.processes = lambda: 2
with ahead.worker({project(TABLE)!r}, Path({str(tmp_path)!r})):
    (worker,) = process._ready
    if os.fork() == 0:
        taken = process._taken(worker.kind._replace(owner=process._owner()))
        taken.close()
        os._exit(taken is worker)
    print(os.wait()[1], process._taken(worker.kind) is worker, worker.process.poll())
    worker.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "None"]


@pytest.mark.parametrize("missing", ["memfd_create", "pipe", "Popen"])
def test_one_that_cannot_be_started_is_left_to_the_job_and_leaves_nothing_open(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_settings: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = descriptors()
    monkeypatch.setattr(subprocess if missing == "Popen" else os, missing, refuse)
    with ahead.worker(project(TABLE), tmp_path):
        assert not process._ready
    kind = process._Kind(str(tmp_path), (), {}, "", process._owner())
    with pytest.raises(BuildError, match=r"cannot start a process \(Too many open files\)"):
        process._taken(kind)
    assert descriptors() == before


def test_its_descriptors_are_no_standard_streams_also_where_those_are_missing(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from aotcuda.builder import ahead, capacity
from aotcuda.builder.worker import process
capacity.processes = lambda: 2
os.closerange(0, 3)
found = []
start = process._Worker._started
process._Worker._started = lambda worker, told: found.append(told) or start(worker, told)
with ahead.worker({project(TABLE)!r}, Path({str(tmp_path)!r})):
    (worker,) = process._ready
    found += [worker.messages, worker._result]
os._exit(0 if len(found) == 3 and min(found) > 2 and os.open("/", os.O_RDONLY) == 0 else 1)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_its_end_is_seen_also_by_a_python_that_was_built_for_older_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with ahead.worker(project(TABLE), tmp_path):
        worker = process._taken(waiting().kind)
        worker.jobs.close()
        worker.wait()
        assert worker.process.returncode == 0
        worker.close()


def test_a_build_that_is_refused_leaves_none(tmp_path: Path) -> None:
    table = {"arch": ["sm_1"], "modules": {"pkg.kernels": {"source": "pkg.s", "kernels": {"f": "void()"}}}}

    def build() -> None:
        with ahead.worker(project(table), tmp_path):
            seen.append(waiting())
            backend.build(table, tmp_path, [], [], editable=False)

    seen: list[process._Worker] = []
    with pytest.raises(ConfigError, match="sm_1"):
        build()
    assert is_gone(seen[0])


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = f"""
import signal
from pathlib import Path
from aotcuda.builder import ahead, capacity
from aotcuda.builder.worker import process
capacity.processes = lambda: 2
with ahead.worker({project(TABLE)!r}, Path({str(tmp_path)!r})):
    print(process._ready[0].process.pid, flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        supervisor = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        assert select.select([supervisor], [], [], 30)[0]
        os.close(supervisor)


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        [],
        {"modules": {}},
        {"modules": []},
        {"modules": {"pkg.kernels": 1}},
        {"modules": {"pkg.kernels": {}}, "frontend": 3},
        {"modules": {"pkg.kernels": {}}, "frontend": "nobody's"},
        {"modules": {"pkg.kernels": {}, "pkg.more": {"frontend": "triton"}}},
        {"modules": {"pkg.kernels": {"frontend": ["triton"]}}},
    ],
    ids=str,
)
def test_none_is_started_where_a_glance_does_not_tell_which(tmp_path: Path, table: object) -> None:
    with ahead.worker(project(table), tmp_path):
        assert not process._ready


def test_none_is_started_on_one_core_nor_where_no_process_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ahead.worker(project(TABLE), tmp_path / "missing"):
        assert not process._ready
    monkeypatch.setattr(capacity, "processes", lambda: 1)
    with ahead.worker(project(TABLE), tmp_path):
        assert not process._ready


@pytest.mark.parametrize("text", [None, b"", b"tool = 1", b"[tool", b"\xff", b"[tool]\naotcuda = 1"], ids=str)
def test_a_file_of_any_content_is_left_to_the_build(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_bytes(text)
    for path in (tmp_path, tmp_path / "pyproject.toml"):
        with ahead.worker_of(path):
            assert not process._ready


def test_a_project_is_found_by_its_folder_and_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.aotcuda.modules."pkg.kernels"]\n')
    for path in (tmp_path, tmp_path / "pyproject.toml"):
        with ahead.worker_of(path):
            assert waiting().kind.root == str(tmp_path)


def test_it_imports_no_compiler_before_it_has_a_job() -> None:
    script = "import sys; from aotcuda.builder.worker import main; print(*{it.partition('.')[0] for it in sys.modules})"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "aotcuda" in imported
    assert not {"numba", "numba_cuda", "numba_cuda_mlir", "llvmlite", "triton"} & {*imported}
