"""CUDA C++ modules of several images: two files with kernels, helpers and variables of one name, and linked files."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from aotcuda.binary import cubin, fatbin
from aotcuda.errors import FallbackWarning
from integration import projects

A = """
inline __device__ float shift(float x) { return x + 4; }
__constant__ float x[2] = {17, 2};
extern "C" __global__ void k(float *o) { o[0] = shift(o[1]) + x[threadIdx.x & 1]; }
"""
B = """
inline __device__ float shift(float x) { return x + 8; }
__constant__ float x[4] = {33, 2, 3, 4};
extern __device__ float lift(float);
extern __device__ float halve(float);
extern "C" __global__ void k(float *o, int n) { o[0] = lift(shift(o[1])) + halve(x[n & 3]); }
"""
C = """
__device__ float lift(float x) { return x * 3; }
extern "C" __global__ void kc(float *o) { o[0] = lift(2); }
"""
LINKED = """
__device__ float calls = 0;
__device__ float halve(float x) { calls += 1; return x / 2; }
"""
TABLE = """
[project]
name = "mypkg"
version = "1.0"
dependencies = ["aotcuda", "cuda-core"]
[build-system]
requires = ["hatchling", "aotcuda"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel.hooks.aotcuda]
[tool.aotcuda]
arch = ["sm_80", "sm_90", "compute_80"]
[tool.aotcuda.modules."mypkg.raw"]
frontend = "cuda-cpp"
source = ["csrc/a.cu", "csrc/b.cu", "csrc/c.cu"]
link = [{ path = "csrc/linked.cu", setup = "mypkg.hooks:up" }]
kernels.ka = { function = "csrc/a.cu:k" }
kernels.kb = { function = "csrc/b.cu:k" }
kernels.kc = {}
"""


def make(folder: Path) -> Path:
    files = {"mypkg/__init__.py": "", "mypkg/hooks.py": "def up(code): pass\n", "pyproject.toml": TABLE}
    files |= {"csrc/a.cu": A, "csrc/b.cu": B, "csrc/c.cu": C, "csrc/linked.cu": LINKED}
    return projects.put(folder, files)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("images") / "project")


@pytest.fixture(scope="module")
def wheel(project: Path) -> Path:
    return projects.build_wheel(project)


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return projects.content(wheel)


def test_each_group_of_files_has_a_fatbin(files: dict[str, bytes]) -> None:
    document = projects.manifest_of(files, "mypkg.raw")
    targets = ["sm_80", "sm_90", "compute_80"]
    assert [(item["name"], [image["arch"] for image in item["images"]]) for item in document["fatbins"]] == [
        ("csrc/a.cu", targets),
        ("csrc/b.cu, csrc/c.cu", targets),
    ]
    overloads = {kernel["name"]: kernel["overloads"][0] for kernel in document["kernels"]}
    assert {name: (item["symbol"], item.get("fatbin", 0)) for name, item in overloads.items()} == {
        "ka": ("k", 0),
        "kb": ("k", 1),
        "kc": ("kc", 1),
    }
    assert document["globals"] == {
        "csrc/a.cu:x": {"symbol": "x", "fatbin": 0, "bytes": 8},
        "csrc/b.cu:x": {"symbol": "x", "fatbin": 1, "bytes": 16},
    }
    assert [item["fatbin"] for item in (*document["callbacks"], *document["linked"])] == [1, 1]


def test_each_image_has_the_tables_of_its_files(files: dict[str, bytes]) -> None:
    for name, symbols, value in (("kernels", ["k"], 17), ("kernels-1", ["k", "kc"], 33)):
        data = files[f"mypkg/raw.aotcuda/{name}.fatbin"]
        for entry in fatbin.read(data, name):
            if entry.kind == "sass":
                assert [kernel.name for kernel in cubin.read(entry.content, name).kernels] == symbols
                assert np.float32(value).tobytes() in entry.content


def test_header_names_the_file_of_a_kernel(files: dict[str, bytes]) -> None:
    text = files["mypkg/raw.aotcuda/mypkg_raw.h"].decode()
    assert '/* "k": ka, void(float *) */' in text
    assert '/* "k" in kernels-1.fatbin: kb, void(float *, int) */' in text
    assert "enum { mypkg_raw_ka_k_parameter_bytes = 8 };" in text
    assert "enum { mypkg_raw_kb_k_parameter_bytes = 12 };" in text


def test_report_has_the_kernels_of_one_symbol_apart(project: Path, tmp_path: Path) -> None:
    projects.aotcuda(project, "build", "--out", tmp_path / "out", "--report", tmp_path / "report.json")
    units = json.loads((tmp_path / "report.json").read_text())["units"]
    assert {unit["symbol"]: unit["name"] for unit in units} == {
        "csrc/a.cu:k": "ka",
        "csrc/b.cu, csrc/c.cu:k": "kb",
        "csrc/b.cu, csrc/c.cu:kc": "kc",
    }
    assert all(entry["bytes"] for unit in units for target, entry in unit["targets"].items() if target != "compute_80")


def test_edit_of_one_file_compiles_its_image_alone(project: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "project")
    cache = {"AOTCUDA_BUILD_CACHE": str(tmp_path / "cache")}
    projects.aotcuda(folder, "build", "--out", tmp_path / "out", **cache)
    (folder / "csrc/a.cu").write_text(A.replace("+ 4", "+ 5"))
    arguments = ("build", "--out", tmp_path / "out", "--report", tmp_path / "report.json")
    projects.aotcuda(folder, *arguments, **cache)
    titles = [step["title"] for step in json.loads((tmp_path / "report.json").read_text())["steps"]]
    assert [title for title in titles if "csrc/b.cu" in title] == ["declarations of csrc/b.cu"]  # read again
    assert [title for title in titles if "csrc/a.cu" in title]


def test_shards_give_the_files_of_one_build(project: Path, tmp_path: Path, files: dict[str, bytes]) -> None:
    cache = {"AOTCUDA_BUILD_CACHE": str(tmp_path / "cache")}
    for index in (1, 2):
        projects.aotcuda(project, "build", "--shard", f"{index}/2", **cache)
    projects.aotcuda(project, "build", "--from-cache-only", "--out", tmp_path / "out", **cache)
    for name in ("kernels.fatbin", "kernels-1.fatbin"):
        assert (tmp_path / "out/mypkg/raw.aotcuda" / name).read_bytes() == files[f"mypkg/raw.aotcuda/{name}"]


@pytest.fixture
def raw(cuda, wheel, monkeypatch):
    monkeypatch.setattr("aotcuda.runtime.images.callbacks.open_handle", lambda _manifest, data: (None, cuda.load(data)))
    cuda.install(wheel)
    return importlib.import_module("mypkg.raw")


def test_kernels_of_both_images_are_launched(cuda, raw) -> None:
    array = cuda.array(np.zeros(4, "<f4"))
    raw.ka[1, 1](array)
    raw.kb[1, 1](array, 3)
    assert [launch["kernel"] for launch in cuda.launches()] == ["k", "k"]
    assert raw.__aotcuda__.symbol("csrc/a.cu:x").address
    assert [raw.__aotcuda__.symbol(f"csrc/{name}.cu:x").nbytes for name in "ab"] == [8, 16]
    with pytest.raises(Exception, match=r"csrc/a\.cu.*csrc/b\.cu"):
        raw.__aotcuda__.symbol("x")


def test_fallback_compiles_the_image_of_each_launch_for_another_gpu(cuda, wheel, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("aotcuda.runtime.images.callbacks.open_handle", lambda _manifest, data: (None, cuda.load(data)))
    cuda.set(devices="7.5")
    cuda.install(wheel)
    module = importlib.import_module("mypkg.raw")
    array = cuda.array(np.zeros(4, "<f4"))
    entries = lambda: [json.loads(path.read_text())["fatbins"] for path in tmp_path.rglob("cache/**/manifest.json")]  # noqa: E731
    with pytest.warns(FallbackWarning, match=r"mypkg\.raw, image 1, for GPU 0"):
        module.kb[1, 1](array, 3)
    assert [*map(len, entries())] == [1]
    with pytest.warns(FallbackWarning, match=r"mypkg\.raw, image 0, for GPU 0"):
        module.ka[1, 1](array)
    assert [*map(len, entries())] == [1, 1]
    assert [launch["kernel"] for launch in cuda.launches()] == ["k", "k"]


WIDE = re.sub("arch = .*", 'runtime = "bundled"\narch = ["sm_80", "sm_90", "sm_110", "compute_75"]', TABLE)
WIDE = re.sub("link = .*", 'link = ["csrc/linked.cu"]', WIDE)


@pytest.fixture(scope="module")
def wide(cuda12: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel that CUDA 12.9 and 13.0 build together, with a bundled run time."""
    folder = make(tmp_path_factory.mktemp("wide") / "project")
    (folder / "pyproject.toml").write_text(WIDE)
    return projects.build_wheel(folder, PYTHONPATH=cuda12)


