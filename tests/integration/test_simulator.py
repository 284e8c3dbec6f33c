"""Test packaged modules and source trees in Numba's simulator, which runs their sources."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("build_cache")

SOURCE = """
from numba import cuda


def twice(x):
    return x + x


@cuda.jit
def axpy(a, x, out):
    shared = cuda.shared.array(32, "float32")
    i = cuda.grid(1)
    if i < out.size:
        shared[cuda.threadIdx.x] = a * x[i]
        out[i] = twice(shared[cuda.threadIdx.x])


def kind(value, out):
    out[0] = value
"""
MODULE = """\
functions = { twice_f32 = { python = "twice", signature = "float32(float32)" } }
kernels.axpy = "void(float32, float32[::1], float32[::1])"
kernels.kinds = { python = "kind", signatures = ["void(float32, int32[::1])", "void(float64, int64[::1])"] }
"""
CODE = """
import aotcuda, numpy as np
k = aotcuda.load("pkg.k")
import pkg.k
x, out = np.arange(64, dtype="f4"), np.zeros(64, "f4")
pkg.k.axpy[2, 32](2.0, x, out)
print(np.array_equal(out, 4 * x))
pkg.k.axpy.forall(64)(3.0, x, out)
print(np.array_equal(out, 6 * x), pkg.k.twice_f32(4), pkg.k.axpy, sorted(k.kernels))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.write(tmp_path_factory.mktemp("simulated") / "project", SOURCE, module=MODULE)


@pytest.fixture(scope="module")
def installed(project: Path) -> Path:
    folder = project.parent / "installed"
    with zipfile.ZipFile(projects.build_wheel(project)) as archive:
        archive.extractall(folder)
    return folder


def simulated(folder: Path, code: str, **environ: str) -> projects.Done:
    environ = {"PYTHONPATH": str(folder), "NUMBA_ENABLE_CUDASIM": "1", **environ}
    return projects.run(folder, sys.executable, "-c", code, **environ)


def test_packaged_module_runs_in_the_simulator(installed: Path) -> None:
    done = simulated(
        installed, f"{CODE}\nimport sys\nassert 'aotcuda.runtime.library' not in sys.modules", AOTCUDA_LOAD="import"
    )
    assert done.out.splitlines() == [
        "True",
        "True 8 pkg.k.axpy ['axpy', 'kinds']",
    ], done.err


def test_source_tree_runs_in_the_simulator(project: Path) -> None:
    done = simulated(project, CODE)
    assert done.out.splitlines()[0] == "True", done.err


def test_numbers_have_the_types_of_the_packaged_signature(installed: Path) -> None:
    code = """
import pkg._k, pkg.k, numpy as np
pkg._k.kind.__code__ = (lambda value, out: out.fill(value.dtype.itemsize)).__code__
for dtype in ("i4", "i8"):
    out = np.zeros(1, dtype)
    pkg.k.kinds[1, 1](2, out)
    print(out[0])
"""
    done = simulated(installed, code)
    assert done.out.split() == ["4", "8"], done.err


def test_unpackaged_types_are_refused_without_fallback(installed: Path) -> None:
    code = "import pkg.k, numpy as np\npkg.k.axpy[1, 1](2.0, np.zeros(1), np.zeros(1))"
    assert simulated(installed, code).status == 0
    done = simulated(installed, code, AOTCUDA_FALLBACK="error")
    assert "ArgumentError: pkg.k.axpy: argument 2, x, is float64[::1] where float32[::1] is packaged" in done.err


def test_wrong_launches_and_missing_sources_are_refused(installed: Path) -> None:
    code = """
import pkg.k
for launch in (lambda k: k[1], lambda k: k(a=1), lambda k: k[1, 1](a=1), lambda k: k.forall(0)(a=1)):
    try:
        launch(pkg.k.axpy)
    except TypeError as error:
        print(type(error).__name__, str(error).splitlines()[0])
    except Exception as error:
        print(type(error).__name__, error)
"""
    configurations = "[grid, block], [grid, block, stream] or [grid, block, stream, shared]"
    assert simulated(installed, code).out.splitlines() == [
        f"LaunchError pkg.k.axpy cannot be launched: write {configurations}, not [1]",
        "CallError pkg.k.axpy needs a configuration: axpy[grid, block](...) or axpy.forall(n)(...)",
        *(
            f"ArgumentError pkg.k.axpy accepts positional arguments, not names ('a'): write axpy{how}(a, x, out)"
            for how in ("[grid, block]", ".forall(n)")
        ),
    ]
    source = installed / "pkg" / "_k.py"
    away = source.rename(source.with_suffix(".away"))
    done = simulated(installed, "import pkg.k\npkg.k.axpy")
    away.rename(source)
    assert "SourceError: pkg.k.axpy cannot run in Numba's simulator: its source pkg._k:axpy is not here" in done.err


def test_front_end_without_a_simulator_is_refused(tmp_path: Path) -> None:
    if not front_ends.is_mlir_installed():
        pytest.skip("numba-cuda-mlir is not installed (extra mlir-cu13)")
    source = "from numba_cuda_mlir import cuda\n\n\n@cuda.jit\ndef f(x):\n    x[0] = 1\n"
    project = projects.write(
        tmp_path / "project", source, aotcuda='frontend = "numba-cuda-mlir"', module='kernels.f = "void(float32[::1])"'
    )
    done = simulated(project, "import aotcuda\naotcuda.load('pkg.k').kernels")
    assert "LaunchError: pkg.k was built with numba-cuda-mlir, which has no simulator; run without" in done.err


def test_simulator_answers_gpu_queries(tmp_path: Path) -> None:
    (tmp_path / "queries.py").write_text(
        "from aotcuda.numba import cuda\n"
        "gpu = cuda.get_current_device()\n"
        "print(gpu.MAX_THREADS_PER_BLOCK, gpu.WARP_SIZE, gpu.compute_capability)\n"
    )
    done = simulated(tmp_path, "import queries")
    assert done.out == "1024 32 (5, 2)\n", done.err
