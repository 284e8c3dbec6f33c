"""Test a module that is packaged in place on a GPU: its numbers equal those of Numba's JIT."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.errors import FallbackWarning, HostArrayWarning

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*GPU under-utilization"),  # Numba's, of small grids
]
cupy = pytest.importorskip("cupy")

CASE = """
import json
import numpy as np
import cupy
import inplace.solver as s

rng = np.random.default_rng(5)
x, y = (rng.normal(size=64).astype("f4") for _ in range(2))
given = [cupy.asarray(a) for a in (x, y, np.zeros(64, "f4"))]
s.launch_all(*given)
numbers = cupy.zeros(4, "i4")
s.fill[1, 4](numbers, 7)
s.cuda.synchronize()
print(json.dumps([given[2].get().tobytes().hex(), numbers.get().tolist(), type(s.add).__module__]))
"""


@pytest.fixture(scope="module")
def solver(packaged):
    """Return the module, packaged in place."""
    return packaged("inplace", "inplace.solver")


def test_bits_equal_those_of_numba(run_clean):
    packaged = run_clean(CASE, "inplace", AOTCUDA_FALLBACK="error")
    pytest.importorskip("numba.cuda")
    numba = run_clean(CASE, "inplace", AOTCUDA_IN_PLACE="0")
    assert packaged[:2] == numba[:2]
    assert packaged[2] == "aotcuda.integrations.in_place.functions"
    assert numba[2] == "numba.cuda.dispatcher"


def test_numpys_arrays_are_copied_to_gpu_and_back(solver):
    out = np.zeros(64, "f4")
    with pytest.warns(HostArrayWarning, match="Host array used in CUDA kernel"):
        solver.add[1, 64](np.ones(64, "f4"), cupy.ones(64, "f4"), out)
    np.testing.assert_array_equal(out, np.full(64, 3, "f4"))
    with pytest.warns(HostArrayWarning):
        solver.scale.forall(64)(2.0, out)
    np.testing.assert_array_equal(out, np.full(64, 6, "f4"))


def test_kernels_and_arrays_outside_table_are_numbas(solver):
    pytest.importorskip("numba.cuda")
    values = solver.cuda.to_device(np.zeros(4, "f8"))
    assert isinstance(values, solver.cuda.cudadrv.devicearray.DeviceNDArray)
    with pytest.warns(FallbackWarning, match=r"inplace.solver.never_packaged \(line \d+\) is in no image"):
        solver.never_packaged[1, 1](values)
    assert values.copy_to_host().tolist() == [1, 0, 0, 0]
    single = solver.cuda.to_device(np.ones(4, "f4"))
    solver.scale[1, 4](2.0, single)  # the table has this kernel
    assert single.copy_to_host().tolist() == [2, 2, 2, 2]


def test_kernel_of_another_module_calls_its_device_functions(solver):
    numba = pytest.importorskip("numba.cuda")
    twice = solver.twice

    @numba.jit
    def mine(values):
        values[0] = twice(values[0])

    values = cupy.full(1, 21, "f4")
    mine[1, 1](values)
    assert values.get().tolist() == [42]


def test_driver_queries_answer_as_numba_does(solver):
    numba = pytest.importorskip("numba.cuda")
    ours, theirs = solver.cuda.get_current_device(), numba.get_current_device()
    names = ["MULTIPROCESSOR_COUNT", "MAX_THREADS_PER_BLOCK", "WARP_SIZE", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert (ours.id, ours.compute_capability, len(solver.cuda.gpus)) == (
        theirs.id,
        tuple(theirs.compute_capability),
        len(numba.gpus),
    )
    assert solver.cuda.is_available()
    assert solver.cuda.current_context().get_memory_info().total == numba.current_context().get_memory_info().total
