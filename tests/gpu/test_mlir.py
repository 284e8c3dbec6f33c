"""The second front end's wheels, made of the same sources: the tests of the first one's, and nothing copied."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu import mlir_wheels, test_foreign, test_numbers, test_real_life
from support.front_ends import again

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

globals().update(again(test_numbers, {}))
globals().update(
    again(
        test_foreign,
        {
            "foreign": "wheels of its own",
            "test_a_status_ends_a_numba_function_and_is_lost_at_the_c_abi": "the status is ignored; see below",
            "test_numbas_own_jit_gives_the_same_numbers": "Numba-CUDA's, which the sources no longer are for",
            "test_the_example_of_foreign_functions_gives_numpys_numbers": "its wheel is the first front end's",
        },
    )
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from mlir_wheels.install(tmp_path_factory)


@pytest.fixture(scope="module")
def features(installed: Path):
    sys.path.insert(0, str(installed / "gpufeatures"))
    import gpufeatures.kernels

    assert gpufeatures.kernels.__aotcuda__.manifest["frontend"] == "numba-cuda-mlir"
    return gpufeatures.kernels


@pytest.fixture(scope="module")
def foreign(installed: Path):
    sys.path.insert(0, str(installed / "foreign"))
    import foreign.calls
    import foreign.kinds
    import foreign.table

    return foreign


@pytest.fixture(scope="module")
def checked(installed: Path):
    sys.path.insert(0, str(installed / "checked"))
    import checked.kernels

    return checked.kernels


@pytest.fixture(scope="module")
def real(features):
    import gpufeatures.real

    return gpufeatures.real


def test_a_status_is_ignored(foreign) -> None:
    # Numba-CUDA ends the thread where the status is not 0; this compiler goes on and stores.
    x = test_foreign.X
    out = test_foreign.run(foreign.calls.status)
    assert (out[x <= 0] == x[x <= 0]).all()


test_warps_shuffle_and_vote = test_real_life.test_warps_shuffle_and_vote
test_bfloat16_arrays_are_taken = test_real_life.test_bfloat16_arrays_are_taken
test_registers_are_limited = test_real_life.test_registers_are_limited
test_a_debug_build_raises_what_its_kernel_raises = test_real_life.test_a_debug_build_raises_what_its_kernel_raises
test_an_exception_of_the_packages_own_is_named = test_real_life.test_an_exception_of_the_packages_own_is_named
test_a_debug_build_works_where_nothing_is_raised = test_real_life.test_a_debug_build_works_where_nothing_is_raised


def test_the_quickstart_gives_numpys_numbers(installed: Path) -> None:
    sys.path.insert(0, str(installed / "quickstart"))
    import quickstart.kernels as k

    for dtype in ("float32", "float64"):
        x, y = np.arange(1000, dtype=dtype), np.linspace(-1, 1, 1000, dtype=dtype)
        out = cupy.zeros(1000, dtype)
        k.axpy.forall(1000)(2.0, cupy.asarray(x), cupy.asarray(y), out)
        np.testing.assert_allclose(out.get(), 2 * x + y, rtol=1e-6)
