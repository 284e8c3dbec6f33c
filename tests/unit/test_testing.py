"""`aotcuda.testing`: marks that skip tests, the check for packaged code, and the stand-in for CuPy."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from aotcuda import testing
from aotcuda.errors import ConfigError, FallbackWarning
from aotcuda.runtime import driver
from aotcuda.runtime.jit import fallback
from support import in_place, jit_builds, manifests

SOURCE = "from aotcuda.numba import cuda\n\n\n@cuda.jit\ndef fill(values):\n    values[0] = 1\n"


def packaged_solver(cuda, **options):
    in_place.write(cuda.packages, SOURCE, {"fill": ("void(float32[::1])",)}, **options)
    return importlib.import_module("mypkg.solver")


def skip_reason(mark):
    """Return the reason of a mark that skips; None for another mark."""
    (condition,) = mark.args
    return mark.kwargs["reason"] if condition else None


def test_marks_skip_nothing_with_a_gpu(cuda):
    packaged_solver(cuda)
    assert testing.has_gpu()
    marks = [testing.needs_gpu, testing.needs_gpu_or_simulator, testing.needs_packaged("mypkg.solver")]
    assert [skip_reason(mark) for mark in marks] == [None, None, None]
    assert testing.is_packaged("mypkg.solver")


def test_skipped_tests_without_a_gpu_give_the_reason(cuda, monkeypatch):
    packaged_solver(cuda)
    monkeypatch.setattr(driver, "LIBRARY", "libnowhere.so")
    assert skip_reason(testing.needs_gpu) == "this needs a GPU"
    assert skip_reason(testing.needs_gpu_or_simulator) == "this needs a GPU, or NUMBA_ENABLE_CUDASIM=1"
    assert "libnowhere.so cannot be loaded" in str(skip_reason(testing.needs_packaged("mypkg.solver")))


def test_the_simulator_skips_tests_that_need_a_gpu(cuda, monkeypatch):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert skip_reason(testing.needs_gpu) == "this needs a GPU"
    assert skip_reason(testing.needs_gpu_or_simulator) is None
    reason = "Numba's simulator launches nothing that is packaged"
    assert skip_reason(testing.needs_packaged("mypkg.solver")) == reason
    with pytest.raises(ConfigError, match="NUMBA_ENABLE_CUDASIM is set"), testing.only_packaged():
        pass


def test_modules_without_an_image_are_skipped(cuda):
    package = cuda.packages / "mypkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "plain.py").touch()
    assert skip_reason(testing.needs_packaged("mypkg.plain")) == (
        "mypkg.plain is no module that aotcuda generated; it has no manifest"
    )
    manifests.write(cuda.packages, [manifests.kernel("k", "void(float32)")], targets=("sm_120",), load="first-use")
    assert "sm_120" in str(skip_reason(testing.needs_packaged("mypkg.kernels")))
    assert not testing.is_packaged("mypkg.kernels")


NOT_BUILT = {"in place": SOURCE, "no module": None, "another compiler": "import triton\n"}


@pytest.mark.parametrize("state", NOT_BUILT)
def test_modules_that_were_not_built_are_skipped(state, cuda, monkeypatch):
    (cuda.packages / "mypkg").mkdir(parents=True)
    (cuda.packages / "mypkg" / "__init__.py").touch()
    if NOT_BUILT[state] is not None:
        (cuda.packages / "mypkg" / "solver.py").write_text(NOT_BUILT[state])
    for compiler in ("numba", "triton"):
        monkeypatch.setitem(sys.modules, compiler, None)
    assert skip_reason(testing.needs_packaged("mypkg.solver"))
    assert not testing.is_packaged("mypkg.solver")


def test_damaged_modules_are_skipped_with_the_reason(cuda):
    folder = manifests.write(cuda.packages, [manifests.kernel("k", "void(float32)")], load="first-use")
    (folder / "manifest.json").write_text("{}")
    assert "manifest.json" in str(skip_reason(testing.needs_packaged("mypkg.kernels")))


def test_a_module_that_fails_for_another_reason_is_an_error(cuda):
    (cuda.packages / "mypkg").mkdir(parents=True)
    (cuda.packages / "mypkg" / "__init__.py").write_text("import nowhere")
    with pytest.raises(ImportError, match="nowhere"):
        testing.needs_packaged("mypkg.solver")


def test_packaged_launches_pass_the_check(cuda):
    s = packaged_solver(cuda)
    s.fill[1, 1](cuda.array())
    with testing.only_packaged():
        s.fill[1, 1](cuda.array())
    assert len(cuda.launches()) == 2
    assert len(cuda.calls("cuLibraryLoadData")) == 2, "the check loads modules again"
    assert fallback.observers == []


def test_compilation_by_the_fallback_fails_the_check(cuda, builder):
    s = packaged_solver(cuda, fallback="jit", rebuild=jit_builds.rebuild())
    array = cuda.array(np.zeros(8, "<f8"))
    with pytest.raises(AssertionError, match=r"launched:\n  mypkg.solver.fill: argument 1, a, is float64"):  # noqa: SIM117
        with testing.only_packaged(), pytest.warns(FallbackWarning):
            for _ in range(2):
                s.fill[1, 1](array)
    assert (len(builder.requests), fallback.observers) == (1, [])


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [("numba.cuda.dispatcher", "_Kernel", "launch"), ("numba_cuda_mlir.descriptor", "_ArgMarshaller", "_launch")],
)
def test_launches_by_a_compiler_fail_the_check(cuda, monkeypatch, name, owner, method):
    module = ModuleType(name)
    kernel = type(
        owner, (), {method: lambda _: "launched", "py_func": np.mean, "_dispatcher": SimpleNamespace(py_func=np.mean)}
    )
    setattr(module, owner, kernel)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(testing, "find_spec", lambda found: found == name.partition(".")[0] or None)
    original = getattr(kernel, method)
    with pytest.raises(AssertionError, match=r"numpy.mean was compiled by"), testing.only_packaged():
        assert getattr(kernel(), method)() == "launched"
    assert getattr(kernel, method) is original


@pytest.fixture
def cupy(monkeypatch):
    """Return the stand-in for CuPy, which has CuPy's name during the test."""
    libraries = ("cupy", "cupyx")
    for name in [name for name in sys.modules if name.partition(".")[0] in libraries]:
        monkeypatch.delitem(sys.modules, name)
    yield testing.stand_in("cupy")
    for name in [name for name in sys.modules if name.partition(".")[0] in libraries]:
        del sys.modules[name]


