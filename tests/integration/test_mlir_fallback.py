"""The JIT fallback of modules by the second front end: the tests of the first one's, over the same sources."""

from __future__ import annotations

import pytest

from integration import test_fallback
from support.front_ends import again

pytestmark = pytest.mark.usefixtures("mlir")
_SAME = "locks and files of the cache, which know no compiler"
globals().update(
    again(
        test_fallback,
        {
            "test_of_many_processes_that_start_cold_one_compiles": _SAME,
            "test_killed_processes_leave_nothing_that_a_later_one_trips_over": _SAME,
        },
    )
)


@pytest.fixture(autouse=True, scope="module")
def _made_for_it(mlir: None) -> None:
    """Before the module's own fixtures build anything."""


def test_what_was_compiled_has_the_second_front_ends_parameters(installed: test_fallback.Machine) -> None:
    installed.run("plain:<i4")
    (entry,) = installed.cache.rglob("manifest.json")
    manifest = test_fallback.json.loads(entry.read_text())
    assert manifest["frontend"] == "numba-cuda-mlir"
    assert "numba-cuda-mlir" in manifest["toolchain"]
    assert "llvmlite" not in manifest["toolchain"]
    (overload,) = manifest["kernels"][0]["overloads"]
    assert overload["parameters"][0]["words"] == ["data", "data", "zero", "shape0", "step0"]
