"""`aotcuda record` on a GPU: launches that it counts, against those that the driver's binding was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

# Counts below the recorder, which records what `launch` of cuda.core has returned from.
COUNTED = """
import cuda.core, sys
count = 0
launch = cuda.core.launch
def counting(*args):
    global count
    result = launch(*args)
    count += 1
    return result
cuda.core.launch = counting
from recorded import run
for way in sys.argv[1:]:
    getattr(run, way)()
print("counted", count)
"""


def test_counts_and_gpu(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda")
    project = projects.copy("recorded", tmp_path / "project")
    (project / "count.py").write_text(COUNTED)
    command = [sys.executable, "-m", "aotcuda", "record", "--", sys.executable, "-W", "ignore", "count.py"]
    # The process that runs the tests may see aotcuda and the compilers by its own path alone.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project / "src"), *filter(None, sys.path)])}
    done = subprocess.run(
        [*command, "some", "types", "threads"], cwd=project, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    functions = json.loads((project / ".aotcuda-record.json").read_text())["functions"]
    recorded = sum(count for item in functions for count in item["launches"].values())
    assert f"counted {recorded}\n" in done.stdout
    assert recorded > 400
    gpus = {gpu for item in functions for gpu in item["launches"]}
    assert len(gpus) == 1
    assert next(iter(gpus)).startswith("NVIDIA ")
