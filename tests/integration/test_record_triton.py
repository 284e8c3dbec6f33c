"""`aotcuda record` of launches by Triton's JIT, with a driver that launches nothing."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib import metadata
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

@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"], cache_results=True
)
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
ODD_KERNELS = """
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["times"], do_not_specialize_on_alignment=["y"])
def declared(x, y, times, n: tl.int64, factor: tl.float32, m: "i32", BLOCK: tl.constexpr):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.jit
def even(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)

@triton.heuristics({"BLOCK": lambda args: 64 if args["n"] < 100 else 128})
@triton.jit
def block(x, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    pass

@triton.jit
def typed(x, DT: tl.constexpr, ACT: tl.constexpr):
    pass

def body(x, BLOCK: tl.constexpr):
    pass

several = triton.jit(body)

@triton.jit
def odd(x, A: tl.constexpr):
    pass

@triton.jit
def pair(xs, A: tl.constexpr):
    pass
"""
ODD_LAUNCHES = """
import os

class Tensor:
    dtype = "float32"
    def __init__(self, address):
        self.data_ptr = lambda: address

class Bytes(Tensor):
    dtype = "float8_e5m2"

class Half(Tensor):
    dtype = "float16"

import triton.language as tl
import mypkg._odd as k

x = Tensor(256)
for times, n in ((1, 64), (32, 1)):
    k.declared[(1,)](x, Tensor(512), times, n, 1.0, 16, BLOCK=64)
for n in (64, 50):
    k.even[(1,)](x, n, BLOCK=64)
    k.block[(1,)](x, n, WIDE=True)
k.block[(1,)](x, 128, WIDE=1)
for tensor, dtype in ((x, tl.float32), (Half(256), tl.float16)):
    k.typed[(1,)](tensor, DT=dtype, ACT=None)
k.typed[(1,)](x, DT=tl.float32, ACT="relu")
k.several[(1,)](x, BLOCK=64, num_warps=8)
k.several[(1,)](x, BLOCK=64)
k.several[(1,)](x, BLOCK=128)
for value in ((1, 2.5), k.pair, "None", "a b", float("inf")):
    k.odd[(1,)](x, A=value)
k.odd[(1,)](Bytes(256), A=1)
k.pair[(1,)]((x, x), A=1)
"""
PROJECT = """
[project]
name = "mypkg"
version = "1"
"""
TABLES = """
[tool.aotcuda]
arch = ["sm_90"]

[tool.aotcuda.modules."mypkg.tri"]
source = "mypkg._tri"
frontend = "triton"

[tool.aotcuda.modules."mypkg.odd"]
source = "mypkg._odd"
frontend = "triton"
"""
"""Modules with other names than their sources, so that their variants are in pyproject.toml."""


@pytest.fixture
def project(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the project, with a driver that reports a GPU."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    folder = tmp_path / "project"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").write_text("")
    (folder / "mypkg" / "_tri.py").write_text(KERNELS)
    (folder / "run.py").write_text(PROGRAM)
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


@pytest.fixture
def odd(project: Path) -> Path:
    """Return the project with kernels that are hard to record, and a program that launches them."""
    (project / "mypkg" / "_odd.py").write_text(ODD_KERNELS)
    (project / "run.py").write_text(ODD_LAUNCHES)
    (project / "pyproject.toml").write_text(PROJECT + TABLES)
    return project


def record(project: Path, *options: str, run: tuple[str, ...] = (), **environ: str) -> projects.Done:
    environ |= {"PYTHONPATH": str(project), "TRITON_CACHE_DIR": str(project.parent / "cache")}
    command = [sys.executable, "-W", "ignore", "run.py", *run]
    return projects.run(project, sys.executable, "-m", "aotcuda", "record", *options, "--", *command, **environ)


def table(text: str, module: str = "tri") -> dict[str, Any]:
    return tomllib.loads(text)["tool"]["aotcuda"]["modules"][f"mypkg.{module}"]


def test_launches_become_variants_of_a_generated_module(project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT + TABLES)
    done = record(project, "--write")
    assert done.status == 0, done.err
    assert table((project / "pyproject.toml").read_text())["variants"] == "mypkg/_tri.variants.json"
    kernels = read(project / "mypkg" / "_tri.variants.json")["kernels"]
    types = ["*fp32:16", "*fp32:16", "*fp32:16"]
    eight = {"constexprs": {"BLOCK": 128}, "num_warps": 8}
    assert kernels["add"]["variants"] == [{"types": [*types, each], **eight} for each in ("i32:16", "i32")]
    assert [*kernels] == ["add"]
    assert "scale void(" in done.err
    assert "it is autotuned, and autotuned kernels are packaged in place" in done.err
    counted = json.loads((project / ".aotcuda-record.json").read_text())["functions"]
    assert [(item["function"], item["launches"]) for item in counted] == [
        ("add", {"compute capability 9.0": 1}),
        ("add", {"compute capability 9.0": 1}),
        ("scale", {"compute capability 9.0": 1}),  # timed launches do not count
    ]
    assert record(project, "--check").status == 0


def test_recorded_variants_are_those_of_the_jit(odd: Path) -> None:
    done = record(odd, "--dry", "--write")
    assert done.status == 0, done.err
    kernels = read(odd / "mypkg" / "_odd.variants.json")["kernels"]
    found = {
        name: [{"types": ", ".join(item.pop("types")), **item.pop("constexprs"), **item} for item in kernel["variants"]]
        for name, kernel in kernels.items()
    }
    declared = ["*fp32:16, *fp32, i32, i64:16, fp32, i32:16", "*fp32:16, *fp32, i32, i64, fp32, i32:16"]
    assert found == {
        "block": [
            {"types": "*fp32:16, i32:16", "BLOCK": 128, "WIDE": 1},
            {"types": "*fp32:16, i32:16", "BLOCK": 64, "WIDE": True},
            {"types": "*fp32:16, i32", "BLOCK": 64, "WIDE": True},
        ],
        "declared": [{"types": types, "BLOCK": 64} for types in reversed(declared)],
        "even": [
            {"types": "*fp32:16, i32:16", "EVEN": True, "BLOCK": 64},
            {"types": "*fp32:16, i32", "EVEN": False, "BLOCK": 64},
        ],
        "odd": [
            {"types": "*fp32:16", "A": "None"},
            {"types": "*fp32:16", "A": "a b"},
            {"types": "*fp32:16", "A": [1, 2.5]},
            {"types": "*fp32:16", "A": {"float": "inf"}},
            {"types": "*fp8e5:16", "A": 1},
        ],
        "several": [
            {"types": "*fp32:16", "BLOCK": 128},
            {"types": "*fp32:16", "BLOCK": 64},
            {"types": "*fp32:16", "BLOCK": 64, "num_warps": 8},
        ],
        "typed": [
            {"types": "*fp16:16", "DT": {"dtype": "float16"}, "ACT": None},
            {"types": "*fp32:16", "DT": {"dtype": "float32"}, "ACT": "relu"},
            {"types": "*fp32:16", "DT": {"dtype": "float32"}, "ACT": None},
        ],
    }
    reasons = [line.partition("num_stages=3): ")[2] for line in done.err.splitlines() if "left out: " in line]
    assert len(reasons) == 2
    for words in ("A is a function, and a packaged constexpr is a number", "xs is a tuple; pass its parts"):
        assert any(reason.startswith(words) for reason in reasons), (words, reasons)
    assert record(odd, "--dry", "--check").status == 0


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_source_without_table_gets_variants_files(project: Path) -> None:
    done = record(project, "--write")
    assert done.status == 0, done.err
    written = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]["modules"]
    variants = "mypkg/_tri.variants.json"
    assert written == {"mypkg._tri": {"source": "mypkg._tri", "frontend": "triton", "variants": variants}}
    assert (
        "aotcuda: mypkg/_tri.py: replace its two imports of Triton: from aotcuda.triton import triton, tl" in done.err
    )
    types = ["*fp32:16", "*fp32:16", "*fp32:16"]
    eight = {"constexprs": {"BLOCK": 128}, "num_warps": 8}
    assert read(project / variants) == {
        "format": "aotcuda variants",
        "version": 1,
        "source": "mypkg._tri",
        "triton": metadata.version("triton"),
        "kernels": {
            "add": {
                "parameters": ["x", "y", "out", "n", "BLOCK"],
                "sizes": [["n"]],
                "variants": [{"types": [*types, "i32:16"], **eight}, {"types": [*types, "i32"], **eight}],
            },
            "scale": {
                "parameters": ["x", "factor", "n", "BLOCK"],
                "sizes": [],
                "variants": [
                    {"types": ["*fp32:16", "fp32", "i32:16"], "constexprs": {"BLOCK": 64}, "num_warps": 2},
                ],
            },
        },
    }
    (gpu,) = read(project / "mypkg" / "_tri.tuning.json")["kernels"]["scale"].pop("gpus").values()
    timing = [[4096, "float32"], [[0, [0, 0, 0]], [1, [1, 1, 1]]]]
    assert gpu == {"capability": "9.0", "default": 0, "choices": [[[4096, "float32"], 0]], "timings": [timing]}
    done = record(project, "--check", run=("more",))
    assert done.status == 1
    assert "add: void(*fp32:16, *fp32, *fp32:16, i32:1; BLOCK=1024" in done.err
    assert f"is not in {variants}" in done.err


DEVICES = """
driver = triton.runtime.driver.active
assert driver.get_current_target().arch == 90 and driver.get_current_device() == 0
assert driver.utils.get_device_properties(0)["multiprocessor_count"] == 132
"""


@pytest.mark.parametrize(
    ("head", "options", "environ", "configs"),
    [
        (DEVICES, ("--gpu", "H100"), {}, [({"BLOCK": 256}, 4), ({"BLOCK": 64}, 2)]),
    ],
    ids=["dry"],
)
def test_configs_of_autotuners_are_recorded_without_a_gpu(
    project: Path, head: str, options: tuple[str, ...], environ: dict[str, str], configs: list[Any]
) -> None:
    start = f"import sys\nimport triton\n{head}from mypkg import _tri\n"
    (project / "run.py").write_text(f"{start}class Tensor:{PROGRAM.partition('class Tensor:')[2]}")
    done = record(project, *options, "--write", **environ)
    assert done.status == 0, done.err
    kernels = read(project / "mypkg" / "_tri.variants.json")["kernels"]
    assert len(kernels["add"]["variants"]) == 2
    assert [(item["constexprs"], item.get("num_warps", 4)) for item in kernels["scale"]["variants"]] == configs
    assert not (project / "mypkg" / "_tri.tuning.json").exists()
    assert not [*project.parent.rglob("*.autotune.json")], "timings of what was not executed are not kept"


SEVERAL_KERNELS = """
import triton
import triton.language as tl

@triton.jit
def sized(x, n, D: tl.constexpr, BLOCK: tl.constexpr, FLAG: tl.constexpr, ONE: tl.constexpr):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 2})
@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.jit
def tuned(x, n, EVEN: tl.constexpr, B: tl.constexpr):
    pass
