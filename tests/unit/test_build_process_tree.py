"""Processes that end with their parent, and the end of all processes below one."""

from __future__ import annotations

import signal
import subprocess
import sys

START = "import os, signal, sys; from aotcuda.builder.worker import process_tree;"


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_a_child_whose_parent_was_gone_before_it_asked_goes_at_once() -> None:
    assert run("process_tree.end_with_parent(os.getppid() + 1, signal.SIGKILL)").returncode == -signal.SIGKILL


FAMILY = """
process_tree.adopt_orphans()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
reading, writing = os.pipe()
def child(depth):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN if depth % 2 else signal.SIG_DFL)
        if depth:
            child(depth - 1)
        if depth == 2:
            os._exit(0)  # its child is an orphan
        os.write(writing, b"x")
        signal.pause()
child(4)
for _ in range(4):
    os.read(reading, 1)
process_tree.end_descendants()
assert process_tree._children() == []
os.close(writing)
assert os.read(reading, 9) == b""  # nobody has the other end
"""


def test_all_that_is_below_a_process_is_ended_orphans_and_deaf_ones_too() -> None:
    done = run(FAMILY)
    assert done.returncode == 0, done.stderr


ENDS = """
import atexit
from aotcuda.builder.worker import start
status = [1]
atexit.register(start._leave, os.getpid(), status)
atexit.register(print, "what a source registered")
class Kept:
    def __del__(self): print("freed")
kept = Kept()
status[0] = 3
if os.fork() == 0:
    atexit.unregister(print)
    kept = None
    sys.exit(5)
_, ended = os.wait()
print("the child's status:", os.waitstatus_to_exitcode(ended))
"""


def test_a_worker_ends_when_sources_are_done_and_frees_nothing() -> None:
    done = run(ENDS)
    assert done.returncode == 3
    assert done.stdout.splitlines() == ["freed", "the child's status: 5", "what a source registered"]
