"""Test packaged device functions in JIT kernels, C++ programs and linkers, and packaged kernels in C++ programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu.conftest import LIBRARIES
from support import front_ends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.front_end(*front_ends.ALL),
    pytest.mark.filterwarnings("ignore:.*will likely result in GPU under-utilization"),  # Numba, of small grids
]
cupy = pytest.importorskip("cupy")

# The programs pass array descriptors and complex arguments as numba-cuda does.
DESCRIPTORS = pytest.mark.front_end(front_ends.NUMBA)

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "packages" / "devicefunctions" / "cpp"


@pytest.fixture(scope="module")
def library(packaged):
    for name in ("plain", "table"):
        packaged("devicefunctions", f"devicefunctions.{name}")
    return sys.modules["devicefunctions"]


@pytest.fixture(scope="module")
def cuda(front_end):
    """Return the `cuda` module of the front end; its JIT compiles kernels that call the packaged functions."""
    return pytest.importorskip("numba.cuda" if front_end == front_ends.NUMBA else "numba_cuda_mlir.cuda")


@pytest.fixture(scope="module")
def nvcc():
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("nvcc is not installed")
    return found


def arch() -> str:
    return f"sm_{cupy.cuda.Device().compute_capability}"


def flags(installed, wheel: str, kind: str, module: str) -> list[str]:
    path = os.pathsep.join([str(installed / wheel), str(REPOSITORY), LIBRARIES])
    command = [sys.executable, "-m", "aotcuda", "config", f"--{kind}", module]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.split()


def output(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("lto", [True, False])
def test_jit_kernel_calls_functions_with_and_without_lto(library, cuda, lto):
    k = library.plain

    @cuda.jit(lto=lto)
    def user(x, n, z, state, out):
        i = cuda.grid(1)
        if i < x.size:
            n[i] = k.add_i32(n[i], 5)
            out[i] = k.add(x[i], k.times(x[i], np.float32(2)))
            z[i] = k.times(z[i], z[i])

    x = np.arange(100, dtype="float32")
    n = np.arange(100, dtype="int32")
    z = (x + 1j).astype("complex64")
    dn, dz, out = cupy.asarray(n), cupy.asarray(z), cupy.zeros(100, "float32")
    user[1, 128](cupy.asarray(x), dn, dz, cupy.zeros(2, "float32"), out)
    np.testing.assert_array_equal(dn.get(), n + 5)
    np.testing.assert_array_equal(out.get(), 3 * x)
    np.testing.assert_allclose(dz.get(), z * z, rtol=1e-6)


def test_jit_kernel_passes_structs_and_arrays(library, cuda):
    k = library.plain

    @cuda.jit
    def user(x, out):
        whole, rest = k.split(x[1])
        out[0] = whole
        out[1] = rest[0]
        out[2] = k.total(x)
        out[3] = k.polar(x[0])[1].imag
        out[4] = k.swapped((x[0], x[1]), 2j)

    out = cupy.zeros(5, "float32")
    user[1, 1](cupy.asarray([1.5, 2.75], "float32"), out)
    np.testing.assert_array_equal(out.get(), np.array([2, 0.75, 4.25, 1.5, 1.25], "float32"))


def test_callbacks_run_once_for_jit_kernel(library, cuda):
    import devicefunctions._hooks as hooks

    t = library.table
    hooks.calls.clear()

    @cuda.jit
    def user(out):
        i = cuda.grid(1)
        if i < 4:
            out[i] = t.looked_up(i) + t.looked_up(i)

    out = cupy.zeros(4, "float32")
    user[1, 32](out)
    user[1, 32](out)
    np.testing.assert_array_equal(out.get(), [20, 40, 60, 80])
    assert hooks.calls == ["setup"]


@DESCRIPTORS
def test_cpp_program_uses_function_pointers_and_state(installed, nvcc, tmp_path):
    includes, libs = (
        flags(installed, "devicefunctions", kind, "devicefunctions.plain") for kind in ("includes", "libs")
    )
    program = tmp_path / "table"
    output(nvcc, f"-arch={arch()}", "-dlto", *includes, PROGRAMS / "table.cu", *libs, "-o", program)
    lines = [list(map(float, line.split())) for line in output(program).splitlines()]
    # 3 + 4, then 3 * 4; times the state, which each call adds to; its parts; 9; (1+2i)(3+4i); the sum of those seven.
    for line, first in zip(lines, (7.0, 12.0), strict=True):
        second = first * 1.25
        parts = [first, second, float(int(second)), second - int(second), 9.0, -5.0, 10.0]
        assert line == [*parts, sum(parts), 1.25, first]


@pytest.mark.front_end(front_ends.NUMBA)  # the example's front end
def test_example_filters_with_python_functions(installed, nvcc, tmp_path):
    includes, libs = (flags(installed, "udf", kind, "udf.functions") for kind in ("includes", "libs"))
    source = REPOSITORY / "examples" / "udf" / "cpp" / "filter.cu"
    program = tmp_path / "filter"
    output(nvcc, f"-arch={arch()}", "-dlto", *includes, source, *libs, "-o", program)
    expected = sum(x * (x - 1) for x in range(100, 200))
    assert output(program, 1000, 100, 200) == f"100 of 1000 kept, their sum is {expected}.000\n"


@DESCRIPTORS
def test_cpp_program_launches_packaged_kernels(installed, nvcc, tmp_path):
    folder = installed / "devicefunctions" / "devicefunctions" / "launched.aotcuda"
    program = tmp_path / "launch"
    toolkit = Path(nvcc).resolve().parents[1]
    if not (toolkit / "include" / "cuda.h").is_file():
        toolkit = Path("/usr/local/cuda")
    library = next(line.split()[-1] for line in output("/sbin/ldconfig", "-p").splitlines() if "libcuda.so.1 " in line)
    sources = [PROGRAMS / "launch.cpp", library]
    output("g++", "-std=c++17", f"-I{folder}", f"-I{toolkit / 'include'}", *sources, "-o", program)
    assert output(program, folder / "kernels.fatbin") == "2997\n"


@pytest.mark.parametrize("lto", [True, False])
def test_cuda_core_links_packaged_functions(installed, lto):
    core = pytest.importorskip("cuda.core")
    folder = installed / "devicefunctions" / "devicefunctions" / "plain.aotcuda"
    source = (
        '#include "devicefunctions_plain.h"\nextern "C" __global__ void user(float *p) { p[0] = add_f32(p[1], p[2]); }'
    )
    device = core.Device()
    device.set_current()
    options = core.ProgramOptions(
        arch=arch(),
        relocatable_device_code=True,
        link_time_optimization=lto,
        include_path=[str(folder)],
        device_as_default_execution_space=True,
    )
    code = core.Program(source, "c++", options).compile("ltoir" if lto else "ptx")
    functions = core.ObjectCode.from_fatbin((folder / "functions.fatbin").read_bytes())
    linked = core.Linker(code, functions, options=core.LinkerOptions(arch=arch(), link_time_optimization=lto)).link(
        "cubin"
    )
    values = cupy.asarray([0, 2.5, 4], "float32")
    stream = device.create_stream()
    core.launch(stream, core.LaunchConfig(grid=1, block=1), linked.get_kernel("user"), values.data.ptr)
    stream.sync()
    assert float(values[0]) == 6.5


@pytest.mark.front_end(front_ends.MLIR)
def test_callbacks_come_from_helper_that_is_not_inlined(library, cuda):
    # The compiler compiles this helper separately, and drops its link items and callbacks.
    import devicefunctions._hooks as hooks

    t = library.table
    hooks.calls.clear()

    @cuda.jit(device=True, inline="never")
    def helper(i):
        return t.looked_up(i)

    @cuda.jit
    def user(out):
        i = cuda.grid(1)
        if i < 4:
            out[i] = helper(i) + helper(i + 1)

    out = cupy.zeros(4, "float32")
    user[1, 32](out)
    user[1, 32](out)
    np.testing.assert_array_equal(out.get(), [30, 50, 70, 50])
    assert hooks.calls == ["setup"]


BOTH = """
import json, warnings
warnings.simplefilter("ignore")
import cupy
import numpy as np
import devicefunctions.plain as k
import devicefunctions.table as t
import devicefunctions._hooks as hooks
from numba import cuda as first
from numba_cuda_mlir import cuda as second

def launched(cuda, **options):
    @cuda.jit(**options)
    def user(n, x, out):
        i = cuda.grid(1)
        if i < 4:
            n[i] = k.add_i32(n[i], 5)
            out[i] = k.add(x[i], k.times(x[i], np.float32(2))) + t.looked_up(i)

    n, x, out = cupy.arange(4, dtype="int32"), cupy.arange(4, dtype="float32"), cupy.zeros(4, "float32")
    before = len(hooks.calls)
    user[1, 32](n, x, out)
    user[1, 32](n, x, out)
    return [n.tolist(), out.tolist(), hooks.calls[before:]]

found = [launched(cuda, lto=lto) for cuda in (first, second, first) for lto in (True, False)]
print(json.dumps([k.__aotcuda__.manifest["frontend"], found]))
"""


def test_one_package_serves_kernels_of_both_compilers(front_end, run_clean):
    pytest.importorskip("numba_cuda")
    pytest.importorskip("numba_cuda_mlir")
    built_by, found = run_clean(BOTH, "devicefunctions")
    assert built_by == front_end
    assert found == [[[10, 11, 12, 13], [10.0, 23.0, 36.0, 49.0], ["setup"]]] * 6
