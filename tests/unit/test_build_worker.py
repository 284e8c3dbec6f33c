"""The worker's own parts that need no compiler."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from aotcuda.builder.worker import source_loading


@pytest.mark.parametrize("failing", [False, True])
def test_garbage_is_collected_again_after_imports_and_not_in_them(*, failing: bool) -> None:
    before = gc.get_freeze_count()
    try:
        with suppress(KeyError), source_loading.lasting():
            assert not gc.isenabled()
            if failing:
                raise KeyError
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() > 0
    finally:
        gc.freeze()  # as all is that was there before the tests


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


def test_users_may_have_threads() -> None:
    assert threads(OPENBLAS_NUM_THREADS="2", WANTED="2") in (1, 2), "as many as there are cores"


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
