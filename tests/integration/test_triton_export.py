"""`aotcuda export triton-cache` fills a folder that stock Triton reads: the same launches compile nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.tools.export import check, folder

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

KERNELS = """
import triton
import triton.language as tl

LIMIT = tl.constexpr(3)

@triton.jit
def helper(x):
    return x + LIMIT

@triton.jit(do_not_specialize=["m"], do_not_specialize_on_alignment=["y"])
def many(x, y, n, m, f, flag, none, typed: tl.int32, wide: tl.uint64, DT: tl.constexpr, B: tl.constexpr,
         ACT: tl.constexpr = None, PAIR: tl.constexpr = 1.0):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = helper(tl.load(x + at, at < n)).to(tl.float32) * f + m + typed
    if flag:
        value += wide
    tl.store(y + at, value.to(DT), at < n)

@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.autotune([triton.Config({"B": 64}, num_warps=2), triton.Config({"B": 128}, maxnreg=64)], key=["n"])
@triton.jit
def tuned(x, n, EVEN: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, at < n) + 1, at < n)

@triton.jit
def tiles(x, factor, BM: tl.constexpr, BN: tl.constexpr):
    x.store([0, 0], x.load([0, 0]) * factor)
"""
LAUNCHES = """
import json, os, sys, subprocess
from types import SimpleNamespace
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor
from pkg import _tri

class Launcher:
    def __init__(self, source, metadata):
        if hasattr(nvidia, "make_launcher") and "kernels alone" not in sys.argv:  # in 3.6
            nvidia.CudaLauncher(source, metadata)
    def __call__(self, *args):
        pass

class Driver:
    launcher_cls = Launcher
    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 1 << 20},
        load_binary=lambda *args: (None, 1, 0, 0, 1024),
        unload_module=lambda *args: None,
    )
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_benchmarker = staticmethod(lambda: lambda call, quantiles: (call(), [1.0] * 3)[1])

from triton.backends.nvidia import driver as nvidia
nvidia.libcuda_dirs = lambda: [os.environ.get("TRITON_LIBCUDA_PATH", "/usr/lib64")]
class Module:
    def __getattr__(self, name):
        return name

triton.runtime.build._load_module_from_path = lambda name, path: Module()
triton.runtime.driver.set_active(Driver())

class Dtype(str):
    itemsize = 4

class Tensor:
    shape = (64, 64)
    def __init__(self, address, dtype="float32"):
        self.data_ptr = lambda: address
        self.dtype = Dtype(dtype)

compiled = []
def listener(*, src, cache_hit, **_):
    compiled.append([src.name, cache_hit])

triton.knobs.compilation.listener = listener
aligned, other = Tensor(256), Tensor(260)
half, odd = Tensor(512, "float16"), Tensor(514, "torch.float16")
for x, y, n, m, f, flag, typed, wide, rest in (
    (aligned, half, 64, 64, 1.5, True, 16, 16, {}),
    (other, odd, 1, 1, 1, False, 1, 1, {"ACT": "relu"}),
    (aligned, odd, 63, 2**40, 2.0, True, 17, 2**63, {"PAIR": True, "num_stages": 2}),
    (aligned, half, 2**31, 2**63, 2.0, True, 1, 17, {"ACT": 0.0, "PAIR": 1}),
    (aligned, half, 2**31 + 1, 7, 2.0, True, 17, 1, {"enable_fp_fusion": False}),
):
    f = float(f)
    _tri.many[(1,)](x, y, n, m, f, flag, None, typed, wide, tl.float16, 64, **rest)
for n in (64, 7):
    _tri.tuned[(1,)](aligned, n)
_tri.tiles[(1,)](TensorDescriptor(aligned, [64, 64], [64, 1], [32, 32]), 2.0, 32, 32)
if "utilities" in sys.argv:
    nvidia.CudaUtils()
print(json.dumps(compiled))
"""
PROJECT = """
[project]
name = "pkg"
version = "1.0"

[tool.aotcuda]
arch = ["sm_90", "compute_80"]

