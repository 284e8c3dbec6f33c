"""Test that Numba's simulator answers GPU queries of modules in place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path


def test_simulator_answers_gpu_queries(tmp_path: Path) -> None:
    (tmp_path / "queries.py").write_text(
        "from aotcuda.numba import cuda\n"
        "gpu = cuda.get_current_device()\n"
        "print(gpu.MAX_THREADS_PER_BLOCK, gpu.WARP_SIZE, gpu.compute_capability)\n"
    )
    done = projects.run(tmp_path, sys.executable, "-c", "import queries", NUMBA_ENABLE_CUDASIM="1")
    assert done.out == "1024 32 (5, 2)\n", done.err