"""
SEVERAL_LAUNCHES = """
import triton
from mypkg import _tri

class Tensor:
    dtype = "float32"
    shape = (7, 96)
    data_ptr = staticmethod(lambda: 256)
    stride = staticmethod(lambda: (96, 1))

for block in (64, triton.runtime.driver.active.get_current_target().arch):
    _tri.sized[(1,)](Tensor(), 64, D=96, BLOCK=block, FLAG=True, ONE=1)
_tri.sized.warmup(Tensor(), 64, D=96, BLOCK=16, FLAG=True, ONE=1, grid=(1,))
_tri.tuned[(1,)](Tensor(), 64)
_tri.tuned.fn.warmup(Tensor(), 7, EVEN=1, grid=(1,))
"""


def test_each_gpu_gets_a_dry_run_and_constexprs_are_named(project: Path) -> None:
    (project / "mypkg" / "_tri.py").write_text(SEVERAL_KERNELS)
    (project / "run.py").write_text(SEVERAL_LAUNCHES)
    lines = record(project, "--dry", "--gpu", "H100,A100").err.splitlines()
    for name, capability in (("NVIDIA H100 80GB HBM3", "9.0"), ("NVIDIA A100-SXM4-80GB", "8.0")):
        assert any(f"for {name} of compute capability {capability}" in line for line in lines)
    assert any("programs saw the GPU NVIDIA H100 80GB HBM3 and NVIDIA A100-SXM4-80GB" in line for line in lines)
    named = [
        line.partition(" mypkg._tri.")[2].partition(";")[0] for line in lines if "other values are compiled" in line
    ]
    assert named == ["sized: BLOCK is packaged for 16, 64, 80, 90", "sized: D is packaged for 96"]
    functions = json.loads((project / ".aotcuda-record.json").read_text())["functions"]
    # Three variants of `sized`, then each of two configs and the chosen one, then the two configs of a warm-up.
    assert sum(sum(item["launches"].values()) for item in functions) == 2 * (3 + 3 + 2)
