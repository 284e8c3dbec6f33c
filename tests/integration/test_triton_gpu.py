"""Queries of a GPU by Triton's sources and kernels during a build are answered for the target."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
SOURCE = """
import triton
import triton.language as tl
from triton.language import target_info

driver = triton.runtime.driver
try:
    CAPABILITY = driver.active.get_current_target().arch
    SHARED = driver.active.utils.get_device_properties(driver.active.get_current_device())["max_shared_mem"]
except RuntimeError:
    CAPABILITY = SHARED = 0
try:
    STREAM = driver.active.get_current_stream(0)
except RuntimeError as error:
    STREAM = 0
COUNT = driver.active.utils.get_device_properties(0).get("multiprocessor_count")
VALUE = tl.constexpr(float(CAPABILITY * 1000 + SHARED // 1024))

@triton.jit
def asking(x):
    tl.store(x, VALUE)
    if target_info.is_cuda():
        if target_info.cuda_capability_geq(9, 0):
            tl.store(x + 1, 90.0)
        else:
            tl.store(x + 1, 80.0)
    else:
        tl.store(x + 1, 1.0)
"""
TABLE = 'frontend = "triton"\nfallback = "error"\narch = ["sm_80", "sm_90a"]\n'
KERNEL = 'kernels.asking = { signature = "*fp32:16", num-warps = 1 }'


def numbers(fatbin: Path, target: str, *candidates: float) -> list[float]:
    """Return the candidates that the machine code of an image contains."""
    text = cuobjdump(fatbin.read_bytes(), "-sass", "-arch", target)
    return [number for number in candidates if struct.pack(">f", number).hex() in text]


def test_the_target_answers_source_and_kernel(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", SOURCE, aotcuda=TABLE, module=KERNEL)
    output = projects.aotcuda(project, "build", ".", "--out", "out").err
    fatbin = project / "out" / "pkg" / "k.aotcuda" / "kernels.fatbin"
    assert numbers(fatbin, "sm_80", 80_163, 90_227, 1, 80, 90) == [80_163, 80]
    assert numbers(fatbin, "sm_90a", 80_163, 90_227, 1, 80, 90) == [90_227, 90]
    queries = [line.partition("queried a GPU for ")[2] for line in output.splitlines() if "queried a GPU" in line]
    each = ", by the target; sources were imported for each"
    missing = (
        "this needs a GPU, and a build has none; do it in a function that is called later, and continued without "
        "an answer"
    )
    assert queries == [
        f"Triton's current target and got the answer sm_80 or sm_90{each}",
        f"max_shared_mem and got the answer 166912 or 232448{each}",
        f"Triton's get_current_stream, got an error, since {missing}",
        f"multiprocessor_count and got the answer 108 or 132{each}",
    ]
