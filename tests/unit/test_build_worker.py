"""The worker's own parts that need no compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def threads(**environ: str) -> int:
    script = """
import os
from aotcuda.builder.worker import main
with main._one_thread():
    import numpy
assert os.environ.get("OPENBLAS_NUM_THREADS") == os.environ.get("WANTED")
print(len(os.listdir("/proc/self/task")))
"""
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=given | environ, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_numpy_is_loaded_without_threads_and_sources_see_nothing_of_it() -> None:
    assert threads() == 1


@pytest.mark.parametrize(("ending", "said"), [("reader.close()", 0), ("os.close(writer.fileno())", 1)])
def test_a_worker_whose_build_is_gone_says_nothing(ending: str, said: int) -> None:
    code = f"""
import os
from multiprocessing import Pipe
from aotcuda.builder.worker import ipc
reader, writer = Pipe(duplex=False)
sender = ipc.Sender(writer)
{ending}
sender(step="compiling", done=0, total=1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("wrote to, or closed, file descriptors")) == (1, said), done.stderr
