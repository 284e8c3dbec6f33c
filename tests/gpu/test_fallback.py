"""Test the JIT fallback on a GPU: numbers of compilations and of the cache.

The machine needs the compiler, as the extras `jit-cu13` and `jit-mlir-cu13` install it.
"""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(*front_ends.ALL)]

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
def run(front_end, run_clean, tmp_path):
    """Run a script as `run_clean` does, on one GPU, with the compiler and a cache of the test's own."""
    if find_spec(front_end.replace("-", "_")) is None:
        pytest.skip(f"{front_end} is not installed")
    variables = {"AOTCUDA_CACHE_DIR": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": "0"}
    return lambda script, wheel="quickstart": run_clean(script, wheel, **variables)


@pytest.mark.parametrize("typecode", ["i", "q"])
def test_types_that_are_not_packaged_are_compiled_once(run, typecode):
    script = AXPY.format(typecode=typecode)
    first, second = run(script), run(script)
    assert first["out"] == second["out"] == EXPECTED
    assert first["tiers"] == second["tiers"] == ["exact", "exact", "jit"]
    assert [len(first["warnings"]), len(second["warnings"])] == [1, 0]
    assert "quickstart.kernels.axpy for void(int64, " in first["warnings"][0]
    assert second["heavy"] == []


def test_gpu_that_no_image_fits_gets_its_code_once(run, gpu_name):
    script = AXPY.format(typecode="f")
    first, second = run(script, "quickstart-older"), run(script, "quickstart-older")
    assert first["out"] == second["out"] == EXPECTED
    assert first["tiers"] == second["tiers"] == ["jit", "jit"]
    assert [len(first["warnings"]), len(second["warnings"])] == [1, 0]
    assert gpu_name in first["warnings"][0]
    assert second["heavy"] == []


@pytest.mark.front_end(front_ends.MLIR)
def test_fallback_uses_compiler_of_wheel(run, tmp_path):
    run(AXPY.format(typecode="i"))
    (compiled,) = [json.loads(path.read_text()) for path in (tmp_path / "cache").rglob("manifest.json")]
    assert compiled["frontend"] == front_ends.MLIR


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


def test_jit_fallback_links_code_and_runs_setup_callbacks(run):
    pytest.importorskip("cuda.core")
    for _ in range(2):
        compiled, packaged, tiers = run(TABLE, "foreign")
        assert compiled == packaged
        assert any(compiled)  # the setup callback has filled the table of the new image
        assert tiers == ["exact", "jit"]
