"""`aotcuda record` of Triton's launches, by Triton's own JIT with a driver that launches nothing."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets), mask=offsets < n)

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, factor * tl.load(x + offsets), mask=offsets < n)
"""
PROGRAM = """
import sys
from types import SimpleNamespace
import triton
from triton.backends.compiler import GPUTarget
from mypkg import _tri

class Driver:
    launcher_cls = staticmethod(lambda source, metadata: lambda *args: None)
    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 1 << 20},
        load_binary=lambda *args: (None, 1, 0, 0, 1024),
        unload_module=lambda *args: None,
    )
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

triton.runtime.driver.set_active(Driver())
triton.runtime.autotuner.Autotuner._bench = lambda self, *args, config, **named: [0 if config.num_warps == 2 else 1] * 3

class Tensor:
    dtype = "float32"
    def __init__(self, address):
        self.data_ptr = lambda: address

for n in (4096, 33):
    _tri.add[(8,)](Tensor(256), Tensor(512), Tensor(1024), n, BLOCK=128, num_warps=8)
if "more" in sys.argv:
    _tri.add[(8,)](Tensor(256), Tensor(516), Tensor(1024), 1, BLOCK=1024)
_tri.scale[(8,)](Tensor(256), 0.5, 4096)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").write_text("")
    (folder / "mypkg" / "_tri.py").write_text(KERNELS)
    (folder / "run.py").write_text(PROGRAM)
    (folder / "pyproject.toml").write_text('[project]\nname = "mypkg"\nversion = "1"\n')
    return folder


def record(project: Path, *options: str, run: tuple[str, ...] = ()) -> projects.Done:
    environ = {"PYTHONPATH": str(project), "TRITON_CACHE_DIR": str(project.parent / "cache")}
    command = [sys.executable, "-W", "ignore", "run.py", *run]
    return projects.run(project, sys.executable, "-m", "aotcuda", "record", *options, "--", *command, **environ)


def table(text: str) -> dict[str, Any]:
    return tomllib.loads(text)["tool"]["aotcuda"]["modules"]["mypkg._tri_packaged"]


def test_launches_become_variants_and_what_was_tuned_configs(project: Path) -> None:
    done = record(project, "--write")
    assert done.status == 0, done.err
    written = table((project / "pyproject.toml").read_text())
    assert written == {
        "source": "mypkg._tri",
        "frontend": "triton",
        "kernels": {
            "add": {
                "signatures": ["*fp32:16, *fp32:16, *fp32:16, i32:16", "*fp32:16, *fp32:16, *fp32:16, i32"],
                "specialise": "exact",
                "constexprs": {"BLOCK": 128},
                "num-warps": 8,
            },
            "scale": {
                "signatures": ["*fp32:16, fp32, i32:16"],
                "specialise": "exact",
                "configs": [{"constexprs": {"BLOCK": 64}, "num-warps": 2, "when": {"n": 4096}}],
            },
        },
    }
    counted = json.loads((project / ".aotcuda-record.json").read_text())["functions"]
    assert [(item["function"], item["launches"]) for item in counted] == [
        ("add", {"compute capability 9.0": 1}),
        ("add", {"compute capability 9.0": 1}),
        ("scale", {"compute capability 9.0": 1}),  # the two that were timed are none
    ]
    assert record(project, "--check").status == 0
    before = (project / "pyproject.toml").read_text()
    done = record(project, "--check", run=("more",))
    assert done.status == 1
    assert (
        "add: void(*fp32:16, *fp32, *fp32:16, i32:1; BLOCK=1024, num_warps=4, num_ctas=1, num_stages=3) is not in"
        in done.err
    )
    done = record(project, "--write", run=("more",))
    assert (project / "pyproject.toml").read_text() == before
    assert 'add was launched with more than tool.aotcuda.modules."mypkg._tri_packaged".kernels.add has' in done.err


def test_what_was_recorded_is_a_table_that_a_build_takes(project: Path) -> None:
    from aotcuda.builder import plan
    from aotcuda.builder.config.parser import parse

    done = record(project)
    assert done.status == 0, done.err
    found = tomllib.loads(done.out)["tool"]["aotcuda"]
    (made,) = plan.make(parse({"arch": ["sm_90"], **found}, environ=os.environ))
    assert [unit.signature for unit in made.units] == [
        "void(*fp32:16, *fp32:16, *fp32:16, i32:16; BLOCK=128, num_warps=8, num_stages=3)",
        "void(*fp32:16, *fp32:16, *fp32:16, i32; BLOCK=128, num_warps=8, num_stages=3)",
        "void(*fp32:16, fp32, i32:16; BLOCK=64, num_warps=2, num_stages=3) when n = 4096",
    ]
