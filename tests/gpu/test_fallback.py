"""The JIT fallback on a real GPU: the numbers of what is compiled late, and of what the cache gives back.

It needs the front end beside the GPU, as the extras `jit-cu13` and `jit-mlir-cu13` install it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(*front_ends.ALL)]

REPOSITORY = Path(__file__).parents[2]

AXPY = """
import json, sys, warnings
from gpu import buffers
buffers.primary_context()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import quickstart.kernels as k
    x = buffers.Buffer({typecode!r}, range(100))
    y = buffers.Buffer({typecode!r}, [3 * i for i in range(100)])
    out = buffers.Buffer({typecode!r}, [0] * 100)
    k.axpy[4, 32](2, x, y, out)
heavy = sorted(set(sys.modules) & {{"numba", "numba_cuda_mlir", "numpy", "llvmlite", "aotcuda.builder"}})
print(json.dumps({{
    "out": out.read(),
    "tiers": [tier.tier for tier in k.__aotcuda__.tiers["axpy"]],
    "warnings": [str(item.message) for item in caught if item.category.__name__ == "FallbackWarning"],
    "heavy": heavy,
}}))
"""
EXPECTED = [5.0 * i for i in range(100)]


@pytest.fixture
def run(front_end, installed, tmp_path):
    """Run a script with one wheel, this checkout, the compiler and a cache of the test's own; what it prints last."""
    if find_spec(front_end.replace("-", "_")) is None:
        pytest.skip(f"{front_end} is not installed")

    def start(script, wheel="quickstart", **environment):
        path = os.pathsep.join([str(installed / wheel), str(REPOSITORY), str(REPOSITORY / "tests"), *sys.path])
        own = {"PYTHONPATH": path, "AOTCUDA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return start


@pytest.mark.parametrize("typecode", ["i", "q"])
def test_types_that_were_not_packaged(run, typecode):
    script = AXPY.format(typecode=typecode)
    first, second = run(script), run(script)
    assert first["out"] == second["out"] == EXPECTED
    assert first["tiers"] == second["tiers"] == ["exact", "exact", "jit"]
    assert [len(first["warnings"]), len(second["warnings"])] == [1, 0]
    assert "quickstart.kernels.axpy for void(int64, " in first["warnings"][0]
    assert second["heavy"] == []


def test_a_gpu_that_no_image_fits(run, gpu_name):
    script = AXPY.format(typecode="f")
    first, second = run(script, "quickstart-older"), run(script, "quickstart-older")
    assert first["out"] == second["out"] == EXPECTED
    assert first["tiers"] == second["tiers"] == ["jit", "jit"]
    assert [len(first["warnings"]), len(second["warnings"])] == [1, 0]
    assert gpu_name in first["warnings"][0]
    assert second["heavy"] == []


def test_error_means_error_and_names_what_is_packaged(run):
    lines = AXPY.format(typecode="i").splitlines()
    launch = lines.index("    k.axpy[4, 32](2, x, y, out)")
    refused = [
        "    try:",
        f"    {lines[launch]}",
        "    except TypeError as error:",
        "        print(json.dumps(str(error)))",
    ]
    message = run("\n".join([*lines[:launch], *refused]), AOTCUDA_FALLBACK="error")
    assert "is int32[::1] where float32[::1] is packaged" in message
    assert "packaged: void(float64, float64[::1], float64[::1], float64[::1])" in message


@pytest.fixture
def checkout(front_end, installed):
    """Return the project `quickstart`, in a folder of its own and never built, as a wheel's folder."""
    name = "checkout"
    target = installed / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(REPOSITORY / "examples" / "quickstart" / "src", target, ignore=shutil.ignore_patterns("kernels.*"))
    shutil.copy(REPOSITORY / "examples" / "quickstart" / "pyproject.toml", target / "quickstart" / "pyproject.toml")
    if front_end == front_ends.MLIR:
        front_ends.port(target / "quickstart")
    yield target
    shutil.rmtree(target)


@pytest.mark.front_end(front_ends.MLIR)
def test_the_compiler_is_the_one_that_built_the_wheel(run, tmp_path):
    """And not numba-cuda, though that is installed beside it."""
    run(AXPY.format(typecode="i"))
    (late,) = [json.loads(path.read_text()) for path in (tmp_path / "cache").rglob("manifest.json")]
    assert late["frontend"] == front_ends.MLIR


def test_a_source_tree_that_was_never_built_and_its_edits(run, checkout):
    script = "import aotcuda; aotcuda.load('quickstart.kernels')\n" + AXPY.format(typecode="f")
    assert run(script, "checkout")["out"] == EXPECTED
    source = checkout / "quickstart" / "_kernels.py"
    text = source.read_text()
    edits = {
        "a * x + y": "a * x - y",
        "def fused(a, x, y):\n    return": "K = 10\n\n\ndef fused(a, x, y):\n    return K *",
    }
    for old, new in edits.items():
        source.write_text(text.replace(old, new))
        found = run(script, "checkout")["out"]
        assert found == [(2.0 * i - 3 * i) if "-" in new else (10 * 2.0 * i + 3 * i) for i in range(100)]
        assert run(script, "checkout")["heavy"] == []
    source.write_text(text)
    assert run(script, "checkout")["out"] == EXPECTED


@pytest.mark.front_end(front_ends.NUMBA)  # which builds the example
def test_a_wheel_carries_what_it_links(installed):
    """The wheel of the example with linked CUDA C++ has the files that the JIT fallback needs."""
    folder = next((installed / "foreign-functions").rglob("sources"))
    assert {"functions.cu", "add.cuh", "mul.cuh"} <= {path.name for path in folder.rglob("*")}


TABLE = """
import json, warnings
warnings.simplefilter("ignore")
from gpu import buffers
buffers.primary_context()
import foreign.table as t
(record,) = t.__aotcuda__.manifest["kernels"]
index = buffers.Buffer("i", [0, 1, 2, 3])
out = buffers.Buffer("d", [0] * 4)
t.look_up[1, 32](index, out)
packaged = buffers.Buffer("f", [0] * 4)
t.look_up[1, 32](index, packaged)
print(json.dumps([out.read(), packaged.read(), [tier.tier for tier in t.__aotcuda__.tiers["look_up"]]]))
"""


def test_linked_code_and_setup_callbacks_work_in_what_is_compiled_late(run):
    pytest.importorskip("cuda.core")
    for _ in range(2):
        late, packaged, tiers = run(TABLE, "foreign")
        assert late == packaged
        assert any(late)  # the setup callback has filled the table that this image has of its own
        assert tiers == ["exact", "jit"]


def test_every_wheel_that_may_compile_carries_its_recipe(installed):
    for wheel in ("quickstart", "foreign"):
        for path in (installed / wheel).rglob("manifest.json"):
            manifest = json.loads(path.read_text())
            assert manifest["rebuild"]["table"]["modules"].keys() == {manifest["module"]}