def test_two_toolkits_make_each_image(wide: Path) -> None:
    document = projects.manifest_of(projects.content(wide), "mypkg.raw")
    made = {item["name"]: {each["arch"]: each.get("linker") for each in item["images"]} for item in document["fatbins"]}
    linkers = {"sm_80": None, "sm_90": None, "compute_75": None, "sm_110": "13.0"}
    assert made == {"csrc/a.cu": linkers, "csrc/b.cu, csrc/c.cu": linkers}


def test_references_of_the_second_toolkit_alone_are_refused(cuda12: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "project")
    (folder / "pyproject.toml").write_text(WIDE.replace('"csrc/a.cu", ', "").replace("kernels.ka", "# kernels.ka"))
    declared = "extern __device__ float lift(float);"
    condition = f"#if __CUDACC_VER_MAJOR__ >= 13\n{declared}\n#else\n#define lift\n#endif"
    (folder / "csrc/b.cu").write_text(B.replace(declared, condition))
    done = projects.refused(folder, PYTHONPATH=cuda12)
    assert done.err == (
        'aotcuda: tool.aotcuda.modules."mypkg.raw": CUDA 13.0 compiles all files to one image, where CUDA 12.9 '
        "has an image of csrc/b.cu and one of csrc/c.cu, since files refer to each other's names with one of the two "
        "alone; write relocatable = true\n"
    )