[tool.aotcuda.modules."pkg._tri"]
frontend = "triton"
source = "pkg._tri"
variants = "pkg/_tri.variants.json"
"""


@pytest.fixture
def project(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return a recorded project, with its export in the folder `cache`."""

    def fill(root: Path) -> None:
        made = root / "project"
        (made / "pkg").mkdir(parents=True)
        (made / "pkg/__init__.py").touch()
        (made / "pkg/_tri.py").write_text(KERNELS)
        (made / "pyproject.toml").write_text(PROJECT)
        record = ["record", "--dry", "--gpu", "H100", "--write", "--", sys.executable, str(root / "dry.py")]
        (root / "dry.py").write_text(_without_driver(LAUNCHES))
        assert _aotcuda(made, *record).returncode == 0
        export(made, root / "cache")

    return once("triton-export", fill)


def _without_driver(text: str) -> str:
    """Return the launches for a dry run, which has its own driver."""
    begin, end = text.index("from triton.backends.nvidia import"), text.index("class Dtype")
    return text[:begin] + text[end:].replace("    nvidia.CudaUtils()", "    pass")


def _aotcuda(folder_of_project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder_of_project), "TRITON_DEFAULT_FP_FUSION": "1", **environ}
    command = [sys.executable, "-m", "aotcuda", *arguments]
    return subprocess.run(command, cwd=folder_of_project, env=environment, capture_output=True, text=True, check=False)