def test_a_stand_in_has_the_name_of_its_library(cupy):
    cupyx = testing.stand_in("cupyx")
    assert importlib.import_module("cupy") is cupy
    assert importlib.import_module("cupy.cuda.memory").OutOfMemoryError is cupy.cuda.OutOfMemoryError
    x = cupy.zeros(3)
    cupyx.scatter_add(x, 0, 2)
    assert isinstance(importlib.import_module("cupyx.scipy.ndimage"), type(cupy.fft))
    assert (x.get().tolist(), cupyx.scipy.get_array_module(x)) == ([2, 0, 0], cupy)
    with pytest.raises(ConfigError, match="torch: there is no stand-in for this library; there are cupy and cupyx"):
        testing.stand_in("torch")


def test_the_stand_in_for_cupyx_computes_on_the_host(cupy):
    cupyx = testing.stand_in("cupyx")
    for name in ("fft", "fftpack", "interpolate", "linalg", "ndimage", "signal", "sparse", "sparse.linalg", "spatial",
                 "special", "stats"):  # fmt: skip
        assert importlib.import_module(f"cupyx.scipy.{name}").__name__ == f"cupyx.scipy.{name}"
    assert cupyx.scipy.sparse.linalg is importlib.import_module("cupyx.scipy.sparse.linalg")
    assert cupyx.rsqrt(cupy.array([4.0])).get().tolist() == [0.5]
    pinned = cupyx.empty_pinned((2, 3))
    assert (pinned.dtype.name, pinned.flags.c_contiguous, pinned.shape) == ("float64", True, (2, 3))
    assert cupyx.zeros_like_pinned(cupy.ones(2)).tolist() == [0, 0]
    with cupyx.errstate(linalg="raise"), cupyx.profiler.time_range("a range"):
        pass
    with pytest.raises(AttributeError, match="__wrapped__"):
        _ = cupyx.profiler.__wrapped__


def test_stand_in_that_fails_is_not_imported(cupy):
    sys.modules["cupy"] = None  # an import fails
    with pytest.raises(ModuleNotFoundError, match="cupy"):
        testing.stand_in("cupyx")
    assert "cupyx" not in sys.modules


def test_arrays_share_memory_that_another_object_owns(cupy):
    owner = np.arange(4, dtype="<f4")
    memory = cupy.cuda.UnownedMemory(owner.ctypes.data, owner.nbytes, owner)
    x = cupy.ndarray((2,), "<f4", cupy.cuda.MemoryPointer(memory, 8))
    x[0] = 7
    assert (owner.tolist(), x.get().tolist()) == ([0, 1, 7, 3], [7, 3])


class Results(list):
    """Stand in for the recorder: a list of the ranges that launches could have written, and the host's reads."""

    def __init__(self):
        self.reads = []

    def mark_written(self, start, size, owner):
        self.append((start, start + size, owner))

    def is_written(self, start, size):
        return any(begin < start + size and start < end for begin, end, _ in self)

    def report_read(self, start, size, call):
        self.reads += [call] * self.is_written(start, size)


DERIVED = {
    "item": lambda cupy, x: x[0],
    "items of a list": lambda cupy, x: x[[0, 2]],
    "iteration": lambda cupy, x: next(iter(x)),
    "copy": lambda cupy, x: x.copy(),
    "another dtype": lambda cupy, x: x.astype("<f8"),
    "cupy.array": lambda cupy, x: cupy.array(x),
    "contiguous copy": lambda cupy, x: cupy.ascontiguousarray(x[::2]),
    "selection by a result": lambda cupy, x: cupy.arange(9)[x.astype(int)],
    "operator": lambda cupy, x: x + 1,
    "reduction": lambda cupy, x: x.sum(),
    "assignment": lambda cupy, x: (out := cupy.zeros(4)).__setitem__(slice(1, None), x[1:]) or out,
    "fill": lambda cupy, x: (out := cupy.zeros(4)).fill(x[0]) or out,
    "copyto": lambda cupy, x: cupy.copyto(out := cupy.zeros(4), x) or out,
    "scatter_add": lambda cupy, x: (out := cupy.zeros(4)).scatter_add(slice(None), x) or out,
}


@pytest.mark.parametrize("name", DERIVED)
def test_reads_of_values_from_a_skipped_launch_are_noticed(cupy, name):
    results = cupy._Hooks.results = Results()
    x = cupy.ones(4, "<f4")
    results.mark_written(x.data.ptr, x.nbytes, x)
    derived = DERIVED[name](cupy, x)
    results.reads.clear()
    derived.get()
    assert results.reads == ["get of an array of CuPy's"]
    cupy.zeros(4).get()
    assert len(results.reads) == 1