@pytest.mark.parametrize("left_out", ["csrc/x.cu", "csrc/a.cu"], ids=["two images", "one image"])
def test_function_that_nothing_defines_is_named_with_files(tmp_path: Path, left_out: str) -> None:
    folder = make(tmp_path / "project")
    lines = [line for line in TABLE.splitlines() if not line.startswith("link = ") and f"{left_out}:k" not in line]
    (folder / "pyproject.toml").write_text("\n".join(lines).replace(f'"{left_out}", ', ""))
    assert projects.refused(folder, AOTCUDA_ARCH="sm_80").err == (
        "aotcuda: mypkg.raw (csrc/b.cu, csrc/c.cu): linking for sm_80 failed: nothing defines halve (_Z5halvef), which "
        "the code uses; link the file that defines it, or add it to a source of .cu files\n"
    )


LAUNCHES = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
import mypkg.raw as k
k.ka[1, 1](Array())
k.kb[1, 1](Array(), 3)
print(k.__aotcuda__.chosen[0].arch)
"""


def test_commands_read_and_write_wheels_of_several_images(cuda, wheel: Path, wide: Path, tmp_path: Path) -> None:
    (module,) = json.loads(projects.aotcuda(tmp_path, "inspect", "--json", wide).out)["modules"]
    assert {item["name"]: (item["symbol"], item.get("fatbin")) for item in module["symbols"]} == {
        "ka": ("k", "kernels.fatbin"),
        "kb": ("k", "kernels-1.fatbin"),
        "kc": ("kc", "kernels-1.fatbin"),
        "_Z5halvef": ("_Z5halvef", None),
    }
    targets = ["sm_80", "sm_90", "compute_75", "sm_110"]
    assert [(item["fatbin"], item["arch"]) for item in module["images"]] == [
        (name, target) for name in ("kernels.fatbin", "kernels-1.fatbin") for target in targets
    ]
    assert projects.aotcuda(tmp_path, "inspect", wide).out.count("in kernels-1.fatbin") == 2
    assert "9.0  H100    sm_90" in projects.aotcuda(tmp_path, "check", wide, "--gpu", "H100").out
    differences = projects.run(tmp_path, sys.executable, "-m", "aotcuda", "diff", str(wide), str(wheel))
    assert (differences.status, "image compute_75, sm_110: removed" in differences.out) == (1, True)

    projects.aotcuda(tmp_path, "split", "--out", tmp_path / "parts", wide)
    (part,) = (tmp_path / "parts/variants").glob("*-sm90.whl")
    for name in ("kernels.fatbin", "kernels-1.fatbin"):
        data = projects.content(part)[f"mypkg/raw.aotcuda/{name}"]
        assert "sm_90" in (archs := [entry.arch for entry in fatbin.read(data, name)])
        assert not {"sm_80", "sm_110"} & {*archs}
    cuda.install(part)
    assert cuda.run(LAUNCHES).split() == ["sm_90"]
    assert [launch["kernel"] for launch in cuda.launches()] == ["k", "k"]

    copy = Path(shutil.copy(wide, tmp_path))
    assert "mypkg/_aotcuda: aotcuda" in projects.aotcuda(tmp_path, "rebundle", copy).out
    before, after = projects.content(wide), projects.content(copy)
    assert {name for name in after if after[name] != before.get(name)} == {"mypkg-1.0.dist-info/RECORD"}
