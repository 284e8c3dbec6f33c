"""`aotcuda record` on a GPU: launches that it counts, against those that were made, Numba's and Triton's."""

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


TRITON = """
import sys
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
if "tuned" in sys.argv:
    for _ in range(3):
        _kernels.scale_kernel[lambda meta: (-(-n // meta["BLOCK"]),)](x, 2.0, n)
torch.cuda.synchronize()
"""


def record_triton(folder: Path, *options: str, run: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    project = folder / "project"
    if not project.exists():
        projects.copy("tritonkernels", project)
        (project / "run.py").write_text(TRITON)
    path = os.pathsep.join([str(project), *filter(None, sys.path)])
    environ = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [
        sys.executable,
        "-m",
        "aotcuda",
        "record",
        *options,
        "--",
        sys.executable,
        "-W",
        "ignore",
        "run.py",
        *run,
    ]
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_tritons_launches_are_counted_by_what_they_were_compiled_for(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    gpu = "compute capability {}.{}".format(*torch.cuda.get_device_capability())
    done = record_triton(tmp_path, run=("tuned",))
    assert done.returncode == 0, done.stderr
    functions = json.loads((tmp_path / "project" / ".aotcuda-record.json").read_text())["functions"]
    counted = {(item["function"], item["signature"].partition(";")[0]): item["launches"] for item in functions}
    added = "void(*fp32:16, *fp32:16, *fp32:16, i32"
    strides = ", ".join(["i32:16", "i32:1"] * 3)
    assert counted == {
        ("add", f"{added}:16"): {gpu: 2},
        ("add", added): {gpu: 2},
        ("matmul", f"void(*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, {strides}"): {gpu: 1},
        ("scale_kernel", "void(*fp32:16, fp32, i32"): {gpu: 3},  # what was launched to be timed is not counted
    }
    (tuned,) = [item for item in functions if item["function"] == "scale_kernel"]
    assert any(text in tuned["signature"] for text in ("BLOCK=64, num_warps=2", "BLOCK=512, num_warps=4"))
    assert tuned["options"]["when"] == {"n": 999}


def test_the_table_of_what_is_packaged_has_all_that_was_launched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    done = record_triton(tmp_path, "--check")
    assert done.returncode == 0, done.stderr
    assert "the table has every signature that was launched" in done.stderr
