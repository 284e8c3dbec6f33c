"""Test that `aotcuda record` counts the launches of Numba and Triton that a program makes on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

# Counts inside the recorder, which records a launch when `launch` of cuda.core has returned.
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


def record(project: Path, source: Path, *command: str, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """Record a program; return the functions of the record, and the program's output."""
    path = os.pathsep.join([str(source), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "aotcuda", "record", "--", sys.executable, "-W", "ignore", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((project / ".aotcuda-record.json").read_text())["functions"], done.stdout


def test_launches_of_numba_are_counted_with_their_gpu(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda")
    project = projects.copy("recorded", tmp_path / "project")
    (project / "count.py").write_text(COUNTED)
    functions, output = record(project, project / "src", "count.py", "some", "types", "threads")
    recorded = sum(count for item in functions for count in item["launches"].values())
    assert f"counted {recorded}\n" in output
    assert recorded > 400
    (gpu,) = {gpu for item in functions for gpu in item["launches"]}
    assert gpu.startswith("NVIDIA ")


TRITON = """
import torch
from tritonkernels import _kernels, _tensor_cores
for n in (4096, 4096, 1000, 999):
    x, y, out = (torch.ones(n, device="cuda") for _ in range(3))
    _kernels.add[lambda meta: (-(-n // meta["BLOCK"]),)](x, y, out, n, BLOCK=128)
    assert out.eq(2).all()
a, b, c = (torch.ones(256, 256, device="cuda", dtype=torch.float16) for _ in range(3))
blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
with torch.cuda.stream(torch.cuda.Stream()):
    _tensor_cores.matmul[2, 2](a, b, c, 256, 256, 256, 256, 1, 256, 1, 256, 1, **blocks, num_warps=8)
for _ in range(3):
    _kernels.scale_kernel[lambda meta: (-(-n // meta["BLOCK"]),)](x, 2.0, n)
torch.cuda.synchronize()
"""


def test_launches_of_triton_are_counted_by_variant(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    gpu = "compute capability {}.{}".format(*torch.cuda.get_device_capability())
    project = projects.copy("tritonkernels", tmp_path / "project")
    (project / "run.py").write_text(TRITON)
    functions = record(project, project, "run.py", TRITON_CACHE_DIR=str(tmp_path / "cache"))[0]
    counted = {(item["function"], item["signature"].partition(";")[0]): item["launches"] for item in functions}
    added = "void(*fp32:16, *fp32:16, *fp32:16, i32"
    strides = ", ".join(["i32:16", "i32:1"] * 3)
    assert counted == {
        ("add", f"{added}:16"): {gpu: 2},
        ("add", added): {gpu: 2},
        ("matmul", f"void(*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, {strides}"): {gpu: 1},
        ("scale_kernel", "void(*fp32:16, fp32, i32"): {gpu: 3},  # launches of the autotuner are not counted
    }
    (tuned,) = [item for item in functions if item["function"] == "scale_kernel"]
    assert any(text in tuned["signature"] for text in ("BLOCK=64, num_warps=2", "BLOCK=512, num_warps=4"))
    assert tuned["options"]["chosen"] == ["BLOCK"]