def export(made: Path, cache: Path, *options: str, **environ: str) -> str:
    """Export a project into a folder; return the output."""
    done = _aotcuda(made, "export", "triton-cache", ".", "--out", str(cache), *options, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def launch(root: Path, cache: Path, *arguments: str, **environ: str) -> list[tuple[str, bool]]:
    """Make the launches by stock Triton, without a C compiler; return each compilation, and whether it was a hit."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "project"),
        "TRITON_CACHE_DIR": str(cache),
        "CC": "/bin/false",
    }
    environment |= {"TRITON_DEFAULT_FP_FUSION": "1", **environ}
    command = [sys.executable, str(_launches(root)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout.splitlines()[-1])]


def _launches(root: Path) -> Path:
    path = root / "launches.py"
    path.write_text(LAUNCHES)
    return path


def test_stock_triton_finds_each_launch_in_a_folder_that_nobody_can_write(project: Path) -> None:
    cache = project / "cache"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    found = launch(project, cache, "utilities")
    assert sorted(found) == sorted([("many", True)] * 5 + [("tuned", True)] * 4 + [("tiles", True)])
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_two_exports_are_equal_and_a_second_one_adds_what_is_missing(project: Path, tmp_path: Path) -> None:
    cache = project / "cache"
    files = {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    copied = Path(shutil.copytree(cache, tmp_path / "copied"))
    for entry in [path.parent for path in copied.glob("*/many.cubin")]:
        shutil.rmtree(entry)
    times = {path: path.stat().st_mtime_ns for path in copied.glob("*/*")}
    assert 0 < len(times) < len([*cache.glob("*/*")])
    text = export(project / "project", copied, "--at", str(cache))
    assert "entries are for compute capability 9.0 exactly: Triton's cache serves no other GPU" in text
    assert "compute_80 of tool.aotcuda.arch gets no entry: Triton's cache holds machine code alone" in text
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert {path.relative_to(copied): path.read_bytes() for path in copied.rglob("*") if path.is_file()} == files
    (export_,) = json.loads((cache / folder.FILE).read_text())["exports"]
    assert {kernel["capability"] for kernel in export_["kernels"]} == {"9.0"}
    assert export_["left_out"] == []


def test_doctor_names_what_differs(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    cache = project / "cache"
    assert check.problem(check.compare(cache)) is None
    copied = Path(shutil.copytree(cache, tmp_path / "copied"))
    described = json.loads((copied / folder.FILE).read_text())
    (exported,) = described["exports"]
    exported |= {"triton": "3.5.0", "python": "3.9", "packages": {"nothing-of-this-name": "1.0"}}
    exported["ptxas"]["9.0"] = "ptxas\nBuild cuda_1.0"
    (copied / folder.FILE).write_text(json.dumps(described))
    entry = next(path for path in sorted(copied.glob("*/*.cubin")))
    entry.write_bytes(b"changed")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    findings: dict[str, Any] = check.compare(copied)
    text = check.render(findings)
    for part in (
        "it was made for Triton 3.5.0",
        "it was made for Python 3.9",
        "it was made with TRITON_DEFAULT_FP_FUSION=true, and here is TRITON_DEFAULT_FP_FUSION=",
        "for 9.0 it was made by Build cuda_1.0",
        "it was made from nothing-of-this-name 1.0, and none is installed",
        f"{entry.parent.name}/{entry.name} was changed",
        f"Triton looks for its files in {cache}; export with --at {copied}, or move the folder there",
    ):
        assert part in text
    assert str(check.problem(findings)).startswith(f"{copied}: Triton would compile kernels of pkg here")
    assert _aotcuda(project / "project", "doctor", "--triton-cache", str(copied)).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "relative"], "--at relative: Triton stores absolute paths"),
        (["--out", "pyproject.toml"], "pyproject.toml is no folder"),
        (["absent"], "absent/pyproject.toml does not exist; name a folder with a pyproject.toml"),
    ],
)
def test_problems_are_one_line_and_write_nothing(
    arguments: list[str], message: str, project: Path, tmp_path: Path
) -> None:
    done = _aotcuda(project / "project", "export", "triton-cache", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_timings_of_one_gpu_are_exported(project: Path, tmp_path: Path) -> None:
    made = Path(shutil.copytree(project / "project", tmp_path / "project"))
    variants = json.loads((made / "pkg/_tri.variants.json").read_text())
    del variants["kernels"]["many"]
    (made / "pkg/_tri.variants.json").write_text(json.dumps(variants))
    configs = [
        {"kwargs": {"B": 64}, "num_warps": 2, "num_ctas": 1, "num_stages": 3},
        {"kwargs": {"B": 128}, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": 64},
    ]
    timed = [[[n, "float32"], [[0, [3.0, 3.0, 3.0]], [1, [2.0, 2.0, 2.0]]]] for n in (64, 7)]
    gpu = {"capability": "9.0", "default": 1, "choices": [], "timings": timed}
    tuned = {"keys": ["n"], "configs": configs, "gpus": {"NVIDIA H100": gpu, "NVIDIA H200": gpu}}
    content = {"format": "aotcuda tuning", "version": 1, "source": "pkg._tri", "kernels": {"tuned": tuned}}
    (made / "pkg/_tri.tuning.json").write_text(json.dumps(content))
    text = export(made, tmp_path / "several", AOTCUDA_ARCH="sm_90")
    assert "pkg._tri:tuned has timings of NVIDIA H100 and NVIDIA H200" in text
    text = export(made, tmp_path / "cache", "--gpu", "NVIDIA H200", AOTCUDA_ARCH="sm_80;sm_90")
    assert "entries are for compute capability 8.0, 9.0 exactly: Triton's cache serves no other GPU" in text
    assert "timings of 2 keys of autotuners: set TRITON_CACHE_AUTOTUNING=1, too" in text
    found = launch(tmp_path, tmp_path / "cache", TRITON_CACHE_AUTOTUNING="1")
    assert [each for each in found if each[0] == "tuned"] == [("tuned", True)] * 2  # nothing else was launched to time
    assert "export TRITON_CACHE_AUTOTUNING=1" in (tmp_path / "cache" / folder.README).read_text()


def test_a_folder_with_another_cache_is_added_to(project: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    launch(project, cache, "kernels alone")  # without the driver, no launcher of 3.6 can be linked
    complete = next(iter(cache.glob("*/tiles.cubin"))).parent
    broken = next(iter(cache.glob("*/tuned.cubin"))).parent
    (broken / "tuned.cubin").unlink()
    (cache / "README.md").write_text("mine")
    mine = {path: path.read_bytes() for path in complete.iterdir()}
    text = export(project / "project", cache, AOTCUDA_ARCH="sm_90")
    assert f"{cache / 'README.md'} is another text and stays as it is" in text
    assert {path: path.read_bytes() for path in complete.iterdir()} == mine
    assert (cache / "README.md").read_text() == "mine"
    assert all(hit for _, hit in launch(project, cache))
